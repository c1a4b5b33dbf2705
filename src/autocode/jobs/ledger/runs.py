"""Attempts by their flow run: what a worker asks about the runs that it executes, and which are open."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.projection import Outcome

__all__ = ["Ending", "RunAttempt", "attempt_of_run", "endings", "open_holders"]


@dataclass(frozen=True, slots=True)
class RunAttempt:
    """The attempt that a flow run executes.

    Args:
        job_id: the job.
        n: which attempt.
        token: proof of who began it; ``None`` before.
        holder: who runs it, or picked it.
        begun: whether it was claimed.
        outcome: how it ended; ``None`` while it isn't over.
        cancel_requested: whether somebody asked for the job to be cancelled.
    """

    job_id: str
    n: int
    token: str | None
    holder: str | None
    begun: bool
    outcome: Outcome | None
    cancel_requested: bool


class Ending(NamedTuple):
    """How an attempt ended, and the holder that had begun it, if one had."""

    outcome: Outcome
    holder: str | None


def endings(db: Database, flow_run_ids: Collection[str]) -> Mapping[str, Ending]:
    """Return how the attempts of these runs ended; runs without an attempt that is over are left out.

    Raises:
        LedgerUnavailable: the database can't be reached.
    """
    query = sa.select(t.attempts.c.flow_run_id, t.attempts.c.outcome, t.attempts.c.holder).where(
        t.attempts.c.flow_run_id.in_(list(flow_run_ids)), t.attempts.c.ended_at.is_not(None)
    )
    with db.read() as tx:
        return {row.flow_run_id: Ending(Outcome(row.outcome), row.holder) for row in tx.execute(query)}


def attempt_of_run(
    db: Database, flow_run_id: str, *, named: tuple[str, int] | None = None
) -> RunAttempt | None:
    """Return the attempt that a run executes, or ``None`` where the run is no job's.

    Args:
        db: the ledger.
        flow_run_id: the run.
        named: the job and the attempt that the run's key names, for the moment before the run is noted.

    Raises:
        LedgerUnavailable: the database can't be reached.
    """
    wanted = t.attempts.c.flow_run_id == flow_run_id
    if named is not None:
        job_id, n = named
        mine = sa.and_(t.attempts.c.job_id == job_id, t.attempts.c.n == n)
        wanted = sa.or_(wanted, sa.and_(mine, t.attempts.c.flow_run_id.is_(None)))
    query = (
        sa.select(t.attempts, t.jobs.c.cancel_requested_at)
        .join(t.jobs, t.jobs.c.job_id == t.attempts.c.job_id)
        .where(wanted)
    )
    with db.read() as tx:
        row = tx.execute(query).first()
    if row is None:
        return None
    return RunAttempt(
        job_id=row.job_id,
        n=row.n,
        token=row.token,
        holder=row.holder,
        begun=row.begun_at is not None,
        outcome=None if row.ended_at is None else Outcome(row.outcome),
        cancel_requested=row.cancel_requested_at is not None,
    )


def open_holders(db: Database) -> set[str]:
    """Return the holders of every attempt that is not over, or whose run isn't closed in Prefect yet."""
    query = sa.select(t.attempts.c.holder).where(
        t.attempts.c.holder.is_not(None),
        sa.or_(t.attempts.c.ended_at.is_(None), t.attempts.c.run_closed.is_(False)),
    )
    with db.read() as tx:
        return set(tx.execute(query).scalars())
