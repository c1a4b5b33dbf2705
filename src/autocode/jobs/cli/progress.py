"""The line that moves while a command works, and what stands in for it where nothing can move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from autocode.jobs.cli.screen import Screen, bytes_text, local_time, plural
from autocode.jobs.model import JobStatus
from autocode.jobs.resource import Job

__all__ = ["JobView", "amount_text", "bytes_bar", "counting", "describe"]

_PAUSE: Final = 5.0
"""Seconds between two lines about mere progress where lines can't be redrawn."""


class JobView:
    """How far a job is, as it was persisted: one line redrawn, or now and then a new one.

    Where stderr is no terminal (or a dumb one), a line is printed at each change of state and every five
    seconds in between, so that a log stays readable.

    Args:
        screen: where to.
        waiting_for: what has to answer before anything is known of the job.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        screen: Screen,
        *,
        waiting_for: str = "the Prefect server",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = screen
        self._clock = clock
        self._bar = _bar(screen)
        self._line: TaskID = self._bar.add_task(f"waiting for {waiting_for}", total=None, amount="")
        self._state: tuple[object, ...] | None = None
        self._told: tuple[object, ...] | None = None
        self._due = 0.0
        self._error_at: str | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def waiting(self, seconds: float) -> None:
        """Say that the server is being started, for *seconds* so far."""
        self._bar.update(self._line, description="starting the Prefect server")
        if not self._screen.live and self._due == 0.0 and seconds >= 1:
            self._screen.note("Starting the Prefect server.")
            self._due = self._clock() + _PAUSE

    def update(self, job: Job) -> None:
        """Show the job; call it as often as you like."""
        self._tell_error(job)
        progress = job.progress
        measured = progress is not None and progress.unit == "bytes" and progress.total is not None
        self._bar.update(
            self._line,
            description=describe(job),
            completed=(progress.done or 0) if progress is not None and measured else 0,
            total=progress.total if progress is not None and measured else None,
            amount=amount_text(job),
        )
        if not self._screen.live:
            self._print(job)

    def _print(self, job: Job) -> None:
        state = (job.status, job.attempts, job.note)
        told = (*state, len(job.history), job.progress)
        now = self._clock()
        if told == self._told or job.status is JobStatus.COMPLETE or job.status is JobStatus.DEAD:
            return
        news = state != self._state and job.status is not JobStatus.QUEUED
        if not news and now < self._due:
            return
        self._state, self._told, self._due = state, told, now + _PAUSE
        self._screen.note(", ".join(part for part in (describe(job), amount_text(job)) if part))

    def _tell_error(self, job: Job) -> None:
        if job.error is None or job.error.at == self._error_at or job.status is JobStatus.DEAD:
            return
        self._error_at = job.error.at
        self._screen.note(f"Attempt {job.error.attempt} ended: {job.error.detail}")


def describe(job: Job) -> str:
    """Return in a few words what the job does: its state, its attempt and the steps that are done."""
    if job.status is JobStatus.RUNNING:
        done = f"{plural(len(job.history), 'step')} done"
        again = job.progress.retry_at if job.progress else None
        late = f", a step is tried again at {local_time(again)[11:]}" if again else ""
        return f"attempt {job.attempts}, {done}{late}"
    if job.status is JobStatus.RETRY:
        # as of the resource: what was due then is started as soon as Prefect's server answers
        if job.next_attempt_at is None or job.next_attempt_at <= job.as_of:
            return f"starting attempt {job.attempts + 1}"
        return f"attempt {job.attempts + 1} is due at {local_time(job.next_attempt_at)[11:]}"
    return "waiting for the first attempt" if job.status is JobStatus.QUEUED else str(job.status)


def amount_text(job: Job) -> str:
    """Return how much is done, of how much, and the share where both were persisted."""
    progress = job.progress
    if progress is None or progress.done is None or job.status is not JobStatus.RUNNING:
        return ""
    if progress.unit != "bytes":
        if job.history:
            # the scan is over, and nothing was measured since
            return ""
        total = "" if progress.total is None else f" of {progress.total:,}"
        return f"{progress.done:,}{total} {progress.unit or ''}".rstrip()
    if not progress.total:
        return bytes_text(progress.done)
    share = progress.done * 100 // progress.total
    return f"{share}%, {bytes_text(progress.done)} of {bytes_text(progress.total)}"


@contextmanager
def bytes_bar(screen: Screen, what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for the length of the block; give the function that moves it: bytes done, bytes in all."""
    bar = _bar(screen)
    with bar:
        line = bar.add_task(what, total=None, amount="")

        def move(done: int, total: int) -> None:
            bar.update(line, completed=done, total=total, amount=f"{bytes_text(done)} of {bytes_text(total)}")

        yield move


@contextmanager
def counting(screen: Screen, what: str, unit: str) -> Iterator[Callable[[int], None]]:
    """Show a count of unknown total for the length of the block; give the function that sets it."""
    with _bar(screen) as bar:
        line = bar.add_task(what, total=None, amount="")
        yield lambda count: bar.update(line, amount=f"{count:,} {unit}")


def _bar(screen: Screen) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        console=screen.err,
        transient=True,
        disable=not screen.live,
    )
