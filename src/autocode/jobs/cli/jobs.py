"""``autocode-jobs jobs``: what was asked for, and how it went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich.text import Text

from autocode.jobs.cli.desk import Wanted, at_desk
from autocode.jobs.cli.outlook import called_off_by, what_is_next
from autocode.jobs.cli.screen import Screen, bytes_text, local_time, plural, zone
from autocode.jobs.ledger.audit import CalledOff
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.resource import Job

__all__ = ["Wanted", "job_lines", "list_jobs", "show_job"]

_STYLES: Final = {
    JobStatus.QUEUED: "cyan",
    JobStatus.RUNNING: "blue",
    JobStatus.RETRY: "yellow",
    JobStatus.COMPLETE: "green",
    JobStatus.DEAD: "red",
}
_GAP: Final = "  "
_SHORT: Final = len("sha256:") + 12


def _status(job: Job) -> str:
    words = str(job.status) if job.reason is None else f"{job.status} ({job.reason})"
    return f"{words}, {job.note}" if job.note else words


_ENQUEUED: Final = "enqueued"

_COLUMNS: Final[dict[str, Callable[[Job], str]]] = {
    "job": lambda job: job.job_id,
    "status": _status,
    "result": lambda job: job.result.digest if job.result else "-",
    _ENQUEUED: lambda job: local_time(job.times.enqueued_at, seconds=False),
    "attempts": lambda job: str(job.attempts),
    # a list over HTTP comes without histories
    "steps": lambda job: str(job.checkpoint.seq if job.checkpoint else 0),
    "kind": lambda job: job.kind,
}
"""In the order of their worth: a narrow terminal shows the first ones, and never a cut one."""

_NEEDED: Final = 3


def list_jobs(limit: int, wanted: Wanted, *, json: bool) -> int:
    """List the newest *limit* jobs that fit."""
    screen = Screen(json_mode=json)
    with at_desk() as desk:
        found = desk.newest(limit, wanted)
    if json:
        for job in found:
            screen.emit(job)
        return 0
    if not found:
        none = "No jobs yet. Start one: autocode-jobs export PATH"
        screen.say(none if wanted == Wanted() else "No job fits.")
        return 0
    for line in job_lines(found, screen.width):
        screen.say(line)
    return 0


def show_job(job_id: str, *, json: bool) -> int:
    """Show one job."""
    screen = Screen(json_mode=json)
    with at_desk() as desk:
        job = desk.get(job_id)
        called_off = desk.called_off(job_id) if job.reason is DeadReason.CANCELLED else None
        served = desk.served
    if json:
        screen.emit(job)
    else:
        _show(screen, job, called_off, served=served)
    return 0


def job_lines(jobs: Sequence[Job], width: int | None) -> list[Text]:
    """Return a table of *jobs*, a line each below a line of titles.

    Args:
        jobs: at least one.
        width: columns of the terminal; a digest is shortened to what `artifacts get` still takes where it
            doesn't fit, and columns of less worth are left out. ``None``: everything is shown whole.
    """
    table = {title: [title, *(cell(job) for job in jobs)] for title, cell in _COLUMNS.items()}
    # once for all, since every line has the same; UTC+02:00 is as wide as what stands below it
    table[_ENQUEUED][0] += f" {zone()}"
    if width is not None and _width_of(table, list(table)) > width:
        table["result"] = [cell[:_SHORT] for cell in table["result"]]
    titles = list(table)
    while width is not None and len(titles) > _NEEDED and _width_of(table, titles) > width:
        titles.pop()
    lines = []
    for number in range(len(jobs) + 1):
        line = Text(style="dim" if number == 0 else "")
        for title in titles:
            style = _STYLES[jobs[number - 1].status] if title == "status" and number > 0 else ""
            cell = table[title][number]
            padding = "" if title == titles[-1] else " " * (_widest(table[title]) - len(cell)) + _GAP
            line.append(cell, style=style).append(padding)
        lines.append(line)
    return lines


def _width_of(table: dict[str, list[str]], titles: Sequence[str]) -> int:
    return sum(_widest(table[title]) for title in titles) + len(_GAP) * (len(titles) - 1)


def _widest(cells: Sequence[str]) -> int:
    return max(map(len, cells))


def _attempts(job: Job) -> str:
    if job.status is JobStatus.COMPLETE:
        return str(job.attempts)
    if job.status is JobStatus.DEAD:
        return f"{job.attempts}; no further one without a retry"
    return f"{job.attempts}; the job is dead after {job.max_attempts} that failed"


def _show(screen: Screen, job: Job, called_off: CalledOff | None, *, served: bool) -> None:
    screen.say(Text(job.job_id, style="bold").append("  ").append(_status(job), style=_STYLES[job.status]))
    screen.row("kind", job.kind)
    screen.row("attempts", _attempts(job))
    for label, moment, what in (
        ("enqueued", job.times.enqueued_at, ""),
        ("started", job.times.started_at, ""),
        ("saved", job.times.checkpoint_at, ", the newest checkpoint"),
        ("complete", job.times.completed_at, ""),
    ):
        screen.row(label, local_time(moment) + (what if moment else ""))
    if job.status is not JobStatus.COMPLETE:
        _show_progress(screen, job)
    if job.result:
        screen.row("result", job.result.digest)
        screen.row("get it", f"autocode-jobs artifacts get {job.result.digest[:_SHORT]}")
    if job.error:
        screen.row("error", f"{job.error.title}: {job.error.detail}", style="red", wrap=True)
    if job.reason is DeadReason.CANCELLED:
        screen.row("why", called_off_by(called_off), wrap=True)
    for label, step in what_is_next(job, served=served):
        screen.row(label, step, wrap=label == "next")
    screen.row("history", plural(len(job.history), "checkpoint"))
    for entry in job.history:
        digest = entry.digest if screen.width is None else entry.digest[:_SHORT]
        reused = "  (from an earlier job)" if entry.reused else ""
        screen.say(f"    {entry.seq:>4}  attempt {entry.attempt}  {digest}  {entry.step}{reused}")


def _show_progress(screen: Screen, job: Job) -> None:
    progress = job.progress
    if progress is None or progress.done is None:
        return
    if progress.unit == "bytes":
        done = bytes_text(progress.done)
        total = "" if progress.total is None else f" of {bytes_text(progress.total)}"
    else:
        done = f"{progress.done:,}"
        total = ("" if progress.total is None else f" of {progress.total:,}") + f" {progress.unit or ''}"
    screen.row("progress", f"{done}{total}, as of {local_time(progress.at)}")
