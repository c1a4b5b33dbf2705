"""The processes of a home's service by the part they belong to: memory and processor time, from ``/proc``."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PARTS", "Process", "cpu_seconds", "descendants", "memory", "of_home", "proportional_set"]

PARTS: Final = ("up", "postgres", "prefect", "api", "reconcile", "worker", "zygote", "forkserver")
_MODULES: Final = {
    "autocode.jobs.engine.server_process": "prefect",
    "autocode.jobs.postgres.keeper": "postgres",
    "autocode.jobs.engine.worker.zygote": "zygote",
    "autocode.jobs.cli.forkserver": "forkserver",
}
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One process, and the part of the service that it belongs to."""

    pid: int
    parent: int
    part: str


def of_home(home: Path) -> list[Process]:
    """Return every process of the home's service: those that name the home, and all that they started."""
    parents = _parents()
    named = {pid: part for pid in parents if (part := _part(pid, home)) is not None}
    found = dict(named)
    for root, part in named.items():
        for pid in descendants(root, parents):
            # the nearest ancestor that says what it is decides
            if pid not in named and _nearest(pid, parents, named) == root:
                found[pid] = part
    return [Process(pid, parents[pid], part) for pid, part in found.items() if pid != os.getpid()]


def descendants(root: int, parents: dict[int, int] | None = None) -> list[int]:
    """Return all that *root* started, and they; without itself."""
    known = _parents() if parents is None else parents
    found: list[int] = []
    pending = [root]
    while pending:
        parent = pending.pop()
        children = [pid for pid, its in known.items() if its == parent]
        found += children
        pending += children
    return found


def memory(processes: list[Process]) -> dict[str, int]:
    """Return the proportional set size in bytes by part: shared pages are divided among who shares them."""
    sizes = dict.fromkeys(PARTS, 0)
    for process in processes:
        sizes[process.part] += proportional_set(process.pid)
    return sizes


def proportional_set(pid: int) -> int:
    """Return a process's bytes of memory; of pages that several share, its part. 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


def cpu_seconds(processes: list[Process]) -> dict[str, float]:
    """Return the processor seconds used so far by part, those of children that have ended included."""
    seconds = dict.fromkeys(PARTS, 0.0)
    for process in processes:
        with suppress(OSError, IndexError):
            fields = _stat(process.pid)
            seconds[process.part] += sum(int(field) for field in fields[11:15]) / _TICKS
    return seconds


def _parents() -> dict[int, int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    return parents


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()


def _part(pid: int, home: Path) -> str | None:
    """Return the part whose main process this is, or ``None`` where it is another's."""
    try:
        words = [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    if str(home) not in words and os.fsencode(home) not in environ:
        return None
    called = Path(f"/proc/{pid}/comm").read_text("utf-8").strip().removeprefix("jobs-")
    if called in (*PARTS, "run"):
        # forked processes have one command line, and say by this name what they are
        return "zygote" if called == "run" else called
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in _MODULES:
            return _MODULES[word]
        if word.endswith(("autocode.jobs.cli.main", "/autocode-jobs")) and following in PARTS:
            return following
    return None


def _nearest(pid: int, parents: dict[int, int], named: dict[int, str]) -> int:
    while pid in parents:
        pid = parents[pid]
        if pid in named:
            return pid
    return 0
