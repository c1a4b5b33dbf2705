"""Writing a finished export where its user wants it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from autocode.jobs.cli.interrupts import deferred
from autocode.jobs.cli.progress import bytes_bar
from autocode.jobs.cli.screen import Screen
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.operations.partial import explained
from autocode.jobs.operations.views import View, view_named
from autocode.jobs.resource import Job
from autocode.jobs.store import ObjectStore

__all__ = ["Written", "check_writable", "chosen_views", "deliver", "folder_made", "write_views"]


@dataclass(frozen=True, slots=True)
class Written:
    """A view that was written, and where it is."""

    view: View
    path: Path

    @property
    def opens(self) -> Path:
        """The file or folder that somebody opens to look at it."""
        return self.path / self.view.opens if self.view.opens else self.path


def chosen_views(names: Sequence[str] | None, *, zipped: bool) -> tuple[View, ...]:
    """Return the views that ``--as`` and ``--zip`` ask for, each once; the folder where neither was said.

    Raises:
        UsageError: there is no view of a name.
    """
    asked = [*(names or ()), *(["zip"] if zipped else [])]
    return tuple(view_named(name) for name in dict.fromkeys(asked or ["folder"]))


def write_views(
    screen: Screen, store: ObjectStore, digest: str, folder: Path, views: Sequence[View]
) -> list[Written]:
    """Write *views* of the bundle *digest* below *folder*, one after the other; return where they are.

    Each appears whole or not at all. Raises what the views raise; those before stay, and folders that were
    made for nothing are removed again.
    """
    folder = folder.absolute()
    written = []
    with folder_made(folder):
        for view in views:
            with bytes_bar(screen, f"writing the {view.name}") as show, deferred() as check:

                def progress(
                    done: int,
                    total: int,
                    *,
                    check: Callable[[], None] = check,
                    show: Callable[[int, int], None] = show,
                ) -> None:
                    check()
                    show(done, total)

                written.append(Written(view, view.write(store, digest, folder, progress)))
    return written


def deliver(
    screen: Screen, store: ObjectStore, job: Job, folder: Path, views: Sequence[View]
) -> list[Written]:
    """Write *views* of a complete job's bundle.

    Raises:
        JobsError: one could not be written; the job stays complete, and the hint says how to go on.
    """
    assert job.result is not None
    try:
        return write_views(screen, store, job.result.digest, folder, views)
    except (JobsError, OSError) as error:
        detail = error.detail if isinstance(error, JobsError) else f"{error.filename}: {error.strerror}."
        chosen = "".join(f" --as {view.name}" for view in views if view.name != "folder" or len(views) > 1)
        again = f"autocode-jobs artifacts get {job.result.digest} -o FOLDER{chosen}"
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
def folder_made(folder: Path) -> Iterator[None]:
    """Make *folder* and what is missing above it; take that away again if the block fails.

    Raises:
        UsageError: it can't be made.
    """
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
