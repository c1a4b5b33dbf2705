"""What the ledger has about one job, read in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.attempts import attempt_holder
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.events import Fact
from autocode.jobs.testing.crashes.event_log import EventRow, read_events

__all__ = [
    "AttemptRow",
    "CheckpointRow",
    "Facts",
    "RecordedEffect",
    "StatusRow",
    "read_facts",
]


@dataclass(frozen=True, slots=True)
class StatusRow:
    """What people see of a job."""

    status: str
    reason: str | None
    possible_double_run: bool
    rev: int


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt; *outcome* is how it ended, *holder* who ran it, *error* what it left for people.

    *ended_event* is the number of the event that tells of its end.
    """

    n: int
    flow_run_id: str | None
    holder: str | None
    begun: bool
    ended: bool
    outcome: str | None
    run_closed: bool
    error: Mapping[str, Any] | None = None
    ended_event: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint: the label of its step, its object, and the attempt that made it."""

    seq: int
    label: str
    digest: str
    attempt: int
    reused: bool


@dataclass(frozen=True, slots=True)
class RecordedEffect:
    """An effect: the attempt that intended it first, and whether it is known to have happened.

    *late* is whether that attempt was over by then, as the wall clock has it.
    """

    key: str
    attempt: int
    done: bool
    late: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """The rows of one job, and the event log.

    Args:
        status: ``None`` where the ledger doesn't know the job.
        result: the committed result's digest.
        attempts: in order.
        checkpoints: in order.
        recorded: its effects.
        references: digest and holder of what the job, its result and its attempts hold.
        events: of all jobs, as :func:`read_events` has them.
        events_after: where the look at the event log began.
        checkpoint_events: the numbers of the events that tell of a checkpoint, by the checkpoint's number.
        result_attempt: the attempt that committed the result.
    """

    status: StatusRow | None
    result: str | None
    attempts: Sequence[AttemptRow]
    checkpoints: Sequence[CheckpointRow]
    recorded: Sequence[RecordedEffect]
    references: frozenset[tuple[str, str]]
    events: Sequence[EventRow]
    events_after: int = 0
    checkpoint_events: Mapping[int, Sequence[int]] = field(default_factory=dict)
    result_attempt: int | None = None


def read_facts(db: Database, job_id: str, *, events_after: int = 0) -> Facts:
    """Read a job's rows, and the events behind a cursor; the ledger isn't changed.

    Args:
        db: the ledger.
        job_id: the job.
        events_after: the cursor.

    Raises:
        LedgerUnavailable: the database can't be reached.
    """
    with db.read() as tx:
        status = tx.execute(sa.select(t.statuses).where(t.statuses.c.job_id == job_id)).first()
        query = sa.select(t.jobs.c.result_digest, t.jobs.c.result_attempt).where(t.jobs.c.job_id == job_id)
        result, made_by = tx.execute(query).first() or (None, None)
        return Facts(
            status=None
            if status is None
            else StatusRow(status.status, status.reason, status.possible_double_run, status.rev),
            result=result,
            attempts=_attempts(tx, job_id),
            checkpoints=_checkpoints(tx, job_id),
            recorded=_recorded(tx, job_id),
            references=_references(tx, job_id),
            checkpoint_events=_checkpoint_events(tx, job_id),
            events=read_events(tx, after=events_after),
            events_after=events_after,
            result_attempt=made_by,
        )


def _attempts(tx: sa.Connection, job_id: str) -> list[AttemptRow]:
    query = sa.select(t.attempts).where(t.attempts.c.job_id == job_id).order_by(t.attempts.c.n)
    return [
        AttemptRow(
            n=row.n,
            flow_run_id=row.flow_run_id,
            holder=row.holder,
            begun=row.begun_at is not None,
            ended=row.ended_at is not None,
            outcome=row.outcome,
            run_closed=row.run_closed,
            error=row.error,
            ended_event=row.ended_event,
        )
        for row in tx.execute(query)
    ]


def _checkpoints(tx: sa.Connection, job_id: str) -> list[CheckpointRow]:
    query = sa.select(t.checkpoints).where(t.checkpoints.c.job_id == job_id).order_by(t.checkpoints.c.seq)
    return [
        CheckpointRow(row.seq, row.step, row.digest, row.attempt, row.reused) for row in tx.execute(query)
    ]


def _checkpoint_events(tx: sa.Connection, job_id: str) -> dict[int, list[int]]:
    query = sa.select(t.events.c.id, t.events.c.detail).where(
        t.events.c.job_id == job_id, t.events.c.fact == Fact.CHECKPOINT
    )
    found: dict[int, list[int]] = {}
    for row in tx.execute(query):
        found.setdefault(row.detail["seq"], []).append(row.id)
    return found


def _recorded(tx: sa.Connection, job_id: str) -> list[RecordedEffect]:
    of_attempt = sa.and_(t.attempts.c.job_id == t.effects.c.job_id, t.attempts.c.n == t.effects.c.attempt)
    query = (
        sa.select(t.effects, t.attempts.c.ended_at)
        .join(t.attempts, of_attempt)
        .where(t.effects.c.job_id == job_id)
        .order_by(t.effects.c.key)
    )
    return [
        RecordedEffect(
            row.key,
            row.attempt,
            done=row.done_at is not None,
            late=row.ended_at is not None and row.intent_at > row.ended_at,
        )
        for row in tx.execute(query)
    ]


def _references(tx: sa.Connection, job_id: str) -> frozenset[tuple[str, str]]:
    prefix = attempt_holder(job_id, 0).removesuffix("0")
    query = sa.select(t.references.c.digest, t.references.c.holder).where(
        sa.or_(
            t.references.c.holder.in_([f"job:{job_id}", f"result:{job_id}"]),
            t.references.c.holder.startswith(prefix, autoescape=True),
        )
    )
    return frozenset(
        (row.digest, row.holder)
        for row in tx.execute(query)
        # another job's id may begin with this one's and a colon
        if not row.holder.startswith(prefix) or row.holder.removeprefix(prefix).isdecimal()
    )
