"""A real PostgreSQL for tests and lessons: private, unprivileged, gone without a trace.

Made of what a home's PostgreSQL is made of (:mod:`autocode.jobs.postgres`), in a temporary folder.

    with PostgresServer(durable=False) as server:
        url = server.url(server.create_database())

Linux and macOS. An object of this module belongs to one thread.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg
from psycopg import sql

from autocode.jobs.errors import LedgerUnavailable, UsageError
from autocode.jobs.postgres import binaries
from autocode.jobs.postgres.accounts import Account, can_reach, give, unprivileged
from autocode.jobs.postgres.cluster import SOCKET_PATH_LIMIT, Cluster
from autocode.jobs.postgres.processes import kill_all, open_children, remove_shared_memory
from autocode.jobs.testing._processes import Janitor

__all__ = ["PostgresServer", "running_postgres"]

_PREFIX: Final = "autocode-pg-"


class PostgresServer:
    """A PostgreSQL server of its own in a temporary folder, as a context manager.

    A second server can run beside it. When this process ends without :meth:`close`, even by SIGKILL, a
    janitor process stops the server and removes the folder.

    Args:
        durable: keep fsync on. Without it a start and each commit are faster, and everything still
            survives a kill of any process, but not a loss of power.
        tcp: listen on a free loopback port too, not on the socket alone.
        start_timeout: seconds that the server has to answer.
    """

    def __init__(self, *, durable: bool = True, tcp: bool = False, start_timeout: float = 60.0) -> None:
        self._durable = durable
        self._start_timeout = start_timeout
        self._tcp = tcp
        self._folder: Path | None = None
        self._cluster: Cluster | None = None
        self._janitor: Janitor | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """The folder of data, socket and log.

        Raises:
            UsageError: the server was never started, or is closed.
        """
        if self._folder is None:
            raise UsageError("This PostgreSQL server isn't started.", hint="Call start() first.")
        return self._folder

    @property
    def pid(self) -> int | None:
        """The process id of the running server; ``None`` while none runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def port(self) -> int | None:
        """The loopback port; ``None`` unless ``tcp`` was asked for. It stays the same across restarts."""
        return None if self._cluster is None else self._cluster.port

    def start(self) -> None:
        """Start the server and wait until it answers; after :meth:`stop` or :meth:`kill`, on the same data.

        Does nothing when it runs already. A first start that fails leaves nothing behind.

        Raises:
            LedgerUnavailable: it ended early or didn't answer in time; the detail quotes its log.
            UsageError: the binaries aren't installed, or we are root and there is no account to drop to.
        """
        if self.pid is not None:
            return
        if self._folder is not None:
            self._launch()
            return
        try:
            self._prepare()
            self._launch()
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """Shut the server down, connections included, and keep the data; idempotent.

        This is PostgreSQL's *fast* shutdown (SIGINT): open transactions are rolled back.
        """
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(timeout=30.0)
            except subprocess.TimeoutExpired:
                self.kill()
        self._forget()

    def kill(self) -> None:
        """Kill the server and its backends with SIGKILL and wait until they are gone; the data stays.

        A backend in the middle of a long statement would otherwise go on without its server for a while.
        """
        if self._process is None:
            return
        with open_children(self._process.pid) as backends:
            self._process.kill()
            self._process.wait()
            kill_all(backends)
        self._forget()

    def close(self) -> None:
        """Stop the server and remove its folder; idempotent."""
        self.stop()
        if self._folder is not None:
            remove_shared_memory(self._folder / "data" / "postmaster.pid")
        if self._janitor is not None:
            self._janitor.close()
            self._janitor = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            self._cluster = None

    def url(self, database: str = "postgres", *, driver: str = "psycopg", tcp: bool = False) -> str:
        """Return the SQLAlchemy URL of *database*, password included.

        Args:
            database: the database's name.
            driver: the driver that the URL names, such as ``asyncpg``.
            tcp: name the loopback port instead of the socket.

        Raises:
            UsageError: the server was never started, or has no loopback port.
        """
        if not tcp:
            return self._prepared.url(database, driver=driver)
        if self._cluster is None or self._cluster.port is None:
            raise UsageError("This PostgreSQL server has no port.", hint="Start it with tcp=True.")
        return self._cluster.tcp_url(database, driver=driver)

    def create_database(self, name: str | None = None) -> str:
        """Create an empty database and return its name.

        Args:
            name: its name; a fresh one by default.

        Raises:
            psycopg.errors.DuplicateDatabase: the name is taken.
        """
        name = name or f"test_{secrets.token_hex(8)}"
        with self.connect() as connection:
            # template0 has no connections, ever, so the copy never waits for somebody to leave
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        return name

    def drop_database(self, name: str) -> None:
        """Drop the database *name* and cut the connections to it; a database that isn't there is fine."""
        with self.connect() as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """Open an autocommit connection to *database* through the socket; the caller closes it.

        Raises:
            psycopg.OperationalError: the server doesn't answer.
        """
        return self._prepared.connect(database)

    def _prepare(self) -> None:
        account = unprivileged()
        found = binaries.installed()
        self._folder = _new_folder(account)
        self._janitor = Janitor(self._folder)
        if not can_reach(found / "bin" / "postgres", account):
            found = binaries.copied(found, self._folder / "wheel")
        give(self._folder, account)
        self._cluster = Cluster(
            binaries=found / "bin",
            account=account,
            data=self._folder / "data",
            socket=self._folder,
            log=self._folder / "log",
            password=secrets.token_hex(16),
            durable=self._durable,
            port=_free_port() if self._tcp else None,
        )
        self._cluster.initialise()

    def _launch(self) -> None:
        cluster = self._prepared
        self._process = process = cluster.launch()
        if self._janitor is not None:
            self._janitor.guard(process.pid)
        try:
            cluster.wait_until_it_answers(process, within=self._start_timeout)
        except TimeoutError as error:
            self.kill()
            raise cluster.failure(str(error)) from error
        except LedgerUnavailable:
            self._forget()
            raise

    @property
    def _prepared(self) -> Cluster:
        if self._cluster is None:
            raise UsageError("This PostgreSQL server isn't started.", hint="Call start() first.")
        return self._cluster

    def _forget(self) -> None:
        self._process = None
        if self._janitor is not None:
            self._janitor.guard(None)


@contextmanager
def running_postgres(*, durable: bool = True, tcp: bool = False) -> Iterator[PostgresServer]:
    """Yield a running :class:`PostgresServer` and close it afterwards; the arguments are its own.

    Raises:
        LedgerUnavailable: it didn't start; the detail quotes its log.
        UsageError: the binaries aren't installed, or we are root and there is no account to drop to.
    """
    with PostgresServer(durable=durable, tcp=tcp) as server:
        yield server


def _new_folder(account: Account) -> Path:
    """Make a folder of mode 0700 that *account* can reach and whose socket path isn't too long."""
    tried = [Path(place) for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp"))]  # noqa: S108 - last resorts
    for place in tried:
        longest = place / f"{_PREFIX}12345678" / ".s.PGSQL.65535.lock"
        if len(str(longest).encode()) > SOCKET_PATH_LIMIT or not can_reach(place, account):
            continue
        with suppress(OSError):
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place)).resolve()
    raise UsageError(
        f"No temporary folder suits PostgreSQL run by {account.name}: {', '.join(map(str, tried))}.",
        hint="Point TMPDIR at a folder with a short path that this account can enter and you can write to.",
    )


def _free_port() -> int:
    # PostgreSQL can't be given an open socket; somebody may take the port before it does, which it then says
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
