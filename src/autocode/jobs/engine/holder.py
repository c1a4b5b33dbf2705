"""Proof of death: a lock that a process holds while it lives, and that the kernel drops when it doesn't.

A lease says that a process went quiet; this says that it is gone. Where it can be had (same machine, same
home) a dead attempt is found at once instead of after a lease, and a stopped process is never taken for dead.
"""

from __future__ import annotations

import fcntl
import os
import socket
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autocode.jobs import locks
from autocode.jobs.settings import Home

__all__ = ["driven", "holding", "is_holder", "proven_alive", "proven_dead", "sweep"]


@contextmanager
def holding(home: Home, *, drives: str = "") -> Iterator[str]:
    """Hold a lock of this process's own for the length of the block; give the holder's name.

    Args:
        home: where.
        drives: the job that this process brings to its end itself; see :func:`driven`.
    """
    folder = _folder(home)
    folder.mkdir(mode=0o700, exist_ok=True)
    path, descriptor = _locked_file(folder)
    os.write(descriptor, drives.encode())
    try:
        yield f"{socket.gethostname()[:64]}:{os.getpid()}:{path.name}"
    finally:
        # unlinked while still locked: a reader that opened it before sees it locked or gone, never free
        path.unlink(missing_ok=True)
        os.close(descriptor)


def is_holder(holder: str | None, pid: int) -> bool:
    """Say whether *holder* is the process *pid* of this machine, by its name; see :func:`holding`."""
    return (holder or "").rpartition(":")[0] == f"{socket.gethostname()[:64]}:{pid}"


def proven_dead(home: Home, holder: str | None) -> bool:
    """Say whether the process behind *holder* is certainly gone; ``False`` means alive or unknown.

    A holder whose file is gone left in good order or lives elsewhere: that proves nothing.
    """
    path = _path(home, holder)
    return path is not None and path.exists() and not locks.is_held(path)


def proven_alive(home: Home, holder: str | None) -> bool:
    """Say whether the process behind *holder* certainly lives on this machine."""
    path = _path(home, holder)
    return path is not None and locks.is_held(path)


def driven(home: Home) -> set[str]:
    """Return the jobs that living one-shot commands bring to their end: nobody else may submit them."""
    found = {_drives(path) for path in _files(home) if locks.is_held(path)}
    return found - {""}


def _drives(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""


def _path(home: Home, holder: str | None) -> Path | None:
    token = (holder or "").rpartition(":")[2]
    return _folder(home) / token if token.isalnum() else None


def sweep(home: Home, needed: Collection[str]) -> None:
    """Remove what dead holders left behind, but for those in *needed*, whose death is still to be told."""
    keep = {holder.rpartition(":")[2] for holder in needed}
    for path in _files(home):
        if path.name in keep:
            continue
        # removed while it is locked: who holds it next finds that its file is gone, and makes another
        with suppress(TimeoutError, FileNotFoundError), locks.exclusive(path, within=0.0):
            path.unlink(missing_ok=True)


def _locked_file(folder: Path) -> tuple[Path, int]:
    while True:
        path = folder / uuid.uuid4().hex
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            return path, descriptor
        # a sweep took it for a dead one's in the moment before it was locked
        os.close(descriptor)


def _files(home: Home) -> list[Path]:
    # whatever else somebody put there is nobody's lock
    return [path for path in _folder(home).glob("*") if path.is_file()]


def _folder(home: Home) -> Path:
    return home.run / "holders"
