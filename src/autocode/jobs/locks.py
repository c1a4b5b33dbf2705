"""File locks that the kernel drops when their process ends, however it ends (``flock(2)``)."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["exclusive", "holders", "is_held", "owned", "owner", "shared", "wait_for_exclusive"]

_POLL_SECONDS: Final = 0.05


@contextmanager
def exclusive(path: Path, *, within: float, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the exclusive lock on *path* for the length of the block.

    Args:
        path: the lock's file; made if it is missing, never removed.
        within: seconds to wait for it.
        waiting: called several times a second while it waits.

    Raises:
        TimeoutError: somebody else kept the lock.
    """
    with _locked(path, fcntl.LOCK_EX, within, waiting):
        yield


@contextmanager
def shared(path: Path, *, within: float, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a shared lock on *path* for the length of the block; see :func:`exclusive`."""
    with _locked(path, fcntl.LOCK_SH, within, waiting):
        yield


@contextmanager
def owned(path: Path, *, within: float) -> Iterator[None]:
    """Hold the exclusive lock on *path*, and write this process's id into it; see :func:`owner`."""
    with exclusive(path, within=within):
        path.write_text(f"{os.getpid()}\n", "ascii")
        yield


def owner(path: Path) -> int | None:
    """Return the id of the living process that holds *path* by :func:`owned`, or ``None``.

    An id without the lock proves nothing: ids are used again. It is read between two looks that find the lock
    held, so that it can only be that of the holder, or of one that held it a moment ago.
    """
    if not is_held(path):
        return None
    text = path.read_text("ascii", errors="replace").strip()
    return int(text) if text.isdecimal() and is_held(path) else None


def holders(path: Path) -> list[int]:
    """Return the ids of the processes that hold *path* in either way, to be named to people.

    Empty where the system doesn't tell (everywhere but on Linux), or doesn't tell us.
    """
    try:
        number = path.stat().st_ino
        table = Path("/proc/locks").read_text("ascii")
    except OSError:
        return []
    found = set()
    for line in table.splitlines():
        # 1: FLOCK  ADVISORY  READ 1234 fd:00:5678 0 EOF; one that waits has an arrow after its number
        words = line.split()
        if words[1] == "FLOCK" and int(words[5].rpartition(":")[2]) == number and int(words[4]) > 0:
            found.add(int(words[4]))
    return sorted(found)


def wait_for_exclusive(path: Path) -> int:
    """Wait for as long as it takes, and return the open descriptor that holds the exclusive lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_held(path: Path) -> bool:
    """Say whether a living process holds the exclusive lock on *path*; ``False`` where there is no file."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def _locked(path: Path, operation: int, within: float, waiting: Callable[[], None]) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + within
    try:
        while True:
            try:
                fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} stayed locked for {within:.0f} s") from None
                waiting()
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
