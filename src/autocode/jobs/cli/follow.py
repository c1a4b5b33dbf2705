"""Running a job from the command line, with its progress on the screen as it was persisted."""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from autocode.jobs.cli.screen import Screen, plural
from autocode.jobs.engine.environment import configure_client
from autocode.jobs.engine.server import private_server
from autocode.jobs.engine.system import System
from autocode.jobs.model import JobStatus
from autocode.jobs.resource import Job

__all__ = ["follow"]

_ENGINE: Final = "autocode.jobs.engine.oneshot"


def follow(screen: Screen, system: System, job_id: str) -> Job:
    """Bring a job to its end, here or by following who runs it, and show its progress.

    Raises:
        ServerUnavailable: the private Prefect server did not start.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the attempt was handed back.
    """
    configure_client(system.home)
    # Prefect takes seconds to import, and its server takes seconds to start: at the same time
    importing = threading.Thread(target=importlib.import_module, args=(_ENGINE,), daemon=True)
    importing.start()
    view = _View(screen)
    with view.shown(), _sigterm_as_interrupt(), private_server(system.home, waiting=view.waiting) as address:
        importing.join()
        engine = importlib.import_module(_ENGINE)
        job: Job = engine.run_to_end(system, job_id, address, view.update)
    return job


class _View:
    """One progress line; on a stderr that is no terminal, a line at each change of state."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            DownloadColumn(),
            TimeElapsedColumn(),
            console=screen.err,
            transient=True,
            disable=not screen.err.is_terminal,
        )
        self._line: TaskID = self._progress.add_task("starting the Prefect server", total=None)
        self._said: str | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line for the length of the block."""
        with self._progress:
            yield

    def waiting(self, seconds: float) -> None:
        """Say that the server is being started."""
        self._progress.update(self._line, description=f"starting the Prefect server ({seconds:.0f} s)")

    def update(self, job: Job) -> None:
        """Show the job as it was persisted."""
        text = _describe(job)
        progress = job.progress
        in_bytes = progress is not None and progress.unit == "bytes"
        self._progress.update(
            self._line,
            description=text,
            completed=progress.done or 0 if progress is not None and in_bytes else 0,
            total=progress.total if progress is not None and in_bytes else None,
        )
        if self._progress.disable and text != self._said and job.status is not JobStatus.COMPLETE:
            self._screen.note(text)
        self._said = text


def _describe(job: Job) -> str:
    if job.status is JobStatus.RUNNING:
        done = plural(job.checkpoint.seq, "step") + " done" if job.checkpoint else "scanning"
        again = " · trying a step again" if job.progress and job.progress.retry_at else ""
        return f"attempt {job.attempts} · {done}{again}"
    if job.status is JobStatus.RETRY:
        return f"attempt {job.attempts} ended · the next is due"
    return str(job.status)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    # a shell that starts us in the background makes us ignore Ctrl-C; `kill -INT` is asked for all the same
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupted)
