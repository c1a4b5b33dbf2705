"""The projection, persisted: statuses and stamped events, written in one transaction by reconcile alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs import crash
from autocode.jobs.clock import rfc3339
from autocode.jobs.ledger import attempts as attempt_rows
from autocode.jobs.ledger import deliveries, jobs
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.events import Fact, reserve_cursors, unstamped
from autocode.jobs.ledger.queries import JobRows, load, resource
from autocode.jobs.model import TERMINAL, JobStatus
from autocode.jobs.projection import AttemptFacts, JobFacts, Lease, Outcome, RunState, Verdict, project

__all__ = ["is_current", "judge", "stamp"]

_PLAIN_TYPES: Final = {
    Fact.CHECKPOINT: "job.checkpoint",
    Fact.PROGRESS: "job.progress",
    Fact.CANCEL_REQUESTED: "job.cancel_requested",
    Fact.RETRY_REQUESTED: "job.retry_requested",
}
"""Facts that don't name a state; the others become ``job.<state>``."""


_BATCH: Final = 500
"""How many facts one transaction tells of at most: a backlog must not keep other writers waiting long."""


@dataclass(frozen=True, slots=True)
class _Event:
    id: int | None
    type: str
    at: datetime
    snapshot: dict[str, Any]
    changes: bool


def judge(rows: JobRows, run: RunState, lease: Lease) -> Verdict:
    """Project the job's facts as they are now."""
    facts = JobFacts(
        max_attempts=rows.job.max_attempts,
        retried_after=rows.job.retried_after,
        result_verified=rows.job.result_verified_at is not None,
        cancel_requested=rows.job.cancel_requested_at is not None,
    )
    return project(facts, attempt_rows.facts(rows.attempts), run, lease)


def is_current(rows: JobRows, run: RunState, lease: Lease) -> bool:
    """Say whether the persisted status is what the facts in *rows* project to; pure, for a sweep of many."""
    persisted = _persisted(rows)
    verdict = judge(rows, run, lease)
    return _snapshot(rows, verdict, attempt_rows.facts(rows.attempts), persisted) == persisted


def stamp(db: Database, job_id: str, run: RunState, lease: Lease) -> bool:
    """Bring the job's status up to date and give its new events their cursors, in one transaction.

    Each event carries the resource as it was right after that fact, so that nothing is missed when two
    facts came between two looks. Where one ends the job, a delivery is planned for whoever subscribed.
    The caller has first done what the verdict asks for (``Verdict.ends``).
    Idempotent: with nothing new nothing is written. A call tells of 500 facts at most; the next one goes on.

    Args:
        db: the ledger.
        job_id: the job.
        run: what Prefect says of the latest attempt's run.
        lease: whether the latest attempt still renews.

    Returns:
        Whether anything changed.

    Raises:
        JobNotFound: no job has this id.
    """
    with db.write() as tx:
        jobs.lock(tx, job_id)
        rows = load(tx, job_id, history=False)
        now = db.clock.now()
        new = unstamped(tx, job_id, limit=_BATCH)
        events = _replay(rows, new)
        if len(new) < _BATCH:
            before = events[-1].snapshot if events else _persisted(rows)
            verdict = judge(rows, run, lease)
            after = _snapshot(rows, verdict, attempt_rows.facts(rows.attempts), before)
            if after != before:
                events.append(_Event(None, f"job.{verdict.status.value}", now, after, changes=True))
        if not events:
            return False
        _write(tx, rows, events, now)
        crash.at("reconcile.before-commit")
    return True


def _replay(rows: JobRows, new: Sequence[sa.Row[Any]]) -> list[_Event]:
    """Turn each unstamped fact into an event with the state right after it."""
    events: list[_Event] = []
    before = _persisted(rows)
    for row in new:
        known = attempt_rows.facts(rows.attempts, upto_event=row.id)
        verdict = project(_job_facts_upto(rows, row.id), known, RunState(), Lease.ALIVE)
        snapshot = _snapshot(rows, verdict, known, _moved(rows, row, before))
        kind = _PLAIN_TYPES.get(Fact(row.fact), f"job.{snapshot['status']}")
        events.append(_Event(row.id, kind, row.at, snapshot, changes=snapshot != before))
        before = snapshot
    return events


def _job_facts_upto(rows: JobRows, event: int) -> JobFacts:
    # a result is verified after the last fact, so it is complete as of one only if it was told to be before;
    # a retry is accepted only when all before it was told, so the budget is that of every fact still untold
    return JobFacts(
        max_attempts=rows.job.max_attempts,
        retried_after=rows.job.retried_after,
        result_verified=rows.status.status == JobStatus.COMPLETE.value,
        cancel_requested=rows.job.cancel_event is not None and rows.job.cancel_event <= event,
    )


def _persisted(rows: JobRows) -> dict[str, Any]:
    skipped = {"job_id", "rev", "as_of"}
    return {key: value for key, value in rows.status._mapping.items() if key not in skipped}  # noqa: SLF001 - Row._mapping is SQLAlchemy's documented name


def _moved(rows: JobRows, event: sa.Row[Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the state *before* with the checkpoint or the progress that *event* tells of."""
    if event.fact == Fact.CHECKPOINT:
        return {**before, "checkpoint_seq": event.detail["seq"]}
    if event.fact == Fact.PROGRESS:
        # reports are merged into the last one, so the job's columns are what this event tells of
        job = rows.job
        progress = {
            "done": job.progress_done,
            "total": job.progress_total,
            "unit": job.progress_unit,
            "at": rfc3339(job.progress_at),
            "retry_at": rfc3339(job.progress_retry_at),
        }
        return {**before, "progress": progress}
    return before


def _snapshot(
    rows: JobRows, verdict: Verdict, known: Sequence[AttemptFacts], moved: dict[str, Any]
) -> dict[str, Any]:
    by_n = {row.n: row for row in rows.attempts}
    begun = [facts for facts in known if facts.begun]
    errors = [by_n[facts.n].error for facts in known if facts.ended and by_n[facts.n].error is not None]
    lost_earlier = any(_may_live(facts, by_n[facts.n]) for facts in known[:-1])
    complete = verdict.status is JobStatus.COMPLETE
    return {
        "status": verdict.status.value,
        "reason": None if verdict.reason is None else verdict.reason.value,
        "note": verdict.note,
        # which attempt it is, and not how many began: one that died before it began has a number too
        "attempts": max((facts.n for facts in known if _was_tried(facts)), default=0),
        "max_attempts": rows.job.max_attempts,
        "next_attempt_at": verdict.next_attempt_at,
        "error": errors[-1] if errors and not complete else None,
        "started_at": by_n[begun[0].n].begun_at if begun else None,
        "checkpoint_at": rows.checkpoint_at(moved["checkpoint_seq"]),
        "completed_at": rows.job.result_verified_at if complete else None,
        "checkpoint_seq": moved["checkpoint_seq"],
        "progress": moved["progress"],
        "possible_double_run": lost_earlier and verdict.status is JobStatus.RUNNING,
    }


def _was_tried(facts: AttemptFacts) -> bool:
    """Say whether the attempt began or was lost before it could; one that was called off before is none."""
    return facts.begun or (facts.ended and facts.outcome is not Outcome.CANCELLED)


def _may_live(facts: AttemptFacts, row: sa.Row[Any]) -> bool:
    """Say whether the attempt was ended over its process's head: one that answers a cancel has no error."""
    return facts.outcome is Outcome.LOST or (facts.outcome is Outcome.CANCELLED and row.error is not None)


def _write(tx: sa.Connection, rows: JobRows, events: Sequence[_Event], now: datetime) -> None:
    job_id = rows.job.job_id
    cursor = reserve_cursors(tx, len(events))
    rev, as_of = rows.status.rev, rows.status.as_of
    stamped: list[dict[str, Any]] = []
    endings: list[deliveries.Ended] = []
    status = rows.status.status
    for offset, event in enumerate(events):
        if event.changes:
            rev, as_of = rev + 1, now
        data = resource(rows, {**event.snapshot, "rev": rev, "as_of": as_of}, with_history=False).to_json()
        values = {"cursor": cursor + offset, "type": event.type, "rev": rev, "data": data}
        before, status = status, event.snapshot["status"]
        if before != status and status in TERMINAL:
            reason = event.snapshot["reason"]
            endings.append(deliveries.Ended(cursor + offset, rev, status, reason))
        if event.id is not None:
            stamped.append({"event_id": event.id, **values})
            continue
        detail = {"projected": rfc3339(now)}
        tx.execute(
            sa.insert(t.events).values(job_id=job_id, fact="projected", detail=detail, at=event.at, **values)
        )
    if stamped:
        tx.execute(sa.update(t.events).where(t.events.c.id == sa.bindparam("event_id")), stamped)
    moved = tx.execute(
        sa.update(t.statuses)
        .where(t.statuses.c.job_id == job_id, t.statuses.c.rev == rows.status.rev)
        .values(**events[-1].snapshot, rev=rev, as_of=as_of)
    )
    if moved.rowcount != 1:
        raise AssertionError("the job's lock is held, so nobody else can have moved its revision")
    deliveries.plan(tx, rows.job, endings, now)
