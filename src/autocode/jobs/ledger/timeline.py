"""What happened to a job, in time order: the facts behind ``jobs explain``, typed, without prose."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

import sqlalchemy as sa

from autocode.jobs.clock import parse_time
from autocode.jobs.ledger import delivery_desk
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.events import Fact
from autocode.jobs.ledger.queries import JobRows, load, resource
from autocode.jobs.ledger.subscriptions import place
from autocode.jobs.notification_resource import DeliveryState
from autocode.jobs.projection import Outcome
from autocode.jobs.resource import Job, Problem

__all__ = [
    "Asked",
    "Begun",
    "CancelSeen",
    "Due",
    "Ended",
    "Enqueued",
    "Entry",
    "Notified",
    "ResultCommitted",
    "ResultExpired",
    "ResultVerified",
    "StepRetry",
    "StepsDone",
    "Timeline",
    "explain",
]


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The job was accepted."""

    at: datetime
    origin: str
    session_id: str | None


@dataclass(frozen=True, slots=True)
class Due:
    """An attempt was, or will be, due; ``flow_run_id`` is its run in Prefect, once it has one."""

    at: datetime
    attempt: int
    flow_run_id: str | None


@dataclass(frozen=True, slots=True)
class Begun:
    """A process began an attempt and held its fence."""

    at: datetime
    attempt: int
    holder: str
    flow_run_id: str


@dataclass(frozen=True, slots=True)
class StepsDone:
    """Checkpoints of one attempt, together: ``at`` is the last one's time and ``since`` the first one's.

    A step that an attempt found in its own job's history leaves no checkpoint again, so it isn't among them.
    """

    at: datetime
    since: datetime
    attempt: int
    new: int
    reused: int
    first_step: str
    last_step: str


@dataclass(frozen=True, slots=True)
class StepRetry:
    """A step failed and waited to try again at ``retry_at``, as far as somebody looked while it did."""

    at: datetime
    retry_at: datetime


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt ended; ``counts``: it used up budget."""

    at: datetime
    attempt: int
    outcome: Outcome
    counts: bool
    error: Problem | None
    flow_run_id: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody asked for the job, a retry or a cancel; ``data`` has what the audit keeps beside it."""

    at: datetime
    action: str
    actor: str
    reason: str
    outcome: str
    data: dict[str, Any]

    @property
    def accepted(self) -> bool:
        """Whether it was done."""
        return self.outcome.startswith("accepted")


@dataclass(frozen=True, slots=True)
class CancelSeen:
    """The job was called off by somebody who isn't in the audit: a command on this home."""

    at: datetime


@dataclass(frozen=True, slots=True)
class ResultCommitted:
    """An attempt committed the result; one that was taken back again isn't here, its attempt failed."""

    at: datetime
    attempt: int
    digest: str
    size: int
    media_type: str


@dataclass(frozen=True, slots=True)
class ResultVerified:
    """The result was found in the store."""

    at: datetime
    digest: str


@dataclass(frozen=True, slots=True)
class ResultExpired:
    """Retention removed the result."""

    at: datetime
    digest: str


@dataclass(frozen=True, slots=True)
class Notified:
    """Somebody was told how the job ended, or nobody could be: then ``error`` says why."""

    at: datetime
    delivery_id: str
    channel: str
    place: str
    attempts: int
    done: bool
    error: str | None


Entry: TypeAlias = (
    Enqueued
    | Asked
    | CancelSeen
    | Due
    | Begun
    | StepRetry
    | StepsDone
    | ResultCommitted
    | Ended
    | ResultVerified
    | ResultExpired
    | Notified
)

_ORDER: Final[Sequence[type]] = Entry.__args__
"""What comes first among facts of one moment, which one transaction may have made: causes, then effects."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A job as it is now, and how it came to be so; ``restored_at``: when its ledger was made of a backup."""

    job: Job
    entries: tuple[Entry, ...]
    restored_at: datetime | None = None

    def is_restored(self, attempt: int) -> bool:
        """Say whether the attempt is older than the restore that made this ledger, and so is its run."""
        seen = [
            each.at for each in self.entries if isinstance(each, Begun | Ended) and each.attempt == attempt
        ]
        return self.restored_at is not None and bool(seen) and min(seen) <= self.restored_at


def explain(db: Database, job_id: str) -> Timeline:
    """Return everything that the ledger knows of how the job went, as of one moment, in time order.

    Raises:
        JobNotFound: no job has this id.
    """
    with db.read() as tx:
        rows = load(tx, job_id)
        found = [
            Enqueued(rows.job.enqueued_at, rows.job.origin, rows.job.session_id),
            *_attempts(rows),
            *_steps(rows),
            *_result(rows.job),
            *_asked(tx, job_id),
            *_unaudited_cancels(tx, job_id),
            *_step_retries(tx, rows.job),
            *_notified(tx, job_id),
        ]
        restored = tx.execute(
            sa.select(t.audit.c.at)
            .where(t.audit.c.action == "restore")
            .order_by(t.audit.c.seq.desc())
            .limit(1)
        ).scalar()
    job = resource(rows, rows.status._mapping)  # noqa: SLF001 - Row._mapping is SQLAlchemy's documented name
    return Timeline(job, tuple(sorted(found, key=_place)), restored)


def _place(entry: Entry) -> tuple[datetime, int, int]:
    """Order by time; within one moment by attempt, since the end of one plans the next."""
    last = isinstance(entry, ResultVerified | ResultExpired | Notified)
    attempt = sys.maxsize if last else getattr(entry, "attempt", 0)
    return entry.at, attempt, _ORDER.index(type(entry))


def _attempts(rows: JobRows) -> Iterator[Entry]:
    for row in rows.attempts:
        yield Due(row.due_at, row.n, row.flow_run_id)
        if row.begun_at is not None:
            yield Begun(row.begun_at, row.n, row.holder, row.flow_run_id)
        if row.ended_at is not None:
            error = None if row.error is None else Problem(**row.error)
            yield Ended(row.ended_at, row.n, Outcome(row.outcome), bool(row.counts), error, row.flow_run_id)


def _steps(rows: JobRows) -> Iterator[Entry]:
    by_attempt: dict[int, list[sa.Row[Any]]] = {}
    for _, row in sorted(rows.checkpoints.items()):
        by_attempt.setdefault(row.attempt, []).append(row)
    for attempt, done in by_attempt.items():
        reused = sum(row.reused for row in done)
        yield StepsDone(
            at=done[-1].at,
            since=done[0].at,
            attempt=attempt,
            new=len(done) - reused,
            reused=reused,
            first_step=done[0].step,
            last_step=done[-1].step,
        )


def _result(job: sa.Row[Any]) -> Iterator[Entry]:
    digest = job.result_digest
    if digest is None:
        return
    yield ResultCommitted(job.result_at, job.result_attempt, digest, job.result_size, job.result_media_type)
    if job.result_verified_at is not None:
        yield ResultVerified(job.result_verified_at, digest)
    if job.result_expired_at is not None:
        yield ResultExpired(job.result_expired_at, digest)


def _asked(tx: sa.Connection, job_id: str) -> Iterator[Entry]:
    query = sa.select(t.audit).where(t.audit.c.target == job_id).order_by(t.audit.c.seq)
    for row in tx.execute(query):
        yield Asked(row.at, row.action, row.actor, row.reason, row.outcome, row.data)


def _unaudited_cancels(tx: sa.Connection, job_id: str) -> Iterator[Entry]:
    query = sa.select(t.events.c.at, t.events.c.detail).where(
        t.events.c.job_id == job_id, t.events.c.fact == Fact.CANCEL_REQUESTED.value
    )
    for row in tx.execute(query.order_by(t.events.c.id)):
        if "actor" not in row.detail:
            yield CancelSeen(row.at)


def _notified(tx: sa.Connection, job_id: str) -> Iterator[Entry]:
    for row in delivery_desk.of_job(tx, job_id):
        yield Notified(
            at=row.ended_at,
            delivery_id=row.delivery_id,
            channel=row.channel,
            place=place(row.channel, row.target),
            attempts=row.attempts,
            done=row.state == DeliveryState.DONE,
            error=row.last_error,
        )


def _step_retries(tx: sa.Connection, job: sa.Row[Any]) -> Iterator[Entry]:
    """Find the pauses that were told of, and the one that may be waited for now."""
    seen: set[datetime] = set()
    waits = sa.type_coerce(t.events.c.data, sa.Text).like('%"retry_at":"%')
    query = sa.select(t.events.c.at, t.events.c.data).where(
        t.events.c.job_id == job.job_id, t.events.c.fact == Fact.PROGRESS.value, waits
    )
    told = [(row.at, parse_time(row.data["progress"]["retry_at"])) for row in tx.execute(query)]
    for at, retry_at in (*told, (job.progress_at, job.progress_retry_at)):
        if retry_at is not None and retry_at not in seen:
            seen.add(retry_at)
            yield StepRetry(at, retry_at)
