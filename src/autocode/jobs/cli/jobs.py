"""``autocode-jobs jobs``: what was asked for, and how it went."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from autocode.jobs.cli.runtime import opened
from autocode.jobs.cli.screen import Screen, bytes_text, local_time, plural
from autocode.jobs.engine.reconcile import sweep_ledger
from autocode.jobs.ledger import queries
from autocode.jobs.model import JobStatus
from autocode.jobs.resource import Job

__all__ = ["jobs_app"]

jobs_app = App(name="jobs", help="Show jobs: what was asked for, and how it went.")

_STYLES = {
    JobStatus.QUEUED: "cyan",
    JobStatus.RUNNING: "blue",
    JobStatus.RETRY: "yellow",
    JobStatus.COMPLETE: "green",
    JobStatus.DEAD: "red",
}

JsonFlag = Annotated[bool, Parameter(negative="", help="Print JSON, one job a line.")]


@jobs_app.command(name="list")
def list_jobs(
    *,
    limit: Annotated[int, Parameter(help="At most so many, the newest first.")] = 50,
    json: JsonFlag = False,
) -> int:
    """List the newest jobs.

    Examples:
        autocode-jobs jobs list

        autocode-jobs jobs list --json --limit 1000
    """
    screen = Screen(json_mode=json)
    with opened() as system:
        sweep_ledger(system)
        found = queries.list_jobs(system.db, limit=limit)
    if json:
        for job in found:
            screen.emit(job)
        return 0
    if not found:
        screen.say("No jobs yet. Start one: autocode-jobs export PATH")
        return 0
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("job", "kind", "status", "attempts", "steps", "enqueued", "result"):
        table.add_column(title, no_wrap=True)
    for job in found:
        table.add_row(
            job.job_id,
            job.kind,
            _status(job),
            f"{job.attempts}/{job.max_attempts}",
            str(len(job.history)),
            local_time(job.times.enqueued_at),
            job.result.digest[:19] + "…" if job.result else "",
        )
    screen.out.print(table)
    return 0


@jobs_app.command(name="show")
def show_job(job_id: Annotated[str, Parameter(name="ID")], /, *, json: JsonFlag = False) -> int:
    """Show one job: its status, times, checkpoints, result and last error.

    Examples:
        autocode-jobs jobs show export-20260105-101500-3f2a1c
    """
    screen = Screen(json_mode=json)
    with opened() as system:
        sweep_ledger(system)
        job = queries.get(system.db, job_id)
    if json:
        screen.emit(job)
    else:
        _show(screen, job)
    return 0


def _show(screen: Screen, job: Job) -> None:
    screen.out.print(Text(job.job_id, style="bold").append("  ").append(_status(job)))
    screen.row("kind", job.kind)
    screen.row("attempts", f"{job.attempts} of {job.max_attempts}")
    if job.next_attempt_at:
        screen.row("next", f"due {local_time(job.next_attempt_at)}; the same command runs it")
    for label, moment in (
        ("enqueued", job.times.enqueued_at),
        ("started", job.times.started_at),
        ("checkpoint", job.times.checkpoint_at),
        ("completed", job.times.completed_at),
    ):
        screen.row(label, local_time(moment))
    if job.progress and job.progress.done is not None and job.status is not JobStatus.COMPLETE:
        total = "" if job.progress.total is None else f" of {job.progress.total:,}"
        said = f"as of {local_time(job.progress.at)}"
        screen.row("progress", f"{job.progress.done:,}{total} {job.progress.unit}, {said}")
    if job.result:
        screen.row("result", f"{job.result.digest} ({bytes_text(job.result.size)})")
    if job.error:
        screen.row("error", f"{job.error.title}: {job.error.detail}", style="red")
        screen.row("next step", job.error.hint)
    screen.row("history", plural(len(job.history), "checkpoint"))
    for entry in job.history:
        again = "  reused from an earlier job" if entry.reused else ""
        screen.out.print(
            Text(f"    {entry.seq:>4}  attempt {entry.attempt}  {entry.digest[:19]}…  {entry.step}{again}")
        )


def _status(job: Job) -> Text:
    words = str(job.status) if job.reason is None else f"{job.status} ({job.reason})"
    if job.note:
        words += f", {job.note}"
    return Text(words, style=_STYLES[job.status])
