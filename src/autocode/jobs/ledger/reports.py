"""What an attempt that is over left, as of one moment: for whoever tells people about it elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.memo import Produced
from autocode.jobs.ledger.queries import JobRows, load

__all__ = ["NEWEST", "AttemptReport", "attempt_report"]

NEWEST: Final = 100
"""How many checkpoints are listed at most: a job may have a million, a page is for reading."""


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """One attempt that is over, and the checkpoints that the job had by its end.

    Args:
        rows: the job and its attempts.
        attempt: the attempt's row.
        newest: its newest checkpoints and those of earlier attempts, :data:`NEWEST` at most, in order.
        new: how many the attempt made.
        reused: how many it took over from what other jobs, or this one, had made before.
        earlier: how many are from earlier attempts.
    """

    rows: JobRows
    attempt: sa.Row[Any]
    newest: Sequence[sa.Row[Any]]
    new: int
    reused: int
    earlier: int

    @property
    def result(self) -> Produced | None:
        """The job's result, where this attempt committed it and it is still there."""
        job = self.rows.job
        if job.result_attempt != self.attempt.n or job.result_expired_at is not None:
            return None
        return Produced(job.result_digest, job.result_size, job.result_media_type)


def attempt_report(db: Database, job_id: str, n: int) -> AttemptReport:
    """Return the report of attempt *n*; however many checkpoints there are, few rows are read.

    Raises:
        JobNotFound: no job has this id.
        LookupError: the job has no attempt *n*.
    """
    upto = (t.checkpoints.c.job_id == job_id, t.checkpoints.c.attempt <= n)
    made = (t.checkpoints.c.attempt, t.checkpoints.c.reused)
    counts = sa.select(*made, sa.func.count()).where(*upto).group_by(*made)
    newest = sa.select(t.checkpoints).where(*upto).order_by(t.checkpoints.c.seq.desc()).limit(NEWEST)
    with db.read() as tx:
        rows = load(tx, job_id, history=False)
        counted = [(by == n, bool(reused), int(many)) for by, reused, many in tx.execute(counts)]
        listed = list(reversed(tx.execute(newest).all()))
    attempt = next((row for row in rows.attempts if row.n == n), None)
    if attempt is None:
        raise LookupError(f"job {job_id} has no attempt {n}")
    return AttemptReport(
        rows=rows,
        attempt=attempt,
        newest=listed,
        new=sum(many for mine, reused, many in counted if mine and not reused),
        reused=sum(many for mine, reused, many in counted if mine and reused),
        earlier=sum(many for mine, _, many in counted if not mine),
    )
