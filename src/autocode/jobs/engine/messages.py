"""What the closed run of an attempt says in Prefect: what happened, when, and where the job goes on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.ledger.queries import JobRows
from autocode.jobs.projection import Outcome

__all__ = ["closing_message", "completed_message", "failed_message", "what_follows"]

_HAPPENED: Final = {
    Outcome.FAILED: "attempt failed",
    Outcome.PERMANENT: "attempt failed for good",
    Outcome.CRASHED: "the process died",
    Outcome.LOST: "worker lost",
    Outcome.INTERRUPTED: "attempt handed back",
    Outcome.CANCELLED: "the job was cancelled",
    Outcome.TIMED_OUT: "time limit reached",
    Outcome.GONE: "the run could not be used",
}


def closing_message(rows: JobRows, attempt: sa.Row[Any]) -> str:
    """Return the message for the run of *attempt*, which has ended; pure. Times are in UTC.

    For instance: ``worker lost at 12:03:10; attempt 2 of 5 follows at 12:03:18 (UTC)``.
    """
    outcome = Outcome(attempt.outcome)
    if outcome is Outcome.COMPLETED:
        result = f"The result {rows.job.result_digest} was committed"
        return f"{result}; the process died before it could say so."
    happened = f"{_HAPPENED[outcome]} at {_clock(attempt.ended_at)}"
    then, has_time = _goes_on(rows, attempt)
    return f"{happened}; {then} (UTC)" if has_time else f"{happened} (UTC); {then}"


def completed_message(digest: str, *, done: int, reused: int) -> str:
    """Return the message of a run that committed the result *digest*; pure.

    Args:
        digest: the result's.
        done: how many steps this attempt did.
        reused: how many it found done before.
    """
    steps = f"{done} step{'' if done == 1 else 's'} done, {reused} reused"
    return f"Result {digest} committed; {steps}."


def failed_message(detail: str, rows: JobRows, attempt: sa.Row[Any]) -> str:
    """Return the message of a run that failed by itself; pure.

    Args:
        detail: why, in words that Prefect may keep: no path, nothing of a session.
        rows: the job.
        attempt: the run's attempt, which has ended.
    """
    stop = "" if detail.endswith((".", "!", "?")) else "."
    return f"{detail}{stop} {what_follows(rows, attempt)}"


def what_follows(rows: JobRows, attempt: sa.Row[Any]) -> str:
    """Return as a sentence how the job goes on after *attempt*, which has ended; pure.

    For instance: ``Attempt 2 of 5 follows at 12:03:18 (UTC).``
    """
    then, has_time = _goes_on(rows, attempt)
    then = then[:1].upper() + then[1:]
    # a full stop behind a command would be copied with it
    return f"{then} (UTC)." if has_time else then


def _goes_on(rows: JobRows, attempt: sa.Row[Any]) -> tuple[str, bool]:
    """Return how the job goes on, and whether a time is named."""
    job, latest = rows.job, rows.attempts[-1]
    if job.result_digest is not None:
        return "the job has its result", False
    if job.cancel_requested_at is not None:
        return "no attempt follows", False
    if latest.n > attempt.n and latest.ended_at is None:
        counted = sum(row.counts for row in rows.attempts)
        # attempts that were handed back use no budget, so there may be more of them than the budget
        last = latest.n - 1 + job.max_attempts - counted
        verb = "is under way since" if latest.begun_at is not None else "follows at"
        return f"attempt {latest.n} of {last} {verb} {_clock(latest.begun_at or latest.due_at)}", True
    return f"the job is dead, to try again: autocode-jobs jobs retry {job.job_id} --reason TEXT", False


def _clock(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%H:%M:%S")
