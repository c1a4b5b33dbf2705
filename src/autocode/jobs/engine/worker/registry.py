"""Which children run on this machine: one small file each, in ``run/children``.

A child writes its own file. It names the moment at which the process began, as the kernel has it, so that a
process that got the same number later is never taken for the child.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from autocode.jobs.settings import Home

__all__ = ["Registered", "children", "forget", "kill", "lives", "registered", "started_at"]


@dataclass(frozen=True, slots=True)
class Registered:
    """A child as its file describes it; ``*_began`` are opaque marks of :func:`started_at`."""

    pid: int
    began: str
    flow_run_id: str
    worker: int
    worker_began: str


@contextmanager
def registered(home: Home, flow_run_id: str, worker: int, worker_began: str) -> Iterator[None]:
    """Keep this process in the list for the length of the block; a process that is killed stays in it."""
    pid = os.getpid()
    folder = _folder(home)
    folder.mkdir(mode=0o700, exist_ok=True)
    mine = Registered(pid, started_at(pid) or "", flow_run_id, worker, worker_began)
    path = folder / str(pid)
    # not durable on purpose: after a crash of the machine no child is left either
    unfinished = folder / f".{pid}"
    unfinished.write_text(json.dumps(asdict(mine)), "utf-8")
    unfinished.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def children(home: Home) -> list[Registered]:
    """Return every child in the list, alive or not. What can't be read is left out."""
    found = []
    for path in _folder(home).glob("[0-9]*"):
        with suppress(OSError, ValueError, TypeError):
            found.append(Registered(**json.loads(path.read_text("utf-8"))))
    return found


def lives(child: Registered) -> bool:
    """Say whether that very process still exists."""
    return child.began != "" and started_at(child.pid) == child.began


def kill(child: Registered) -> None:
    """Kill the child and its process group, unless it ended and its number is somebody else's. Idempotent."""
    if not hasattr(os, "pidfd_open"):
        if lives(child):
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        return
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(child.pid)
        try:
            # looked at after the handle was opened: it is the child's, or it is of no use to anybody
            if lives(child):
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def forget(home: Home, child: Registered) -> None:
    """Take a child that ended off the list. Idempotent."""
    (_folder(home) / str(child.pid)).unlink(missing_ok=True)


def started_at(pid: int) -> str | None:
    """Return a mark of the moment at which the process began, or ``None`` where there is no such process.

    On Linux it is the start time in ticks since boot (field 22 of ``/proc/PID/stat``, ``proc(5)``) with the
    boot's own id; elsewhere what ``ps`` says. A process that ended and was not reaped yet doesn't count.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _said_by_ps(pid)
    # the name of the program, in brackets, may hold anything
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else f"{boot}:{fields[19]}"


def _said_by_ps(pid: int) -> str | None:
    said = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return said or None


def _folder(home: Home) -> Path:
    return home.run / "children"
