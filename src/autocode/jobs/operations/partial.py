"""Results that appear whole or not at all: they grow under a temporary name beside their place.

A temporary file or folder carries a lock for as long as its writer lives. The system drops the lock with the
process, however that ends, so whoever comes next can tell what was left behind and remove it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from autocode.jobs.errors import DiskFull, UsageError

__all__ = ["explained", "partial_file", "partial_folder", "sweep", "sync_folder"]

_TEMPORARY: Final = re.compile(r"\.autocode-[a-z]+-[0-9a-f]{16}\.partial")
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED: Final = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "the operation is not permitted",
    errno.ENOENT: "it doesn't exist",
    errno.ENOTDIR: "it is no folder",
    errno.ENAMETOOLONG: "the name is too long for this file system",
    errno.ELOOP: "its symbolic links lead in a circle",
}


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn the system's refusals to write in *folder* into ours.

    Raises:
        DiskFull: there is no room, or the file system takes no file of this size.
        UsageError: the folder can't be written to. Any other ``OSError`` passes unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(
                f"{folder} has no room left ({error.strerror}); nothing was left there.",
                hint="Free some space, or name a folder on another disk.",
            ) from error
        if error.errno in _REFUSED:
            raise UsageError(
                f"{folder} can't be written to: {_REFUSED[error.errno]}.",
                hint="Name a folder that exists and that you may write to.",
            ) from error
        raise


@contextmanager
def partial_folder(parent: Path, what: str = "export") -> Iterator[Path]:
    """Make a locked temporary folder in *parent*; it is gone afterwards unless it was renamed.

    Its name says *what* (lower-case letters) it is to become.
    """
    with _locked(parent, what, folder=True) as (path, _):
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def partial_file(parent: Path, what: str = "export") -> Iterator[tuple[Path, int]]:
    """Make a locked temporary file in *parent*, open for reading and writing; it is gone afterwards.

    Its name says *what* (lower-case letters) it is to become.
    """
    with _locked(parent, what, folder=False) as (path, descriptor):
        try:
            yield path, descriptor
        finally:
            path.unlink(missing_ok=True)


def sweep(parent: Path) -> int:
    """Remove from *parent* what killed runs left there, and return how much that was.

    Whatever a living process still writes is left alone; so is everything that can't be locked or removed.
    """
    swept = 0
    for name in sorted(entry.name for entry in parent.iterdir() if _TEMPORARY.fullmatch(entry.name)):
        path = parent / name
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_still(path, descriptor):
                    _remove(path, descriptor)
                    swept += 1
            finally:
                os.close(descriptor)
    return swept


def sync_folder(path: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(parent: Path, what: str, *, folder: bool) -> Iterator[tuple[Path, int]]:
    path, descriptor = _made_and_locked(parent, what, folder=folder)
    try:
        yield path, descriptor
    finally:
        os.close(descriptor)


def _made_and_locked(parent: Path, what: str, *, folder: bool) -> tuple[Path, int]:
    while True:
        path, descriptor = _make(parent, what, folder=folder)
        # where a file system has no locks, a sweep can't lock either and leaves it alone
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # a sweep that came between the two calls has taken it for abandoned
        if _is_still(path, descriptor):
            return path, descriptor
        os.close(descriptor)


def _make(parent: Path, what: str, *, folder: bool) -> tuple[Path, int]:
    path = parent / f".autocode-{what}-{secrets.token_hex(8)}.partial"
    if folder:
        path.mkdir(mode=0o700)
        return path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove(path: Path, descriptor: int) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        shutil.rmtree(path)
    else:
        path.unlink()
