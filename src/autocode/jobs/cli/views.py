"""Writing a finished export where its user wants it."""

from __future__ import annotations

from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from autocode.jobs.cli.screen import Screen
from autocode.jobs.errors import JobsError
from autocode.jobs.operations.export.views import write_folder, write_zip
from autocode.jobs.resource import Job
from autocode.jobs.store import ObjectStore

__all__ = ["deliver", "write_view"]


def write_view(screen: Screen, store: ObjectStore, digest: str, folder: Path, *, zipped: bool) -> Path:
    """Write the bundle *digest* below *folder*, as a folder or one .zip file; return where it is."""
    bar = Progress(
        TextColumn("writing the bundle"),
        BarColumn(bar_width=28),
        DownloadColumn(),
        console=screen.err,
        transient=True,
        disable=not screen.err.is_terminal,
    )
    with bar:
        line = bar.add_task("", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(line, completed=done, total=total)

        folder.mkdir(parents=True, exist_ok=True)
        if zipped:
            path = folder / f"autocode-export-{digest.removeprefix('sha256:')[:12]}.zip"
            write_zip(store, digest, path, progress=progress)
            return path
        return write_folder(store, digest, folder, progress=progress)


def deliver(screen: Screen, store: ObjectStore, job: Job, folder: Path, *, zipped: bool) -> Path:
    """Write a complete job's bundle; if that fails the job stays complete, and the error says so."""
    assert job.result is not None
    try:
        return write_view(screen, store, job.result.digest, folder, zipped=zipped)
    except (JobsError, OSError) as error:
        detail = error.detail if isinstance(error, JobsError) else f"{error.strerror}: {error.filename}"
        raise JobsError(
            f"The export is complete, but its bundle could not be written to {folder}: {detail}",
            hint=f"Write it elsewhere: autocode-jobs artifacts get {job.result.digest} -o FOLDER.",
        ) from error
