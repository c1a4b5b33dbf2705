"""Small reads about many jobs at once, for those who show jobs to others."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database

__all__ = ["Leader", "epoch", "leaders", "revisions", "runs_of"]

Leader = tuple[str, str, int, int]
"""A role, who holds it, its term, and the counter by which the holder shows that it lives."""


def epoch(db: Database) -> str:
    """Return the name of this ledger, which no other ledger has; cursors mean something only with it."""
    with db.read() as tx:
        return str(tx.execute(sa.select(t.meta.c.value).where(t.meta.c.key == "epoch")).scalar_one())


def revisions(db: Database, job_ids: Collection[str]) -> dict[str, int]:
    """Return the revision of each of these jobs that exists."""
    query = sa.select(t.statuses.c.job_id, t.statuses.c.rev).where(t.statuses.c.job_id.in_(sorted(job_ids)))
    with db.read() as tx:
        return {row.job_id: row.rev for row in tx.execute(query)}


def runs_of(db: Database, attempts: Collection[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Return the flow runs of these (job, attempt) pairs, where they have one."""
    query = sa.select(t.attempts.c.job_id, t.attempts.c.n, t.attempts.c.flow_run_id).where(
        t.attempts.c.job_id.in_(sorted({job_id for job_id, _ in attempts})),
        t.attempts.c.n.in_(sorted({n for _, n in attempts})),
        t.attempts.c.flow_run_id.is_not(None),
    )
    wanted = set(attempts)
    with db.read() as tx:
        pairs = {(row.job_id, row.n): row.flow_run_id for row in tx.execute(query)}
    return {pair: run for pair, run in pairs.items() if pair in wanted}


def leaders(db: Database) -> list[Leader]:
    """Return who holds which role, as the database has it; whether they still live isn't said."""
    table = t.leaders.c
    query = sa.select(table.role, table.holder, table.term, table.renewals).order_by(table.role)
    with db.read() as tx:
        return [(row.role, row.holder, row.term, row.renewals) for row in tx.execute(query)]
