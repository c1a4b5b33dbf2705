"""Needing the PostgreSQL of a home: it is started by the first who does, and kept alive by all of them.

Three locks in ``run/`` say everything. ``postgres.lock`` is held by the keeper while it lives,
``postgres-clients.lock`` is shared by those who need it, ``postgres-start.lock`` is held by whoever starts a
keeper, so that two clients start one. The kernel drops each with its process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from autocode.jobs import locks
from autocode.jobs.errors import DiskFull, HomeUnusable, JobsError, LedgerUnavailable, UsageError
from autocode.jobs.postgres.place import server_log, url_of
from autocode.jobs.settings import Home

__all__ = ["running"]

_START_SECONDS: Final = 60.0
"""How long to wait for an answer. The first start makes the data folder: 2 s here, more on a slow disk."""

_GUARD_SECONDS: Final = 0.2
"""Pause between two looks whether the keeper still lives."""

_LOG_BYTES: Final = 1 << 20
"""Size from which the log is set aside when a keeper starts; one older log is kept."""

_FAILURES: Final[dict[str, type[JobsError]]] = {
    kind.type: kind for kind in (DiskFull, HomeUnusable, UsageError)
}
"""What a keeper may fail of, beside an unavailable ledger."""

Waiting = Callable[[float], None]


@contextmanager
def running(home: Home, *, waiting: Waiting | None = None) -> Iterator[str]:
    """Give the URL of the ledger's database; the home's PostgreSQL runs at least until the block ends.

    When PostgreSQL or its keeper dies within the block, it is started again, with the same URL. It ends by
    itself soon after the last process that needs it has left this block, or died.

    Args:
        home: whose PostgreSQL; it must be prepared.
        waiting: told the seconds waited so far, several times a second.

    Raises:
        LedgerUnavailable: it didn't answer in time, or couldn't be started; the detail names the log.
    """
    tell = waiting or (lambda _seconds: None)
    began = time.monotonic()

    def tick() -> None:
        tell(time.monotonic() - began)

    with contextlib.ExitStack() as stack:
        clients = home.run / "postgres-clients.lock"
        try:
            # a keeper that is ending holds this lock until PostgreSQL is gone
            stack.enter_context(locks.shared(clients, within=_START_SECONDS, waiting=tick))
            url = _ensure(home, tick)
        except TimeoutError as error:
            raise _unavailable(home, f"can't be started or reached: {error}") from error
        stack.enter_context(_guarded(home))
        yield url


def _ensure(home: Home, tick: Callable[[], None]) -> str:
    lock = home.run / "postgres.lock"
    if locks.is_held(lock) and (url := _answering(home)) is not None:
        return url
    with locks.exclusive(home.run / "postgres-start.lock", within=_START_SECONDS, waiting=tick):
        give_up = time.monotonic() + _START_SECONDS
        while locks.is_held(lock):
            if (url := _answering(home)) is not None:
                return url
            if time.monotonic() > give_up:
                raise _unavailable(home, f"didn't answer within {_START_SECONDS:.0f} s")
            tick()
            time.sleep(0.02)
        return _start(home, tick)


def _answering(home: Home) -> str | None:
    """Return the URL if the ledger's database lets us in now."""
    url = url_of(home)
    if url is None:
        return None
    try:
        psycopg.connect(url.replace("+psycopg", "", 1), connect_timeout=2).close()
    except psycopg.OperationalError:
        return None
    return url


def _start(home: Home, tick: Callable[[], None]) -> str:
    with _opened_log(home) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "autocode.jobs.postgres.keeper", str(home.path)],
            cwd=home.run,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # reaped when it ends, so that it doesn't stay behind as a zombie of this process
    threading.Thread(target=process.wait, name="keeper reaper", daemon=True).start()
    give_up = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up:
        recorded = _recorded(home)
        if recorded.get("pid") == process.pid:
            if "error" in recorded:
                raise _FAILURES.get(recorded.get("type", ""), LedgerUnavailable)(
                    f"The home's PostgreSQL can't be started: {recorded['error']}", hint=recorded["hint"]
                )
            if (url := _answering(home)) is not None:
                return url
        if process.poll() is not None and _recorded(home).get("pid") != process.pid:
            raise _unavailable(home, f"has a keeper that ended at once with status {process.returncode}")
        tick()
        time.sleep(0.02)
    raise _unavailable(home, f"didn't answer within {_START_SECONDS:.0f} s")


def _recorded(home: Home) -> dict[str, Any]:
    try:
        found = json.loads((home.run / "postgres.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _opened_log(home: Home) -> Iterator[int]:
    path = server_log(home)
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_suffix(".1.log"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _guarded(home: Home) -> Iterator[None]:
    """Start the keeper again whenever it dies within the block."""
    leaving = threading.Event()
    lock: Path = home.run / "postgres.lock"

    def watch() -> None:
        while not leaving.wait(_GUARD_SECONDS):
            # what can't be started is told by whoever needs an answer; the next look tries again
            with contextlib.suppress(JobsError, TimeoutError, OSError):
                if not locks.is_held(lock):
                    _ensure(home, lambda: None)

    guard = threading.Thread(target=watch, name="postgres guard", daemon=True)
    guard.start()
    try:
        yield
    finally:
        leaving.set()
        guard.join(timeout=_GUARD_SECONDS)


def _unavailable(home: Home, what: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"The home's PostgreSQL {what}; its log is {server_log(home)}.",
        hint="Look at the end of the log, free some disk space if that is short, and try again.",
    )
