"""The parent's side of the processes that perform steps apart."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any, Final

from autocode.jobs import crash
from autocode.jobs.errors import UnexpectedError
from autocode.jobs.kinds import Call, Produced, Step
from autocode.jobs.store import ObjectInfo
from autocode.jobs.store.staging import Handed

__all__ = ["Worker", "WorkerDied", "processes"]

_MOST: Final = 8
_FAREWELL_SECONDS: Final = 5.0
# blocks of some hundred kilobytes come and go: given back each time, they cost a fifth of the processor time
_ALLOCATOR: Final = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(32 << 20)}


class WorkerDied(UnexpectedError):
    """A process that performed steps ended before its work did."""

    type = "worker-died"
    title = "A working process died"
    default_hint = "It is tried again; if that happens often, look whether the machine runs out of memory."


def processes() -> int:
    """Return how many processes may work at once: the cores of this process, or ``AUTOCODE_PROCESSES``.

    With fewer than two everything is done in the process itself.
    """
    named = os.environ.get("AUTOCODE_PROCESSES", "")
    if named.isdecimal():
        return min(int(named), 64)
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), _MOST)
    return min(os.cpu_count() or 1, _MOST)


class Worker:
    """One process, started by the constructor; it performs chains in the order in which they are sent.

    It ends when :meth:`close` is called or this process ends, however that happens: its socket closes then.

    Args:
        home: the home whose store it writes to.
        step: the step that it performs.
    """

    def __init__(self, home: Path, step: Step[Any]) -> None:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _started(theirs.fileno(), home)
        except BaseException:
            ours.close()
            raise
        self._socket = Connection(ours.detach())
        self.is_ready = False
        """It has imported what it needs."""
        body: Any = step.body
        self._send(("step", body.__module__, step.kind, step.name, crash.armed_point()))

    def run(self, chain: int, calls: list[Call[Any]], before: Produced | None) -> None:
        """Send a chain of calls; :meth:`receive` gives what becomes of it."""
        self._send(("run", chain, calls, before))

    def receive(self, timeout: float) -> tuple[Any, ...] | None:
        """Return the next message, or ``None`` after *timeout* seconds.

        ``("done", chain, number, produced, objects)`` with the finished objects as :class:`Handed`,
        ``("progress", chain, number, done)``, ``("error", chain, number, error)``, or ``("end", chain)``.

        Raises:
            WorkerDied: the process is gone.
        """
        try:
            if not self._socket.poll(timeout):
                return None
            message: tuple[Any, ...] = self._socket.recv()
            if message[0] == "ready":
                self.is_ready = True
                return None
            if message[0] == "passed":
                self._send(("go", _passed(message[1])))
                return None
            if message[0] == "done":
                return *message[:-1], self._handed(message[-1])
        except (EOFError, OSError) as error:
            raise self._died() from error
        return message

    def close(self) -> None:
        """End the process at once, and wait for that. What it was writing is left to a sweep. Idempotent."""
        self._process.kill()
        with suppress(OSError):
            self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL_SECONDS)

    def _handed(self, objects: Sequence[tuple[str, ObjectInfo]]) -> list[Handed]:
        handed: list[Handed] = []
        try:
            for name, info in objects:
                handed.append(Handed(name, recv_handle(self._socket), info))
        except BaseException:
            # what came is locked for as long as it is open, and a sweep could not remove it
            for each in handed:
                os.close(each.file)
            raise
        return handed

    def _send(self, message: tuple[Any, ...]) -> None:
        try:
            self._socket.send(message)
        except OSError as error:
            raise self._died() from error

    def _died(self) -> WorkerDied:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL_SECONDS)
        return WorkerDied(f"A process that performs steps ended with status {self._process.returncode}.")


def _started(descriptor: int, home: Path) -> subprocess.Popen[bytes]:
    # not from the current folder, whatever lies there
    program = [sys.executable, "-P", "-m", "autocode.jobs.engine.worker_process"]
    return subprocess.Popen(
        [*program, str(descriptor), str(home)],
        # as multiprocessing does it: what can be imported here can be imported there
        env={**os.environ, **_ALLOCATOR, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def _passed(point: str) -> Exception | None:
    """Pass a crash point here for the process that works for us; return what it shall raise."""
    try:
        crash.at(point)
    except (crash.CrashRaised, OSError) as raised:
        return raised
    return None
