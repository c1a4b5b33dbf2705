"""Reading stamped events for somebody: from a cursor on, page by page, and only of jobs that may be seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger import scopes
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.listing import Filter

__all__ = ["EVERY_JOB", "Bounds", "Scope", "Stretch", "Told", "bounds", "opening", "resume", "stretch"]

_CURSOR: Final = re.compile(r"([0-9a-f]{1,64}):(0|[1-9][0-9]{0,17})", re.ASCII)

_SPAN: Final = 5_000
"""Cursors that one query goes through at most, however few of their events are wanted."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose events are meant; a field that isn't given leaves every job in.

    Args:
        sessions: of one of these sessions: what the reader may see. The empty set means no job.
        session_id: of this session.
        job_id: of this job.

    Raises:
        UsageError: a text that no database can hold.
    """

    sessions: frozenset[str] | None = None
    session_id: str | None = None
    job_id: str | None = None

    def __post_init__(self) -> None:
        self._filter()

    @property
    def is_open(self) -> bool:
        """Whether every job is in it."""
        return self.sessions is None and self.session_id is None and self.job_id is None

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Return the scope as conditions on ``jobs``: those of a list of jobs with the same reader."""
        chosen = self._filter().conditions()
        return chosen if self.job_id is None else [*chosen, t.jobs.c.job_id == self.job_id]

    def admits(self, job_id: str, session_id: str | None, sessions: frozenset[str]) -> bool:
        """Say of one job what :meth:`conditions` say of many; job and sessions never change their tie."""
        return (
            (self.job_id is None or job_id == self.job_id)
            and (self.session_id is None or session_id == self.session_id)
            and scopes.covers(self.sessions, sessions)
        )

    def _filter(self) -> Filter:
        return Filter(session_id=self.session_id, sessions=self.sessions)


EVERY_JOB: Final = Scope()
"""The scope that every job is in."""


@dataclass(frozen=True, slots=True)
class Told:
    """A stamped event.

    Args:
        cursor: its number.
        type: what happened.
        job_id: to which job.
        at: when.
        data: the resource right after the fact, without its history.
        sessions: those of the job, which decide who may be told.
    """

    cursor: int
    type: str
    job_id: str
    at: datetime
    data: dict[str, Any]
    sessions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Events in the order of their cursors.

    Args:
        events: those in scope.
        reached: the cursor up to which none is missing; what asks for the stretch after this.
        newest: the newest cursor there was.
    """

    events: tuple[Told, ...]
    reached: int
    newest: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between which cursors a reader can begin.

    Args:
        oldest: the smallest cursor after which every event is still kept.
        newest: the newest cursor; 0 where nothing ever happened.
    """

    oldest: int
    newest: int


def stretch(db: Database, after: int, *, scope: Scope = EVERY_JOB, limit: int = 200) -> Stretch:
    """Return up to *limit* events in *scope* with a cursor above *after*.

    It may have fewer, and none, though there are more: ``reached`` says how far was looked. What was returned
    is committed, and so is the revision that it shows: who reads the job then sees that one or a later one.
    """
    with db.read() as tx:
        newest = _newest(tx)
        upto = min(newest, after + _SPAN)
        query = sa.select(t.events).where(t.events.c.cursor > after, t.events.c.cursor <= upto)
        if not scope.is_open:
            query = query.join(t.jobs, t.jobs.c.job_id == t.events.c.job_id).where(*scope.conditions())
        rows = tx.execute(query.order_by(t.events.c.cursor).limit(limit)).all()
        sessions = scopes.of_jobs(tx, {row.job_id for row in rows})
    told = tuple(
        Told(row.cursor, row.type, row.job_id, row.at, row.data, sessions[row.job_id]) for row in rows
    )
    reached = told[-1].cursor if len(told) == limit else max(after, upto)
    return Stretch(told, reached, newest)


def bounds(db: Database) -> Bounds:
    """Return from where to where events are kept."""
    with db.read() as tx:
        return _bounds(tx)


def opening(db: Database, scope: Scope) -> Bounds | None:
    """Return what :func:`bounds` does, or ``None`` where the scope names a job that isn't in it."""
    with db.read() as tx:
        if scope.job_id is not None:
            found = sa.select(t.jobs.c.job_id).where(*scope.conditions())
            if tx.execute(found).first() is None:
                return None
        return _bounds(tx)


def resume(text: str, epoch: str, kept: Bounds) -> int | None:
    """Return the number of a cursor after which nothing is missing.

    Args:
        text: the cursor, ``<epoch>:<n>``.
        epoch: the ledger's.
        kept: what :func:`bounds` says.

    Returns:
        ``None`` where the reader has to begin anew: the cursor is malformed, another ledger's, older than
        what is kept, or newer than anything that happened.
    """
    parts = _CURSOR.fullmatch(text)
    if parts is None or parts[1] != epoch:
        return None
    number = int(parts[2])
    return number if kept.oldest <= number <= kept.newest else None


def _bounds(tx: sa.Connection) -> Bounds:
    newest = _newest(tx)
    first = tx.execute(sa.select(sa.func.min(t.events.c.cursor))).scalar()
    # events are removed from the oldest on, if ever
    return Bounds(oldest=newest if first is None else int(first) - 1, newest=newest)


def _newest(tx: sa.Connection) -> int:
    # handed out and stamped in one transaction, so a reader sees the counter and the events together
    return int(tx.execute(sa.select(t.counters.c.value).where(t.counters.c.name == "cursor")).scalar_one())
