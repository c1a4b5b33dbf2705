"""The event log as it is persisted, and what the contract forbids in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.model import TRANSITIONS, JobStatus

__all__ = ["EventRow", "event_faults", "read_events"]


@dataclass(frozen=True, slots=True)
class EventRow:
    """One fact; where nobody was told of it yet, all but *job_id* and *fact* are ``None``.

    Args:
        job_id: the job.
        fact: what happened.
        cursor: its place among the events of all jobs.
        rev: the job's revision after it.
        status: the job's status after it.
    """

    job_id: str
    fact: str
    cursor: int | None
    rev: int | None
    status: JobStatus | None


def read_events(tx: sa.Connection, *, after: int = 0) -> list[EventRow]:
    """Return the events of all jobs with a cursor above *after* in order, then those without a cursor."""
    query = (
        sa.select(t.events.c.job_id, t.events.c.fact, t.events.c.cursor, t.events.c.rev, t.events.c.data)
        .where(sa.or_(t.events.c.cursor.is_(None), t.events.c.cursor > after))
        .order_by(t.events.c.cursor.is_(None), t.events.c.cursor, t.events.c.id)
    )
    return [
        EventRow(row.job_id, row.fact, row.cursor, row.rev, _status(row.data)) for row in tx.execute(query)
    ]


def event_faults(events: Sequence[EventRow], *, after: int = 0) -> Iterator[tuple[str, str, str]]:
    """Yield job, what was expected and what was found for each event that breaks a rule of the log.

    Cursors have no gap. A job begins as queued at revision 1. Each event leaves its revision and status as
    they were, as a request to call the job off does, or raises the revision by one; and each move is legal.

    Args:
        events: the events of all jobs with a cursor above *after*, in order; others are passed over.
        after: of jobs that may have events up to here nobody can say how they began.
    """
    before: dict[str, EventRow] = {}
    told = [event for event in events if event.cursor is not None]
    for number, event in enumerate(told, after + 1):
        if event.cursor != number:
            yield event.job_id, f"cursor {number} next", f"{event.cursor}"
            return
    for event in told:
        last = before.get(event.job_id)
        before[event.job_id] = event
        if last is not None:
            yield from _step_faults(last, event)
        elif not after and (event.status, event.rev) != (JobStatus.QUEUED, 1):
            yield event.job_id, "a first event queued, at revision 1", _told(event)


def _step_faults(last: EventRow, event: EventRow) -> Iterator[tuple[str, str, str]]:
    assert last.rev is not None
    assert last.status is not None
    if event.rev == last.rev and event.status is not last.status:
        yield event.job_id, f"{last.status} for as long as the revision is {last.rev}", _told(event)
    elif event.rev not in {last.rev, last.rev + 1}:
        yield event.job_id, f"revision {last.rev} or {last.rev + 1}", _told(event)
    elif event.status is not last.status and event.status not in TRANSITIONS[last.status]:
        legal = " or ".join(sorted(TRANSITIONS[last.status])) or "nothing"
        yield event.job_id, f"{legal} after {last.status}", _told(event)


def _told(event: EventRow) -> str:
    return f"{event.status} at revision {event.rev}, cursor {event.cursor}"


def _status(data: dict[str, Any] | None) -> JobStatus | None:
    return None if data is None else JobStatus(data["status"])
