"""The manual retry: the one way out of ``dead``, asked for by a person and written into the audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, get_args

import sqlalchemy as sa

from autocode.jobs.errors import JobNotDead, RevisionMoved, UsageError
from autocode.jobs.ledger import attempts as attempt_rows
from autocode.jobs.ledger import audit, jobs
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.events import Fact, record
from autocode.jobs.ledger.queries import entry, load
from autocode.jobs.ledger.words import required
from autocode.jobs.model import JobStatus
from autocode.jobs.projection import Outcome, counted_failures
from autocode.jobs.resource import HistoryEntry

__all__ = ["ATTEMPTS", "MOST_ATTEMPTS", "RetryPreview", "Start", "preview", "request_retry"]

Start = Literal["checkpoint", "start"]
"""Where a retry begins: with what is remembered, or with nothing."""

ATTEMPTS: Final = 3
"""How many further attempts a retry allows where the caller doesn't say."""

MOST_ATTEMPTS: Final = 100
"""How many further attempts one retry may ask for."""


@dataclass(frozen=True, slots=True)
class RetryPreview:
    """What a retry would do, as far as the ledger knows; the store is asked when it is done.

    Args:
        job_id: the job.
        rev: the revision that this belongs to, to be sent along with the retry.
        dead: whether a retry would be accepted now.
        reused: checkpoints that a retry from the checkpoint takes as they are, by their number. A retry from
            the start does all of them again.
        steps: what is known to be left: steps that failed, and those whose checkpoint isn't remembered any
            more. Steps that were never reached aren't known here.
        effects_done: keys of effects that are recorded as done; no retry repeats them.
        effects_open: keys of effects that were intended and perhaps happened; they may happen again.
        max_attempts_after: the job's budget after the retry.
    """

    job_id: str
    rev: int
    dead: bool
    reused: tuple[HistoryEntry, ...]
    steps: tuple[str, ...]
    effects_done: tuple[str, ...]
    effects_open: tuple[str, ...]
    max_attempts_after: int


@dataclass(frozen=True, slots=True)
class _Asked:
    job_id: str
    actor: str
    reason: str
    start: Start
    expected_rev: int | None
    attempts: int
    request_id: str | None


def request_retry(
    db: Database,
    job_id: str,
    *,
    actor: str,
    reason: str,
    start: Start = "checkpoint",
    expected_rev: int | None = None,
    attempts: int = ATTEMPTS,
    request_id: str | None = None,
) -> None:
    """Give a dead job further attempts, the first of them due at once: one transaction, audit included.

    Of several that ask at once one is heard and the others are told so. Every request about a job that
    exists leaves one entry in the audit: ``accepted``, or ``refused: <type of the error>``. Not idempotent:
    who doesn't hear the answer reads the job again.

    Args:
        db: the ledger.
        job_id: the job; one that was called off may be retried as well.
        actor: who asks, as the caller proved it.
        reason: why, in the actor's own words.
        start: ``checkpoint``: what is remembered is reused; ``start``: every step is done again. Effects that
            are recorded as done aren't repeated in either case.
        expected_rev: the revision that the actor saw; ``None``: any.
        attempts: how many more may fail before the job is dead again.
        request_id: the request that asks, for the audit.

    Raises:
        JobNotDead: the job isn't dead, or was told to be before the latest that happened to it.
        JobNotFound: no job has this id.
        RevisionMoved: the job isn't any more as the actor saw it.
        UsageError: no reason, no actor, an unknown *start* or a senseless number of attempts; nothing was
            written, not even to the audit.
    """
    if start not in get_args(Start):
        raise UsageError(
            f"A retry can't start from {start!r}.", hint=f"Choose from: {', '.join(get_args(Start))}."
        )
    if not 1 <= attempts <= MOST_ATTEMPTS:
        raise UsageError(f"{attempts} further attempts make no sense.", hint=f"Ask for 1 to {MOST_ATTEMPTS}.")
    actor, reason = required(actor, "actor"), required(reason, "reason")
    asked = _Asked(job_id, actor, reason, start, expected_rev, attempts, request_id)
    with db.write() as tx:
        jobs.lock(tx, job_id)
        now = db.clock.now()
        status = tx.execute(sa.select(t.statuses).where(t.statuses.c.job_id == job_id)).one()
        refusal = _refusal(tx, asked, status)
        before = {"status": status.status, "rev": status.rev, "max_attempts": status.max_attempts}
        if refusal is None:
            after = _retry(tx, asked, now)
            _audit(tx, asked, "accepted", now, before=before, after=after)
        else:
            _audit(tx, asked, f"refused: {refusal.type}", now, before=before)
    if refusal is not None:
        raise refusal


def preview(db: Database, job_id: str, *, attempts: int = ATTEMPTS) -> RetryPreview:
    """Say what a retry of the job would do. Reads only.

    Raises:
        JobNotFound: no job has this id.
    """
    with db.read() as tx:
        rows = load(tx, job_id)
        remembered = _remembered(tx, rows.job)
        untold = _untold(tx, job_id)
        effects = tx.execute(
            sa.select(t.effects).where(t.effects.c.job_id == job_id).order_by(t.effects.c.intent_at)
        ).all()
    newest = {row.step: row for row in rows.checkpoints.values()}
    reused = sorted((row for row in newest.values() if row.digest in remembered), key=lambda row: row.seq)
    failed = [row.error["step"] for row in rows.attempts if row.error is not None and row.error["step"]]
    undone = [row.step for row in newest.values() if row.digest not in remembered]
    return RetryPreview(
        job_id=job_id,
        rev=rows.status.rev,
        dead=rows.status.status == JobStatus.DEAD.value and not untold,
        reused=tuple(entry(row) for row in reused),
        steps=tuple(dict.fromkeys([*undone, *(step for step in failed if step not in newest)])),
        effects_done=tuple(row.key for row in effects if row.done_at is not None),
        effects_open=tuple(row.key for row in effects if row.done_at is None),
        max_attempts_after=_spent(rows.attempts) + attempts,
    )


def _remembered(tx: sa.Connection, job: sa.Row[Any]) -> set[str]:
    """Return which of the job's checkpoints a step would find: their memo is there and counts for the job."""
    query = (
        sa.select(t.checkpoints.c.digest)
        .join(t.memo, sa.and_(t.memo.c.kind == job.kind, t.memo.c.digest == t.checkpoints.c.digest))
        .where(t.checkpoints.c.job_id == job.job_id)
    )
    if job.fresh_fence is not None:
        query = query.where(t.memo.c.fence > job.fresh_fence)
    return set(tx.execute(query).scalars())


def _spent(rows: Sequence[sa.Row[Any]]) -> int:
    """Return how many attempts will have used up budget; one that was called off unbegun is among them."""
    return counted_failures(attempt_rows.facts(rows)) + (
        rows[-1].ended_at is None and Outcome.CANCELLED.counts
    )


def _untold(tx: sa.Connection, job_id: str) -> bool:
    query = sa.select(t.events.c.id).where(t.events.c.job_id == job_id, t.events.c.cursor.is_(None)).limit(1)
    return tx.execute(query).first() is not None


def _refusal(tx: sa.Connection, asked: _Asked, status: sa.Row[Any]) -> JobNotDead | RevisionMoved | None:
    """Return why not, unless the job is dead, everybody was told so, and nothing happened since."""
    untold = _untold(tx, asked.job_id)
    if asked.expected_rev is not None and (status.rev != asked.expected_rev or untold):
        return RevisionMoved(
            f"Job {asked.job_id} is no longer what it was at revision {asked.expected_rev}.", rev=status.rev
        )
    if status.status != JobStatus.DEAD.value:
        return JobNotDead(f"Job {asked.job_id} is {status.status}, not dead.", status=status.status)
    if untold:
        return JobNotDead(f"Something happened to job {asked.job_id} since it died.", status=status.status)
    return None


def _retry(tx: sa.Connection, asked: _Asked, now: datetime) -> dict[str, Any]:
    """Do it; return what the job has now, for the audit."""
    rows = tx.execute(
        sa.select(t.attempts).where(t.attempts.c.job_id == asked.job_id).order_by(t.attempts.c.n)
    ).all()
    latest = rows[-1]
    n = latest.n + 1
    detail = {"actor": asked.actor, "reason": asked.reason, "start": asked.start, "attempt": n}
    record(tx, asked.job_id, Fact.RETRY_REQUESTED, detail, now)
    if latest.ended_at is None:
        # called off before it began; a run of it may still be about, and must not be the retry's
        _close_unbegun(tx, latest, now)
    values: dict[str, Any] = {
        "max_attempts": _spent(rows) + asked.attempts,
        "retried_after": latest.n,
        "cancel_requested_at": None,
        "cancel_event": None,
    }
    if asked.start == "start":
        fence = sa.select(t.counters.c.value).where(t.counters.c.name == "fence")
        values["fresh_fence"] = fence.scalar_subquery()
    tx.execute(sa.update(t.jobs).where(t.jobs.c.job_id == asked.job_id).values(**values))
    attempt_rows.plan(tx, asked.job_id, n, now)
    return {"attempt": n, "max_attempts": values["max_attempts"]}


def _close_unbegun(tx: sa.Connection, latest: sa.Row[Any], now: datetime) -> None:
    conditions = [t.attempts.c.job_id == latest.job_id, t.attempts.c.n == latest.n]
    attempt_rows.end_in(
        tx, latest.job_id, latest.n, Outcome.CANCELLED, error=None, now=now, conditions=conditions
    )


def _audit(
    tx: sa.Connection,
    asked: _Asked,
    outcome: str,
    now: datetime,
    *,
    before: dict[str, Any],
    after: dict[str, Any] | None = None,
) -> None:
    audit.append_in(
        tx,
        now,
        actor=asked.actor,
        action="retry",
        target=asked.job_id,
        reason=asked.reason,
        outcome=outcome,
        data={"start": asked.start, "expected_rev": asked.expected_rev},
        request_id=asked.request_id,
        before=before,
        after=after,
    )
