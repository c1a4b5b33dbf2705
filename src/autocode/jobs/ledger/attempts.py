"""Attempts: begun once under a fence, renewed by a counter, ended once."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from autocode.jobs import crash
from autocode.jobs.errors import AttemptEnded, JobNotFound
from autocode.jobs.ledger import jobs
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.events import Fact, record
from autocode.jobs.projection import AttemptFacts, JobFacts, Outcome, budget_spent, counted_failures
from autocode.jobs.resource import Problem
from autocode.jobs.retry import Backoff

__all__ = [
    "Attempt",
    "attempt_holder",
    "begin",
    "close_run",
    "end",
    "end_in",
    "facts",
    "hold",
    "pick_due",
    "plan",
    "renew",
    "set_run",
    "wants_run",
]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A begun attempt, as its own process knows it.

    ``token`` proves that this process began it; ``fence`` grows with every attempt that begins in this
    ledger, so that another database can refuse a stale writer (Kleppmann, "How to do distributed locking",
    2016). ``fresh_fence`` says that the job starts afresh: what was remembered at or below it doesn't count.
    """

    job_id: str
    n: int
    token: str
    fence: int
    time_limit: float
    fresh_fence: int | None = None


def set_run(db: Database, job_id: str, n: int, flow_run_id: str) -> bool:
    """Note which flow run attempt *n* has; the first that is noted stays. Idempotent.

    Returns:
        Whether the attempt exists and *flow_run_id* is its run.
    """
    mine = (*_key(job_id, n), *_may_have_run(job_id, n, flow_run_id))
    with db.write() as tx:
        noted = tx.execute(sa.update(t.attempts).where(*mine).values(flow_run_id=flow_run_id))
        return noted.rowcount == 1


def wants_run(db: Database) -> Sequence[tuple[str, int, datetime]]:
    """Return (job id, n, due) of every planned attempt without a flow run whose job wasn't called off."""
    query = (
        sa.select(t.attempts.c.job_id, t.attempts.c.n, t.attempts.c.due_at)
        .join(t.jobs, t.jobs.c.job_id == t.attempts.c.job_id)
        .where(
            t.attempts.c.flow_run_id.is_(None),
            t.attempts.c.begun_at.is_(None),
            t.attempts.c.ended_at.is_(None),
            # its index is small: the runs of all that ended long ago are closed
            t.attempts.c.run_closed.is_(False),
            t.jobs.c.cancel_requested_at.is_(None),
        )
    )
    with db.read() as tx:
        return [(row.job_id, row.n, row.due_at) for row in tx.execute(query)]


def pick_due(db: Database, job_id: str, holder: str) -> str | None:
    """Take the job's next attempt for this process if it is due and nobody has; return its flow run's id.

    Picking comes before Prefect is told: Prefect doesn't fence, and two processes that entered one flow run
    would write each other's states. Atomic.
    """
    with db.write() as tx:
        picked = tx.execute(
            sa.update(t.attempts)
            .where(
                t.attempts.c.job_id == job_id,
                t.attempts.c.due_at <= db.clock.now(),
                t.attempts.c.flow_run_id.is_not(None),
                t.attempts.c.holder.is_(None),
                t.attempts.c.begun_at.is_(None),
                t.attempts.c.ended_at.is_(None),
            )
            .values(holder=holder)
            .returning(t.attempts.c.flow_run_id)
        )
        return picked.scalar()


def close_run(db: Database, job_id: str, n: int) -> None:
    """Note that Prefect knows how attempt *n* ended. Idempotent."""
    with db.write() as tx:
        tx.execute(sa.update(t.attempts).where(*_key(job_id, n)).values(run_closed=True))


def begin(
    db: Database, job_id: str, n: int, *, flow_run_id: str, holder: str, token: str | None = None
) -> Attempt:
    """Claim attempt *n*: insert its fence and start its lease, in one transaction.

    Args:
        db: the ledger.
        job_id: the job.
        n: which attempt.
        flow_run_id: the run that executes it; another run is refused, and so is one of another attempt.
        holder: who runs it, for people and for proof of death.
        token: with the same one it may be called again, should the answer be lost. Drawn if none is given.

    Raises:
        AttemptEnded: the attempt is over, isn't planned, was begun before or belongs to another run, or the
            job was cancelled.
        JobNotFound: no job has this id.
    """
    crash.at("claim.before")
    token = token or str(uuid.uuid4())
    with db.write() as tx:
        jobs.lock(tx, job_id)
        if (begun := _begun_with(tx, job_id, n, token)) is not None:
            return begun
        now = db.clock.now()
        fence = _next_fence(tx)
        claimed = tx.execute(
            sa.update(t.attempts)
            .where(
                *_key(job_id, n),
                t.attempts.c.begun_at.is_(None),
                t.attempts.c.ended_at.is_(None),
                sa.or_(t.attempts.c.holder.is_(None), t.attempts.c.holder == holder),
                *_may_have_run(job_id, n, flow_run_id),
            )
            .values(
                flow_run_id=flow_run_id,
                token=token,
                fence=fence,
                holder=holder,
                begun_at=now,
                renewals=1,
                renewed_at=now,
            )
        )
        job = _job(tx, job_id)
        if claimed.rowcount != 1 or job.cancel_requested_at is not None:
            raise _refusal(tx, job, n)
        event = record(tx, job_id, Fact.BEGUN, {"attempt": n}, now)
        tx.execute(sa.update(t.attempts).where(*_key(job_id, n)).values(begun_event=event))
    crash.at("claim.after")
    return _begun(job, n, token, fence)


def _begun_with(tx: sa.Connection, job_id: str, n: int, token: str) -> Attempt | None:
    mine = (*_key(job_id, n), t.attempts.c.token == token, t.attempts.c.ended_at.is_(None))
    fence = tx.execute(sa.select(t.attempts.c.fence).where(*mine)).scalar()
    return None if fence is None else _begun(_job(tx, job_id), n, token, fence)


def _begun(job: sa.Row[Any], n: int, token: str, fence: int) -> Attempt:
    return Attempt(job.job_id, n, token, fence, job.time_limit, job.fresh_fence)


def _refusal(tx: sa.Connection, job: sa.Row[Any], n: int) -> AttemptEnded:
    """Say why attempt *n* can't begin, and where to go on: somebody may have restarted its run in Prefect."""
    of = sa.select(t.attempts).where(t.attempts.c.job_id == job.job_id).order_by(t.attempts.c.n)
    rows = tx.execute(of).all()
    latest = rows[-1]
    over = f"Attempt {n} of job {job.job_id} can't begin"
    if job.result_digest is not None:
        # no full stop behind a command: it would be copied with it
        why, hint = "the job has its result", f"See it with: autocode-jobs artifacts get {job.result_digest}"
    elif latest.ended_at is not None or job.cancel_requested_at is not None:
        state = "was cancelled" if job.cancel_requested_at is not None else "is dead"
        why, hint = (
            f"the job {state}",
            f"To try it again: autocode-jobs jobs retry {job.job_id} --reason TEXT",
        )
    elif latest.n != n:
        why, hint = (
            f"the job goes on in attempt {latest.n}",
            "Nothing to do: that attempt has a run of its own.",
        )
    else:
        why, hint = "another run or process has it", "Nothing to do: one flow run is one attempt."
    # Prefect shows an error's text alone, so the text says what to do, too
    return AttemptEnded(f"{over}: {why}. {hint}", hint=hint)


def renew(db: Database, attempt: Attempt) -> bool:
    """Move the attempt's counter; it succeeds, however late, unless the attempt was ended.

    Returns:
        Whether the job was called off, so that the attempt should end itself.

    Raises:
        AttemptEnded: somebody ended the attempt; this process must stop and touch nothing.
    """
    with db.write() as tx:
        return hold(tx, attempt, db.clock.now())


def hold(tx: sa.Connection, attempt: Attempt, now: datetime) -> bool:
    """Prove, for the rest of the transaction, that *attempt* still holds its fence. Counts as a renewal.

    Returns:
        Whether the job was called off; certain where the caller holds the job's lock.

    Raises:
        AttemptEnded: it was ended.
    """
    called_off = (
        sa.select(t.jobs.c.cancel_requested_at).where(t.jobs.c.job_id == attempt.job_id).scalar_subquery()
    )
    held = tx.execute(
        sa.update(t.attempts)
        .where(
            *_key(attempt.job_id, attempt.n),
            t.attempts.c.token == attempt.token,
            t.attempts.c.ended_at.is_(None),
        )
        .values(renewals=t.attempts.c.renewals + 1, renewed_at=now)
        .returning(called_off)
    ).first()
    if held is None:
        raise AttemptEnded(f"Attempt {attempt.n} of job {attempt.job_id} was ended by somebody else.")
    return held[0] is not None


def end(
    db: Database,
    job_id: str,
    n: int,
    outcome: Outcome,
    *,
    error: Mapping[str, Any] | None = None,
    token: str | None = None,
    renewals: int | None = None,
) -> bool:
    """End attempt *n* and plan the next one where the budget allows it, in one transaction.

    Args:
        db: the ledger.
        job_id: the job.
        n: which attempt.
        outcome: how it ended; not ``COMPLETED``, which comes with a result (``results.commit_result``).
        error: the problem that ended it, as the contract's ``error`` object.
        token: end it only if this process began it.
        renewals: end it only if its counter still stands here (a lease that moved is not lost).

    Returns:
        Whether this call ended it; ``False`` where it was over already or a condition failed. Idempotent.

    Raises:
        JobNotFound: no job has this id.
        ValueError: *outcome* is ``COMPLETED``, or *error* isn't what the contract can show.
    """
    if outcome is Outcome.COMPLETED:
        raise ValueError("an attempt ends as completed by commit_result alone")
    conditions = [*_key(job_id, n), t.attempts.c.ended_at.is_(None)]
    if token is not None:
        conditions.append(t.attempts.c.token == token)
    if renewals is not None:
        conditions.append(t.attempts.c.renewals == renewals)
    with db.write() as tx:
        jobs.lock(tx, job_id)
        return end_in(tx, job_id, n, outcome, error=error, now=db.clock.now(), conditions=conditions)


def end_in(
    tx: sa.Connection,
    job_id: str,
    n: int,
    outcome: Outcome,
    *,
    error: Mapping[str, Any] | None,
    now: datetime,
    conditions: Sequence[sa.ColumnElement[bool]],
) -> bool:
    """Do what :func:`end` does, inside the caller's transaction, which holds the job's lock."""
    # checked here: stored as it is, a malformed error would fail every later look at the job
    shown = None if error is None else Problem.model_validate(error).model_dump()
    ended = tx.execute(
        sa.update(t.attempts)
        .where(*conditions)
        .values(ended_at=now, outcome=outcome.value, counts=outcome.counts, error=shown)
    )
    if ended.rowcount != 1:
        return False
    event = record(tx, job_id, Fact.ENDED, {"attempt": n, "outcome": outcome.value}, now)
    tx.execute(sa.update(t.attempts).where(*_key(job_id, n)).values(ended_event=event))
    tx.execute(sa.delete(t.references).where(t.references.c.holder == attempt_holder(job_id, n)))
    _plan_next(tx, job_id, outcome, now)
    return True


def attempt_holder(job_id: str, n: int) -> str:
    """Return the name under which attempt *n* holds tentative references to objects."""
    return f"attempt:{job_id}:{n}"


def facts(rows: Sequence[sa.Row[Any]], *, upto_event: int | None = None) -> list[AttemptFacts]:
    """Turn attempt rows (in order of n) into facts, as they were right after event *upto_event*.

    Within a job, event ids follow the order of commits, since every writer takes the job's lock first.
    """

    def happened(event: int | None) -> bool:
        return event is not None and (upto_event is None or event <= upto_event)

    result: list[AttemptFacts] = []
    for row in rows:
        ended = happened(row.ended_event)
        # attempt n + 1 is planned by the very transaction that ends attempt n
        if result and not result[-1].ended:
            break
        result.append(
            AttemptFacts(
                n=row.n,
                due_at=row.due_at,
                begun=happened(row.begun_event),
                outcome=Outcome(row.outcome) if ended else None,
                counts=bool(row.counts) and ended,
            )
        )
    return result


def _plan_next(tx: sa.Connection, job_id: str, outcome: Outcome, now: datetime) -> None:
    if outcome in {Outcome.COMPLETED, Outcome.PERMANENT}:
        return
    job = _job(tx, job_id)
    rows = tx.execute(
        sa.select(t.attempts).where(t.attempts.c.job_id == job_id).order_by(t.attempts.c.n)
    ).all()
    known = facts(rows)
    if job.cancel_requested_at is not None or budget_spent(JobFacts(job.max_attempts), known):
        return
    pause = 0.0
    # a run that vanished waits too: whatever deletes runs would otherwise be fed new ones without end
    if outcome is not Outcome.INTERRUPTED:
        first, factor, ceiling, jitter = job.backoff
        backoff = Backoff(first, factor, ceiling, jitter)
        pause = backoff.delay(max(1, counted_failures(known, after=job.retried_after)))
    plan(tx, job_id, rows[-1].n + 1, now + timedelta(seconds=pause))


def plan(tx: sa.Connection, job_id: str, n: int, due_at: datetime) -> None:
    """Plan attempt *n* in the caller's transaction, which holds the job's lock."""
    planned = sa.insert(t.attempts).values(
        job_id=job_id, n=n, due_at=due_at, renewals=0, counts=False, run_closed=False
    )
    tx.execute(planned)


def _next_fence(tx: sa.Connection) -> int:
    counter = (
        sa.update(t.counters)
        .where(t.counters.c.name == "fence")
        .values(value=t.counters.c.value + 1)
        .returning(t.counters.c.value)
    )
    return int(tx.execute(counter).scalar_one())


def _key(job_id: str, n: int) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return t.attempts.c.job_id == job_id, t.attempts.c.n == n


def _may_have_run(job_id: str, n: int, flow_run_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    other = t.attempts.alias()
    elsewhere = sa.exists().where(
        other.c.flow_run_id == flow_run_id, sa.or_(other.c.job_id != job_id, other.c.n != n)
    )
    mine = sa.or_(t.attempts.c.flow_run_id.is_(None), t.attempts.c.flow_run_id == flow_run_id)
    return mine, sa.not_(elsewhere)


def _job(tx: sa.Connection, job_id: str) -> sa.Row[Any]:
    row = tx.execute(sa.select(t.jobs).where(t.jobs.c.job_id == job_id)).first()
    if row is None:
        raise JobNotFound(f"There is no job {job_id!r}.")
    return row
