"""The process that keeps the PostgreSQL of a home: ``python -m autocode.jobs.postgres.keeper HOME``.

It has one thread: the kernel's word of a parent's death goes by threads, and a fork of a process with
several is a gamble. It starts PostgreSQL as its child, starts it again when it dies, and ends it when the
last client has gone: clients share ``run/postgres-clients.lock``, which the kernel drops however they die.
When the keeper itself is killed, PostgreSQL is told to end by the kernel (Linux), and the next keeper ends
what is left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from autocode.jobs import locks
from autocode.jobs.errors import DiskFull, JobsError, LedgerUnavailable
from autocode.jobs.postgres import processes
from autocode.jobs.postgres.cluster import Cluster
from autocode.jobs.postgres.place import DATABASE, PREFECT_DATABASE, cluster_of
from autocode.jobs.settings import Home, write_durably

__all__ = ["main"]

_LINGER_SECONDS: Final = 2.0
"""How long PostgreSQL outlives its last client: the next command may come."""

_LOOK_SECONDS: Final = 0.1
"""Pause between two looks whether a client is left; the end of PostgreSQL wakes the keeper by itself."""

_START_SECONDS: Final = 3600.0
"""How long PostgreSQL may take to replay its log after a crash. To kill it meanwhile would help nobody."""

_END_SECONDS: Final = 20.0
"""How long an orderly end may take before PostgreSQL is killed, which its data survive."""


def main(home_path: str) -> int:
    """Keep PostgreSQL running until the last client has gone; return the exit status."""
    home = Home(Path(home_path))
    processes.adopt_orphans()
    # a look at the lock takes it for a moment, hence the patience
    with locks.owned(home.run / "postgres.lock", within=2.0):
        try:
            cluster = cluster_of(home)
            with _alone_with(cluster.data.parent):
                return _Keeper(home, cluster).run()
        except (JobsError, OSError) as error:
            # for whoever started us: it is shown to people
            print(f"{datetime.now(UTC):%F %T} keeper: {error}", file=sys.stderr, flush=True)  # noqa: T201 - the log
            write_durably(home.run / "postgres.json", json.dumps(_told(error)).encode())
            return 1


@contextlib.contextmanager
def _alone_with(folder: Path) -> Iterator[None]:
    """Hold the lock of the data: a home that was copied has a lock of its own, and the same data."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise LedgerUnavailable(
            f"{folder} is in use by another home.",
            hint=f"{folder}/home names the home that it is for. A copy of a home has no data of its own.",
        ) from None
    finally:
        os.close(descriptor)


def _told(error: Exception) -> dict[str, object]:
    known = error
    if not isinstance(known, JobsError):
        full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
        known = DiskFull(str(error)) if full else LedgerUnavailable(str(error))
    return {"pid": os.getpid(), "type": known.type, "error": known.detail, "hint": known.hint}


class _Keeper:
    def __init__(self, home: Home, cluster: Cluster) -> None:
        self._home = home
        self._cluster = cluster
        self._asked_to_end = False
        # the end of a child, and a wish to end, interrupt the wait between two looks
        self._woken, waker = socket.socketpair()
        self._woken.setblocking(False)
        waker.setblocking(False)
        self._waker = waker
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end_soon)

    def run(self) -> int:
        while True:
            self._end_what_is_left()
            process = self._cluster.launch(in_child=processes.signalled_with_parent(signal.SIGINT))
            self._cluster.wait_until_it_answers(process, within=_START_SECONDS)
            self._make_databases()
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            address = {"pid": os.getpid(), "at": now, "postgres": process.pid}
            write_durably(self._home.run / "postgres.json", json.dumps(address).encode())
            with contextlib.ExitStack() as stack:
                if self._no_longer_needed(process, stack):
                    self._end_what_is_left()
                    (self._home.run / "postgres.json").unlink(missing_ok=True)
                    return 0

    def _end_what_is_left(self) -> None:
        cluster = self._cluster
        processes.end_server(
            cluster.data, cluster.socket, cluster.name, cluster.account.uid, patience=_END_SECONDS
        )
        processes.reap()

    def _make_databases(self) -> None:
        with self._cluster.connect() as connection:
            there = {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
            for name in (DATABASE, PREFECT_DATABASE):
                if name not in there:
                    with contextlib.suppress(psycopg.errors.DuplicateDatabase):
                        connection.execute(
                            sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
                        )

    def _no_longer_needed(self, process: subprocess.Popen[bytes], stack: contextlib.ExitStack) -> bool:
        """Wait until PostgreSQL died (``False``) or nobody needs it any more (``True``).

        In that case the clients' lock is held until *stack* is closed, so that no new client takes what is
        ending for something that lives.
        """
        clients = self._home.run / "postgres-clients.lock"
        alone_since: float | None = None
        while process.poll() is None:
            if self._asked_to_end or not clients.exists():
                return True
            try:
                with contextlib.ExitStack() as held:
                    held.enter_context(locks.exclusive(clients, within=-1.0))
                    alone_since = alone_since or time.monotonic()
                    if time.monotonic() - alone_since > _LINGER_SECONDS:
                        stack.push(held.pop_all())
                        return True
            except TimeoutError:
                alone_since = None
            self._pause()
        return False

    def _pause(self) -> None:
        select.select([self._woken], [], [], _LOOK_SECONDS)
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(512):
                pass

    def _end_soon(self, _number: int, _frame: object) -> None:
        self._asked_to_end = True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
