"""Finding, starting and restarting the private Prefect server of a home, while somebody needs it.

Three locks in ``run/`` say everything. ``server.lock`` is held by the server while it lives. ``clients.lock``
is shared by those who need it; the server ends when it gets the lock for itself. ``start.lock`` is held by
whoever starts one, so that two clients start one server. The kernel drops each with its process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from autocode.jobs import locks
from autocode.jobs.engine import prefect_schema
from autocode.jobs.engine.environment import child_environment, note_schema, on_postgresql
from autocode.jobs.errors import JobsError, ServerUnavailable
from autocode.jobs.settings import Home

__all__ = ["Address", "private_server", "server_log"]

_START_SECONDS: Final = 120.0
"""A start may run all of Prefect's migrations: 7 s here, a minute on a slow disk; see ``prefect_schema``."""

_SILENCE_SECONDS: Final = 30.0
"""How long a server that lives may leave every question unanswered before it is killed and replaced."""

_GUARD_SECONDS: Final = 0.5
"""Pause between two looks whether the server still lives."""

_LOG_BYTES: Final = 1 << 20
"""Size from which the log is set aside when a server starts; one older log is kept."""

Waiting = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server answers, and what lets us in."""

    url: str
    auth: str
    pid: int


def server_log(home: Home) -> Path:
    """Return the file with what the home's Prefect server has to say."""
    return home.logs / "prefect-server.log"


@contextmanager
def private_server(home: Home, *, waiting: Waiting | None = None) -> Iterator[Address]:
    """Give the address of the home's Prefect server, starting it if nobody has.

    A server that dies within the block is started again, at the same address, by the first client that
    notices. It ends by itself soon after the last process that needs it has left this block, or died.

    Args:
        home: whose server.
        waiting: told the seconds waited so far, several times a second.

    Raises:
        ServerUnavailable: it did not answer in time, or ended at once; the detail names its log.
    """
    tell = waiting or (lambda _seconds: None)
    began = time.monotonic()

    def tick() -> None:
        tell(time.monotonic() - began)

    with contextlib.ExitStack() as stack:
        try:
            # a server that is ending holds this lock until it is gone
            stack.enter_context(locks.shared(home.run / "clients.lock", within=_START_SECONDS, waiting=tick))
            address = _ensure(home, tick)
        except TimeoutError as error:
            raise _unavailable(home, f"can't be started or reached: {error}") from error
        stack.enter_context(_guarded(home))
        yield address


def _ensure(home: Home, tick: Callable[[], None]) -> Address:
    with locks.exclusive(home.run / "start.lock", within=_START_SECONDS, waiting=tick):
        silent_since = time.monotonic()
        while locks.is_held(home.run / "server.lock"):
            address = _answering(home)
            if address is not None:
                return address
            silence = time.monotonic() - silent_since
            if silence > _SILENCE_SECONDS:
                _kill(home)
            if silence > 2 * _SILENCE_SECONDS:
                raise _unavailable(home, "neither answers nor ends")
            tick()
            time.sleep(0.1)
        return _start(home, tick)


def _recorded(home: Home) -> Address | None:
    try:
        return Address(**json.loads((home.run / "server.json").read_text("utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _answering(home: Home) -> Address | None:
    address = _recorded(home)
    if address is None:
        return None
    try:
        # environment proxies are for other hosts than this one
        with httpx.Client(trust_env=False, verify=False, timeout=5.0) as client:  # noqa: S501 - plain HTTP on loopback
            answer = client.get(f"{address.url}/health")
    except httpx.HTTPError:
        return None
    return address if answer.status_code == httpx.codes.OK else None


def _kill(home: Home) -> None:
    # the lock's own word: server.json outlives its server, and the id in it may be anybody's by now
    pid = locks.owner(home.run / "server.lock")
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _start(home: Home, tick: Callable[[], None]) -> Address:
    # a process that dies before the note costs the next start a look at the migrations
    if not on_postgresql(home) and prefect_schema.lay(home.prefect):
        note_schema(home)
    with _opened_log(home) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "autocode.jobs.engine.server_process", str(home.path)],
            env=child_environment(home),
            cwd=home.prefect,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return _started(home, process, tick)


def _started(home: Home, process: subprocess.Popen[bytes], tick: Callable[[], None]) -> Address:
    began = time.monotonic()
    while time.monotonic() - began < _START_SECONDS:
        recorded = _recorded(home)
        if recorded is not None and recorded.pid == process.pid and _answering(home) is not None:
            # reaped when it ends, so that it doesn't stay behind as a zombie of this process
            threading.Thread(target=process.wait, name="server reaper", daemon=True).start()
            return recorded
        try:
            status = process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            tick()
            continue
        raise _unavailable(home, f"ended at once with status {status}")
    process.kill()
    process.wait()
    raise _unavailable(home, f"did not answer within {_START_SECONDS:.0f} s")


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
    """Start the server again whenever it dies within the block."""
    leaving = threading.Event()

    def watch() -> None:
        while not leaving.wait(_GUARD_SECONDS):
            if locks.is_held(home.run / "server.lock"):
                continue
            # what can't be started is told by whoever needs an answer; the next look tries again
            with contextlib.suppress(JobsError, TimeoutError, OSError):
                _ensure(home, lambda: None)

    guard = threading.Thread(target=watch, name="server guard", daemon=True)
    guard.start()
    try:
        yield
    finally:
        leaving.set()
        guard.join(timeout=_GUARD_SECONDS)


def _unavailable(home: Home, what: str) -> ServerUnavailable:
    return ServerUnavailable(
        f"The Prefect server {what}; its log is {server_log(home)}.",
        hint=f"Look at the end of the log. {home.prefect} holds nothing but Prefect's history: "
        "if its database is damaged, move the folder away and run the same command again.",
    )
