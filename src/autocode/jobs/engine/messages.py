"""What the closed run of an attempt says in Prefect: what happened, when, and where the job goes on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.ledger.queries import JobRows
from autocode.jobs.projection import Outcome

__all__ = ["closing_message"]

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
        return "The result was committed; the process died before it could say so."
    return f"{_HAPPENED[outcome]} at {_clock(attempt.ended_at)}; {_goes_on(rows, attempt)} (UTC)"


def _goes_on(rows: JobRows, attempt: sa.Row[Any]) -> str:
    job, latest = rows.job, rows.attempts[-1]
    if job.result_digest is not None:
        return "the job has its result"
    if job.cancel_requested_at is not None:
        return "no attempt follows"
    if latest.n > attempt.n and latest.ended_at is None:
        counted = sum(row.counts for row in rows.attempts)
        # attempts that were handed back use no budget, so there may be more of them than the budget
        last = latest.n - 1 + job.max_attempts - counted
        verb = "is under way since" if latest.begun_at is not None else "follows at"
        return f"attempt {latest.n} of {last} {verb} {_clock(latest.begun_at or latest.due_at)}"
    return f"the job is dead, to try again: autocode-jobs jobs retry {job.job_id}"


def _clock(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%H:%M:%S")
