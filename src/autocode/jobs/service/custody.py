"""Which processes belong to a home's supervisor, in a form that outlives it.

Each part inherits an open file of ``run/up`` with a shared lock on it. The lock lives as long as any process
that inherited it, from the part's first instant on. So a lock that is held says that something of an earlier
supervisor still runs; an id in a file would say nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["Custody"]

_LOOK_SECONDS: Final = 0.05


class Custody:
    """The locks of one home's parts.

    Args:
        folder: made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    @contextmanager
    def lock(self, name: str) -> Iterator[int]:
        """Give the locked descriptor that the process of the part *name* is to inherit within the block."""
        descriptor = os.open(self._path(name), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield descriptor
        finally:
            os.close(descriptor)

    def note(self, name: str, pid: int) -> None:
        """Note the part's process, for systems that don't tell who holds a file open."""
        self._path(name).write_text(f"{pid}\n", "ascii")

    def living(self) -> dict[str, set[int]]:
        """Return the parts that still run, each with its processes; none may be known, yet some live."""
        held = {path for path in self._folder.glob("*.lock") if _is_held(path)}
        return {path.stem: _holders(path) for path in sorted(held)}

    def end(self, *, within: float) -> dict[str, set[int]]:
        """End every process that is left: by SIGTERM, and after *within* seconds by SIGKILL.

        Returns:
            What still runs after that: processes that can't be found here, or that the kernel holds on to.
        """
        for number, patience in ((signal.SIGTERM, within), (signal.SIGKILL, 5.0)):
            left = self.living()
            for pid in {pid for pids in left.values() for pid in pids}:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            deadline = time.monotonic() + patience
            while self.living() and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
        return self.living()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _holders(path: Path) -> set[int]:
    processes = Path("/proc")
    if not (processes / "self" / "fd").is_dir():
        # the lock was held a moment ago; the id in it is that of the process that got it
        text = path.read_text("ascii", errors="replace").strip()
        return {int(text)} if text.isdecimal() else set()
    wanted = path.stat()
    found = {
        int(process.name)
        for process in processes.iterdir()
        if process.name.isdecimal() and _has_open(process / "fd", wanted)
    }
    return found - {os.getpid()}


def _has_open(descriptors: Path, wanted: os.stat_result) -> bool:
    # a process of somebody else's can't be looked into, and one that ends has nothing open
    with contextlib.suppress(OSError), os.scandir(descriptors) as found:
        for descriptor in found:
            with contextlib.suppress(OSError):
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    return False
