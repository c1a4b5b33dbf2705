"""The result of a job, its progress, and the cancel that excludes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from autocode.jobs import crash
from autocode.jobs.errors import AttemptEnded, JobCancelled, JobFinished
from autocode.jobs.ledger import audit, jobs
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.attempts import Attempt, end_in, hold
from autocode.jobs.ledger.checkpoints import Produced, refer
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.events import Fact, record, record_progress
from autocode.jobs.ledger.words import required, storable
from autocode.jobs.projection import Outcome

__all__ = ["commit_result", "mark_verified", "reject_result", "request_cancel", "set_progress"]


def commit_result(db: Database, attempt: Attempt, produced: Produced) -> None:
    """Commit the job's result and end the attempt as completed: one fenced update, atomic.

    It excludes a cancel, and is excluded by one. The state becomes ``complete`` only when reconcile has
    found the object in the store with this digest. Idempotent for the attempt that committed, which may
    never have heard the answer.

    Raises:
        AttemptEnded: the attempt was ended, or the job has a result; nothing was written.
        JobCancelled: the job was called off, and this attempt is to end itself; nothing was written.
    """
    crash.at("result.before")
    with db.write() as tx:
        jobs.lock(tx, attempt.job_id)
        if _is_committed(tx, attempt, produced.digest):
            return
        now = db.clock.now()
        if hold(tx, attempt, now):
            raise JobCancelled(f"Job {attempt.job_id} was called off.")
        committed = tx.execute(
            sa.update(t.jobs)
            .where(
                t.jobs.c.job_id == attempt.job_id,
                t.jobs.c.cancel_requested_at.is_(None),
                t.jobs.c.result_digest.is_(None),
            )
            .values(
                result_digest=produced.digest,
                result_size=produced.size,
                result_media_type=produced.media_type,
                result_attempt=attempt.n,
                result_at=now,
                result_verified_at=None,
            )
        )
        if committed.rowcount != 1:
            raise AttemptEnded(f"Job {attempt.job_id} has a result already.")
        refer(tx, produced.digest, produced.size, f"result:{attempt.job_id}", now)
        _end(tx, attempt, Outcome.COMPLETED, None, now)
    crash.at("result.after")


def mark_verified(db: Database, job_id: str, digest: str) -> bool:
    """Note that the committed result was found in the store with its digest. Idempotent."""
    with db.write() as tx:
        jobs.lock(tx, job_id)
        marked = tx.execute(
            sa.update(t.jobs)
            .where(
                t.jobs.c.job_id == job_id,
                t.jobs.c.result_digest == digest,
                t.jobs.c.result_verified_at.is_(None),
            )
            .values(result_verified_at=db.clock.now())
        )
        return marked.rowcount == 1


def reject_result(db: Database, job_id: str, n: int, error: Mapping[str, Any]) -> None:
    """Take back a committed result whose object is missing or damaged, before anybody saw it as complete.

    The attempt that committed it counts as failed, and the next one is planned where the budget allows it.
    Does nothing where attempt *n* has no unverified result. Idempotent.

    Raises:
        JobNotFound: no job has this id.
        ValueError: *error* isn't what the contract can show.
    """
    with db.write() as tx:
        jobs.lock(tx, job_id)
        now = db.clock.now()
        taken = tx.execute(
            sa.update(t.jobs)
            .where(
                t.jobs.c.job_id == job_id,
                t.jobs.c.result_attempt == n,
                t.jobs.c.result_verified_at.is_(None),
            )
            .values(
                result_digest=None,
                result_size=None,
                result_media_type=None,
                result_attempt=None,
                result_at=None,
            )
        )
        if taken.rowcount != 1:
            return
        key = (t.attempts.c.job_id == job_id, t.attempts.c.n == n)
        # nobody was told yet that the attempt completed, so only its failure will be
        completed = sa.select(t.attempts.c.ended_event).where(*key).scalar_subquery()
        tx.execute(sa.delete(t.events).where(t.events.c.id == completed, t.events.c.cursor.is_(None)))
        tx.execute(sa.delete(t.references).where(t.references.c.holder == f"result:{job_id}"))
        tx.execute(sa.update(t.attempts).where(*key).values(ended_at=None, outcome=None, ended_event=None))
        end_in(
            tx,
            job_id,
            n,
            Outcome.FAILED,
            error=error,
            now=now,
            conditions=[*key, t.attempts.c.ended_at.is_(None)],
        )


def request_cancel(
    db: Database, job_id: str, *, actor: str = "", reason: str = "", request_id: str | None = None
) -> bool:
    """Ask for the job's end, unless it has a result or is over. Excludes ``commit_result``. Idempotent.

    A running attempt hears of it with its next renewal and ends itself; one that doesn't is ended by
    reconcile after a grace time.

    Args:
        db: the ledger.
        job_id: the job.
        actor: who asks, as the caller proved it. With an actor each request about a job that exists leaves an
            entry in the audit: ``accepted``, or ``accepted: already called off`` in the same transaction, or
            ``refused: job-finished``.
        reason: why, in the actor's own words.
        request_id: the request that asks, for the audit.

    Returns:
        Whether the job is called off, by this call or an earlier one; with an actor always true.

    Raises:
        JobFinished: an actor asked, and the result is committed already or the job is over.
        JobNotFound: no job has this id.
        UsageError: actor or reason is no text that can be kept.
    """
    if not actor:
        with db.write() as tx:
            return _cancel(tx, job_id, {}, db.clock.now()) is not None
    who = {"actor": required(actor, "actor"), "reason": storable(reason, "reason").strip()}
    with db.write() as tx:
        now = db.clock.now()
        outcome = _cancel(tx, job_id, who, now)
        table = t.statuses.c
        found = tx.execute(sa.select(table.status, table.rev).where(table.job_id == job_id)).one()
        # the refusal changes nothing else, so its entry needs no transaction of its own
        audit.append_in(
            tx,
            now,
            actor=who["actor"],
            action="cancel",
            target=job_id,
            reason=who["reason"],
            outcome=outcome or f"refused: {JobFinished.type}",
            request_id=request_id,
            before={"status": found.status, "rev": found.rev},
            after=None if outcome is None else {"cancel_requested": True},
        )
    if outcome is None:
        raise JobFinished(
            f"Job {job_id} has a result or is over, so it can't be called off.", status=found.status
        )
    return True


def _cancel(tx: sa.Connection, job_id: str, detail: Mapping[str, str], now: datetime) -> str | None:
    """Call the job off; return how that went, or ``None`` where it is too late."""
    jobs.lock(tx, job_id)
    asked = tx.execute(
        sa.update(t.jobs)
        .where(
            t.jobs.c.job_id == job_id,
            t.jobs.c.result_digest.is_(None),
            t.jobs.c.cancel_requested_at.is_(None),
            sa.exists().where(t.attempts.c.job_id == job_id, t.attempts.c.ended_at.is_(None)),
        )
        .values(cancel_requested_at=now)
    )
    if asked.rowcount == 1:
        event = record(tx, job_id, Fact.CANCEL_REQUESTED, detail, now)
        tx.execute(sa.update(t.jobs).where(t.jobs.c.job_id == job_id).values(cancel_event=event))
        return "accepted"
    since = sa.select(t.jobs.c.cancel_requested_at).where(t.jobs.c.job_id == job_id)
    return None if tx.execute(since).scalar() is None else "accepted: already called off"


def set_progress(
    db: Database,
    attempt: Attempt,
    *,
    done: int | None = None,
    total: int | None = None,
    unit: str | None = None,
    retry_at: datetime | None = None,
) -> None:
    """Persist how far the attempt is; what isn't given stays as it was, but for *retry_at*.

    Raises:
        AttemptEnded: the attempt was ended.
    """
    given = {"progress_done": done, "progress_total": total, "progress_unit": unit}
    with db.write() as tx:
        jobs.lock(tx, attempt.job_id)
        now = db.clock.now()
        hold(tx, attempt, now)
        values = {name: value for name, value in given.items() if value is not None}
        tx.execute(
            sa.update(t.jobs)
            .where(t.jobs.c.job_id == attempt.job_id)
            .values(**values, progress_at=now, progress_retry_at=retry_at)
        )
        record_progress(tx, attempt.job_id, now)


def _is_committed(tx: sa.Connection, attempt: Attempt, digest: str) -> bool:
    query = (
        sa.select(t.jobs.c.job_id)
        .join(t.attempts, t.attempts.c.job_id == t.jobs.c.job_id)
        .where(
            t.jobs.c.job_id == attempt.job_id,
            t.jobs.c.result_attempt == attempt.n,
            t.jobs.c.result_digest == digest,
            t.attempts.c.n == attempt.n,
            t.attempts.c.token == attempt.token,
        )
    )
    return tx.execute(query).first() is not None


def _end(
    tx: sa.Connection, attempt: Attempt, outcome: Outcome, error: Mapping[str, Any] | None, now: datetime
) -> None:
    conditions = [
        t.attempts.c.job_id == attempt.job_id,
        t.attempts.c.n == attempt.n,
        t.attempts.c.ended_at.is_(None),
    ]
    end_in(tx, attempt.job_id, attempt.n, outcome, error=error, now=now, conditions=conditions)
