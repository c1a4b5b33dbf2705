"""Effects that must not repeat: intent before the call, the result after it.

The window that stays is between the call and its result: an effect found as intent only may or may not have
happened. The receiver gets the same idempotency key again, and one that knows the key repeats nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from autocode.jobs import crash
from autocode.jobs.errors import JobCancelled
from autocode.jobs.ledger import jobs
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.attempts import Attempt, hold
from autocode.jobs.ledger.database import Database, insert_missing

__all__ = ["Effect", "finish_effect", "intend"]


@dataclass(frozen=True, slots=True)
class Effect:
    """What is known of an effect: new, intended before (it may have happened), or done."""

    key: str
    new: bool
    done: bool
    result: Any


def intend(db: Database, attempt: Attempt, key: str) -> Effect:
    """Record the intent to perform the effect *key*, or return what is known of it. Atomic.

    Raises:
        AttemptEnded: the attempt was ended; the effect must not be performed.
        JobCancelled: the job was called off; the effect must not be performed.
    """
    crash.at("effect.before")
    with db.write() as tx:
        jobs.lock(tx, attempt.job_id)
        now = db.clock.now()
        if hold(tx, attempt, now):
            raise JobCancelled(f"Job {attempt.job_id} was called off.")
        new = insert_missing(tx, t.effects, key=key, job_id=attempt.job_id, attempt=attempt.n, intent_at=now)
        row = tx.execute(sa.select(t.effects).where(t.effects.c.key == key)).one()
    return Effect(key, new, row.done_at is not None, row.result)


def finish_effect(db: Database, attempt: Attempt, key: str, result: Any) -> None:
    """Record that the effect happened, with its *result* (a JSON value). Idempotent.

    It is recorded also when the attempt was ended meanwhile: that the world changed is true all the same.
    """
    with db.write() as tx:
        jobs.lock(tx, attempt.job_id)
        tx.execute(
            sa.update(t.effects)
            .where(t.effects.c.key == key, t.effects.c.done_at.is_(None))
            .values(done_at=db.clock.now(), result=result)
        )
