"""What is next for a job, by the state that it is in: never what its last error said of another one."""

from __future__ import annotations

from typing import Final

from autocode.jobs.cli.screen import local_time
from autocode.jobs.ledger.audit import CalledOff
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.resource import Job

__all__ = ["called_off_by", "retry_command", "what_is_next", "why_dead"]

_FOR_THE_LIVING: Final = frozenset(
    {"attempt-lost", "attempt-ended", "attempt-not-restored", "cancel-unanswered", "run-cancelled"}
)
"""Types of errors whose hint speaks of a job that goes on."""

_LOOK: Final = "Find out what took the process down (memory, native code, the machine), then retry the job."


def retry_command(job_id: str) -> str:
    """Return the command that retries a job; its reason is left to whoever gives it."""
    return f"autocode-jobs jobs retry {job_id} --reason TEXT"


def called_off_by(called_off: CalledOff | None) -> str:
    """Return as a sentence who called the job off and why, as far as that is known here."""
    if called_off is None:
        return "It was called off."
    reason = f": “{called_off.reason}”" if called_off.reason else ""
    return f"{called_off.actor} called it off{reason}."


def why_dead(job: Job, called_off: CalledOff | None) -> tuple[str, str]:
    """Return why a dead job is dead, and what to do next; each in a sentence or two."""
    if job.reason is DeadReason.CANCELLED:
        return called_off_by(called_off), f"If that was a mistake: {retry_command(job.job_id)}"
    if job.error is None:
        return "No attempt left an error.", f"autocode-jobs jobs explain {job.job_id}"
    return job.error.detail, _LOOK if job.error.type in _FOR_THE_LIVING else job.error.hint


def what_is_next(job: Job, *, served: bool) -> list[tuple[str, str]]:
    """Return labels and what to do, or what happens by itself; nothing for a job that is complete.

    Args:
        job: the job.
        served: whether a service runs the jobs of its data folder.
    """
    command = retry_command(job.job_id)
    if job.status is JobStatus.DEAD:
        if job.reason is DeadReason.CANCELLED:
            return [("next", "Nothing to do, if it was meant."), ("retry", command)]
        _, step = why_dead(job, None)
        if job.reason is DeadReason.PERMANENT:
            # the same input meets the same error, unless the cause lies in what surrounds it
            return [("next", step), ("retry", f"won't help before the cause is gone; then: {command}")]
        return [("next", step), ("retry", command)]
    if job.status is JobStatus.RETRY:
        who = "the service runs it then" if served else "the same command runs it, and so does a service"
        return [("next", f"due {local_time(job.next_attempt_at)}; {who}")]
    if job.status is JobStatus.QUEUED:
        waits = "a worker of the service takes it" if served else "nobody runs it now; the same command does"
        return [("next", waits)]
    return []
