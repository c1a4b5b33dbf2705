"""Many dead letters at once: which ones are meant, as of one moment, and what a retry of them may repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import sqlalchemy as sa

from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import listing, scopes
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.listing import Filter
from autocode.jobs.ledger.queries import MANY
from autocode.jobs.model import DeadReason, JobStatus

__all__ = ["DEAD_LETTERS", "MOST_JOBS", "Standing", "dead_letters", "named"]

MOST_JOBS: Final = listing.LARGEST_PAGE
"""How many jobs one call may be about."""

DEAD_LETTERS: Final = frozenset(DeadReason) - {DeadReason.CANCELLED}
"""Why a dead letter may be dead: somebody meant that a cancelled job ends."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands that may be retried.

    Args:
        job_id: the job.
        rev: the revision that the rest belongs to; ``None``: there is no such job, for this reader.
        status: its state.
        moves: something happened to it that nobody was told of yet, so that it is about to be another.
        effects_open: keys of effects that were intended and perhaps happened; they may happen again.
    """

    job_id: str
    rev: int | None
    status: JobStatus | None
    moves: bool = False
    effects_open: tuple[str, ...] = ()


def dead_letters(db: Database, chosen: Filter) -> tuple[Standing, ...]:
    """Return the dead letters that a filter leaves in, newest first. Reads only.

    Args:
        db: the ledger.
        chosen: the filter; cancelled jobs are meant only if it asks for that reason.

    Raises:
        UsageError: it leaves in more than :data:`MOST_JOBS`.
    """
    reasons = chosen.reason or DEAD_LETTERS
    narrowed = replace(chosen, status=frozenset({JobStatus.DEAD}), reason=reasons)
    found = listing.page(db, narrowed, size=MOST_JOBS)
    if found.next_token is not None:
        total = listing.counts(db, narrowed).total
        raise UsageError(
            f"The filter means {total:,} dead letters, and one call is about {MOST_JOBS} at most.",
            hint="Narrow it by kind, session_id, reason or q, or name the jobs.",
        )
    return named(db, [job.job_id for job in found.jobs], chosen.sessions)


def named(db: Database, job_ids: Sequence[str], sessions: frozenset[str] | None) -> tuple[Standing, ...]:
    """Return how these jobs stand at one moment, in the order given. Reads only.

    Args:
        db: the ledger.
        job_ids: the jobs; for one that doesn't exist, or that the reader may not see, nothing is said.
        sessions: what the reader may see, by the rule of ``ledger.scopes``.
    """
    seen: dict[str, Standing] = {}
    with db.read() as tx:
        for first in range(0, len(job_ids), MANY):
            seen |= _some(tx, job_ids[first : first + MANY], sessions)
    return tuple(seen.get(each, Standing(each, None, None)) for each in job_ids)


def _some(tx: sa.Connection, job_ids: Sequence[str], sessions: frozenset[str] | None) -> dict[str, Standing]:
    jobs = sa.select(t.jobs.c.job_id, t.statuses.c.rev, t.statuses.c.status).join(t.statuses)
    untold = sa.select(t.events.c.job_id).where(t.events.c.job_id.in_(job_ids), t.events.c.cursor.is_(None))
    moving = set(tx.execute(untold).scalars())
    effects = sa.select(t.effects.c.job_id, t.effects.c.key).where(
        t.effects.c.job_id.in_(job_ids), t.effects.c.done_at.is_(None)
    )
    keys: dict[str, tuple[str, ...]] = {}
    for row in tx.execute(effects.order_by(t.effects.c.intent_at, t.effects.c.key)):
        keys[row.job_id] = (*keys.get(row.job_id, ()), row.key)
    found = tx.execute(jobs.where(t.jobs.c.job_id.in_(job_ids), *scopes.conditions(sessions)))
    return {
        row.job_id: Standing(
            row.job_id, row.rev, JobStatus(row.status), row.job_id in moving, keys.get(row.job_id, ())
        )
        for row in found
    }
