"""The few file system calls that the local store stands on, each with its errors put into words.

Local file systems only: locks are ``flock``, which network file systems honour differently.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from autocode.jobs.errors import DiskFull, HomeUnusable

__all__ = [
    "NotAFile",
    "exclusive",
    "explained",
    "is_abandoned",
    "make_folders",
    "open_regular",
    "same_file",
    "sync_folder",
    "write_all",
]

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_UNUSABLE: Final = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "the operation is not permitted",
    errno.EOPNOTSUPP: "the file system has no hard links or no locks",
    errno.ENOSYS: "the file system has no hard links or no locks",
    errno.ENOTDIR: "a file stands where a folder should be",
}


class NotAFile(Exception):
    """No regular file stands in an object's place. Internal: callers get ObjectCorrupt."""


@contextmanager
def explained(root: Path) -> Iterator[None]:
    """Turn the operating system's refusals into ours.

    Raises:
        DiskFull: for ENOSPC and EDQUOT.
        HomeUnusable: where *root* can't be used as it is. Any other ``OSError`` passes unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(f"The store in {root} has no room left ({error.strerror}).") from error
        if error.errno in _UNUSABLE:
            raise HomeUnusable(
                f"The store in {root} can't be used: {_UNUSABLE[error.errno]}.",
                hint=f"Make {root} writable for this user, or point AUTOCODE_HOME at a local folder that is.",
            ) from error
        raise


def make_folders(parent: Path, names: Iterable[str]) -> None:
    """Make folders in *parent*, private to the user, durably, with one wait for the disk. Idempotent.

    Their entries are made durable also where they were there: who made them may have died before that. A
    parent that this user may not read can't be synced and is left to the system.
    """
    for name in names:
        with suppress(FileExistsError):
            (parent / name).mkdir(mode=0o700)
    with suppress(PermissionError):
        sync_folder(parent)


def sync_folder(path: Path) -> None:
    """Make the entries of a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_all(file: int, data: bytes) -> None:
    """Write all of *data*, also where the system takes it in parts."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, unbuffered; never follows a link, never waits for a pipe.

    Raises:
        FileNotFoundError: there is nothing at *path*.
        NotAFile: there is something else at *path*.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise NotAFile from error
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotAFile
    return os.fdopen(file, "rb", buffering=0)


def same_file(path: Path, opened: BinaryIO) -> bool:
    """Say whether *path* still is the file that *opened* reads."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(opened.fileno()))


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file *path*, waiting for it; released by the system if the process dies."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def is_abandoned(opened: BinaryIO) -> bool:
    """Say whether nobody holds the lock on *opened*; if so, this process does until it closes the file."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
