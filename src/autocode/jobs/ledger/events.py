"""Facts as events, and the cursors that order them.

Whoever changes a fact records an event without a cursor in the same transaction. The stamper later gives
consecutive cursors in one transaction, and readers see stamped rows only: database sequences don't follow
commit order, and a reader that trusts them loses events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database

__all__ = [
    "CHANNEL",
    "STAMPED",
    "Fact",
    "announce",
    "read_after",
    "record",
    "record_all",
    "record_progress",
    "reserve_cursors",
    "unstamped",
]

CHANNEL: Final = "autocode_jobs"
"""PostgreSQL's channel for wake-ups; see :mod:`autocode.jobs.ledger.wakeups`."""

STAMPED: Final = "stamped"
"""What a wake-up says where events got their cursors; empty where a fact was recorded."""


class Fact(StrEnum):
    """What happened to a job."""

    ENQUEUED = "enqueued"
    BEGUN = "begun"
    CHECKPOINT = "checkpoint"
    PROGRESS = "progress"
    ENDED = "ended"
    CANCEL_REQUESTED = "cancel-requested"
    RETRY_REQUESTED = "retry-requested"


def record(tx: sa.Connection, job_id: str, fact: Fact, detail: Mapping[str, Any], at: datetime) -> int:
    """Record an event without a cursor; return its id. The caller holds the job's lock."""
    result = tx.execute(
        sa.insert(t.events)
        .values(job_id=job_id, fact=fact.value, detail=dict(detail), at=at)
        .returning(t.events.c.id)
    )
    announce(tx)
    return int(result.scalar_one())


def record_all(
    tx: sa.Connection, job_id: str, fact: Fact, details: Sequence[Mapping[str, Any]], at: datetime
) -> None:
    """Record several events of one kind without cursors, in order. The caller holds the job's lock."""
    if details:
        rows = [{"job_id": job_id, "fact": fact.value, "detail": dict(each), "at": at} for each in details]
        tx.execute(sa.insert(t.events), rows)
        announce(tx)


def announce(tx: sa.Connection, what: str = "") -> None:
    """Wake those who listen once the transaction commits; equal announcements of one transaction are one.

    SQLite needs none: its file has a version that moves with each commit.
    """
    if tx.dialect.name == "postgresql":
        tx.execute(sa.select(sa.func.pg_notify(CHANNEL, what)))


def record_progress(tx: sa.Connection, job_id: str, at: datetime) -> None:
    """Record that progress moved, in place of a record that nobody was told of yet.

    The new one comes last, so that it isn't told before the facts that it followed.
    """
    tx.execute(
        sa.delete(t.events).where(
            t.events.c.job_id == job_id,
            t.events.c.fact == Fact.PROGRESS.value,
            t.events.c.cursor.is_(None),
        )
    )
    record(tx, job_id, Fact.PROGRESS, {}, at)


def unstamped(tx: sa.Connection, job_id: str, *, limit: int) -> Sequence[sa.Row[Any]]:
    """Return up to *limit* of the job's events that have no cursor yet, oldest first."""
    query = (
        sa.select(t.events)
        .where(t.events.c.job_id == job_id, t.events.c.cursor.is_(None))
        .order_by(t.events.c.id)
        .limit(limit)
    )
    return tx.execute(query).all()


def reserve_cursors(tx: sa.Connection, count: int) -> int:
    """Reserve *count* consecutive cursors and return the first; held until the transaction ends.

    The counter's row lock makes cursors follow commit order: the next stamper waits for this commit.
    """
    counter = (
        sa.update(t.counters)
        .where(t.counters.c.name == "cursor")
        .values(value=t.counters.c.value + count)
        .returning(t.counters.c.value)
    )
    announce(tx, STAMPED)
    return int(tx.execute(counter).scalar_one()) - count + 1


def read_after(db: Database, cursor: int, *, limit: int = 1000) -> Sequence[sa.Row[Any]]:
    """Return up to *limit* stamped events with a cursor above *cursor*, in order, without gaps."""
    query = sa.select(t.events).where(t.events.c.cursor > cursor).order_by(t.events.c.cursor).limit(limit)
    with db.read() as tx:
        return tx.execute(query).all()
