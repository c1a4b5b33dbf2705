"""Running a command and measuring it: wall clock, processor time, memory of the whole tree of processes."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.processes import proportional_set

__all__ = ["Measured", "run"]

_PAUSE: Final = 0.05
_SERVER: Final = b"server_process"


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of a command cost.

    Args:
        began: seconds since the epoch.
        seconds: wall clock.
        cpu: processor seconds of the command and of the processes that it waited for.
        peak: bytes of memory (PSS) of all its processes at the same time, but for the Prefect server.
        peak_server: the Prefect server's own.
        written: when the watched file was written last, in seconds since the epoch; 0 without one.
        out: what it printed.
    """

    began: float
    seconds: float
    cpu: float
    peak: int
    peak_server: int
    written: float
    out: str


def run(
    command: Sequence[str | Path], environment: dict[str, str], *, watched: Path | None = None
) -> Measured:
    """Run *command* to its end, and note when the file *watched* was written.

    Memory is sampled from ``/proc`` twenty times a second (proportional set size: pages that processes
    share are divided among them).

    Raises:
        SystemExit: it failed; its complaint is printed.
    """
    began = time.time()
    start = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    sampler = _Sampler(process.pid, watched)
    thread = threading.Thread(target=sampler.run)
    thread.start()
    before = os.times()
    out, err = process.communicate()
    seconds = time.perf_counter() - start
    after = os.times()
    sampler.over.set()
    thread.join()
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}:\n{err[-2000:]}")
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return Measured(began, seconds, cpu, sampler.peak, sampler.peak_server, sampler.written, out)


class _Sampler:
    def __init__(self, pid: int, watched: Path | None) -> None:
        self._root = pid
        self._watched = watched
        self.written = 0.0
        self.over = threading.Event()
        self.peak = self.peak_server = 0

    def run(self) -> None:
        while not self.over.wait(_PAUSE):
            own, server = _memory(self._root)
            self.peak = max(self.peak, own)
            self.peak_server = max(self.peak_server, server)
            if self._watched is not None:
                # it is removed when the server ends
                with suppress(OSError):
                    self.written = self._watched.stat().st_mtime


def _memory(root: int) -> tuple[int, int]:
    """Return the proportional set size in bytes of *root* and its descendants, the Prefect server's apart."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    own = server = 0
    pending = [(root, False)]
    while pending:
        pid, is_server = pending.pop()
        with suppress(OSError):
            is_server = is_server or _SERVER in Path(f"/proc/{pid}/cmdline").read_bytes()
        if is_server:
            server += proportional_set(pid)
        else:
            own += proportional_set(pid)
        pending += [(child, is_server) for child in children.get(pid, ())]
    return own, server
