"""Writing a finished export where its user wants it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autocode.jobs.cli.interrupts import deferred
from autocode.jobs.cli.progress import bytes_bar
from autocode.jobs.cli.screen import Screen
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.operations.export.partial import explained
from autocode.jobs.operations.export.views import bag_name, write_folder, write_zip
from autocode.jobs.resource import Job
from autocode.jobs.store import ObjectStore

__all__ = ["check_writable", "deliver", "write_view"]


def write_view(screen: Screen, store: ObjectStore, digest: str, folder: Path, *, zipped: bool) -> Path:
    """Write the bundle *digest* below *folder*, as a folder or one .zip file; return where it is.

    Raises what :func:`write_folder` and :func:`write_zip` raise; folders that were made for it are then
    removed again.
    """
    folder = folder.absolute()
    with bytes_bar(screen, "writing the bundle") as show, deferred() as check, _made(folder):

        def progress(done: int, total: int) -> None:
            check()
            show(done, total)

        if zipped:
            return write_zip(store, digest, folder / f"{bag_name(digest)}.zip", progress=progress)
        return write_folder(store, digest, folder, progress=progress)


def deliver(screen: Screen, store: ObjectStore, job: Job, folder: Path, *, zipped: bool) -> Path:
    """Write a complete job's bundle.

    Raises:
        JobsError: it could not be written; the job stays complete, and the hint says how to go on.
    """
    assert job.result is not None
    try:
        return write_view(screen, store, job.result.digest, folder, zipped=zipped)
    except (JobsError, OSError) as error:
        detail = error.detail if isinstance(error, JobsError) else f"{error.filename}: {error.strerror}."
        again = f"autocode-jobs artifacts get {job.result.digest} -o FOLDER"
        raise JobsError(
            f"The export is complete, but its bundle could not be written: {detail}",
            hint=f"Mend that, or name another folder: {again}",
        ) from error


def check_writable(folder: Path) -> None:
    """Find out before the work, and not after it, that the bundle can't be written to *folder*.

    Raises:
        UsageError: it is no folder, or may not be written to.
    """
    there = folder.absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        raise UsageError(f"{there} is no folder.", hint="Name a folder after --output.")
    try:
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "permission denied")
        # some file systems say yes and then refuse: made and taken away again
        if there != folder.absolute():
            missing = [each for each in (folder.absolute(), *folder.absolute().parents) if not each.exists()]
            missing[-1].mkdir()
            missing[-1].rmdir()
    except OSError as error:
        raise UsageError(
            f"{there} can't be written to: {error.strerror}.", hint="Name another folder after --output."
        ) from error


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make *folder* and what is missing above it; take that away again if the block fails."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for each in missing:
            with suppress(OSError):
                each.rmdir()
        raise
