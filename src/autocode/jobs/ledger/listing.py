"""Lists of jobs: filtered, in pages that inserts don't shift, with counts under the same filter."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.clock import parse_time, rfc3339
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger import scopes
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.queries import load_many, newest_first, resource
from autocode.jobs.ledger.words import storable
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.resource import Job

__all__ = ["EVERYTHING", "LARGEST_PAGE", "Counts", "Filter", "Page", "counts", "page"]

LARGEST_PAGE: Final = 500
"""How many jobs one page holds at most."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs are meant; a field that isn't given leaves every job in.

    Args:
        status: in one of these states; the empty set means no job.
        reason: dead for one of these reasons. Dead letters are all but ``cancelled``.
        kind: of this kind.
        session_id: of this session.
        sessions: what the reader may see, by the rule of ``ledger.scopes``: jobs all of whose sessions
            are among these. The empty set means no job.
        origin: asked for by ``cli``, ``api`` or ``prefect``.
        q: this text is part of the job's id, its kind or its session's id; capitals don't matter.

    Raises:
        UsageError: a text that no database can hold.
    """

    status: frozenset[JobStatus] | None = None
    reason: frozenset[DeadReason] | None = None
    kind: str | None = None
    session_id: str | None = None
    sessions: frozenset[str] | None = None
    origin: str | None = None
    q: str | None = None

    def __post_init__(self) -> None:
        for name in ("kind", "session_id", "origin", "q"):
            storable(getattr(self, name) or "", name)
        for session in self.sessions or ():
            storable(session, "session_id")

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Return the filter as conditions on ``jobs`` joined with ``statuses``."""
        found: list[sa.ColumnElement[bool]] = []
        columns: tuple[tuple[sa.Column[Any], frozenset[Any] | None], ...] = (
            (t.statuses.c.status, self.status),
            (t.statuses.c.reason, self.reason),
        )
        found += [column.in_(sorted(map(str, some))) for column, some in columns if some is not None]
        exact = {"kind": self.kind, "session_id": self.session_id, "origin": self.origin}
        found += [t.jobs.c[name] == value for name, value in exact.items() if value is not None]
        found += scopes.conditions(self.sessions)
        if self.q:
            places = (t.jobs.c.job_id, t.jobs.c.kind, t.jobs.c.session_id)
            found.append(sa.or_(*(place.icontains(self.q, autoescape=True) for place in places)))
        return found

    @property
    def digest(self) -> str:
        """By what a page's token knows the filter that it belongs to."""
        given = {
            name: sorted(map(str, value)) if isinstance(value, frozenset) else value
            for name, value in asdict(self).items()
        }
        return digest_of(canonical_json(given)).removeprefix("sha256:")[:16]


EVERYTHING: Final = Filter()
"""The filter that leaves every job in."""


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first, as of one moment.

    Args:
        jobs: the jobs; like what an event shows, with an empty ``history``.
        next_token: what asks for the page after this; ``None`` on the last.
        event_cursor: the last event that these jobs reflect: a reader goes on with the events after it.
    """

    jobs: tuple[Job, ...]
    next_token: str | None
    event_cursor: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs are in each state, as of one moment.

    Args:
        by_status: every state, also with 0.
        dead: the dead ones by reason, every reason, also with 0.
        as_of: when they were counted.
        event_cursor: the last event that the counts reflect.
    """

    by_status: Mapping[JobStatus, int]
    dead: Mapping[DeadReason, int]
    as_of: datetime
    event_cursor: int

    @property
    def total(self) -> int:
        """How many jobs there are in all."""
        return sum(self.by_status.values())


def page(db: Database, chosen: Filter = EVERYTHING, *, size: int = 50, token: str | None = None) -> Page:
    """Return up to *size* jobs, newest first, from where *token* says.

    Jobs that are accepted meanwhile don't shift what follows. A constant number of queries, however long
    the page.

    Raises:
        UsageError: *size* isn't from 1 to 500, or *token* isn't one that this filter gave.
    """
    if not 1 <= size <= LARGEST_PAGE:
        raise UsageError(f"A page of {size} jobs is none.", hint=f"Ask for 1 to {LARGEST_PAGE}.")
    conditions = chosen.conditions()
    if token is not None:
        conditions.append(_after(*_read_token(token, chosen)))
    query = newest_first(sa.select(t.jobs.c.job_id, t.jobs.c.enqueued_at).join(t.statuses)).where(*conditions)
    with db.read() as tx:
        found = tx.execute(query.limit(size + 1)).all()
        shown = found[:size]
        rows = load_many(tx, [row.job_id for row in shown], reach="newest")
        cursor = _cursor(tx)
    more = len(found) > size
    return Page(
        jobs=tuple(resource(each, each.status._mapping, with_history=False) for each in rows),  # noqa: SLF001 - Row._mapping is SQLAlchemy's documented name
        next_token=_write_token(shown[-1].enqueued_at, shown[-1].job_id, chosen) if more else None,
        event_cursor=cursor,
    )


def counts(db: Database, chosen: Filter = EVERYTHING) -> Counts:
    """Count the jobs that *chosen* leaves in: those, and only those, that :func:`page` lists."""
    query = (
        sa.select(t.statuses.c.status, t.statuses.c.reason, sa.func.count().label("jobs"))
        .select_from(t.jobs.join(t.statuses))
        .where(*chosen.conditions())
        .group_by(t.statuses.c.status, t.statuses.c.reason)
    )
    by_status = dict.fromkeys(JobStatus, 0)
    dead = dict.fromkeys(DeadReason, 0)
    with db.read() as tx:
        for row in tx.execute(query):
            by_status[JobStatus(row.status)] += row.jobs
            if row.reason is not None:
                dead[DeadReason(row.reason)] += row.jobs
        cursor = _cursor(tx)
    return Counts(by_status, dead, db.clock.now(), cursor)


def _cursor(tx: sa.Connection) -> int:
    # handed out and stamped in one transaction, so a reader sees the counter and the events together
    query = sa.select(t.counters.c.value).where(t.counters.c.name == "cursor")
    return int(tx.execute(query).scalar_one())


def _after(at: datetime, job_id: str) -> sa.ColumnElement[bool]:
    return sa.or_(t.jobs.c.enqueued_at < at, sa.and_(t.jobs.c.enqueued_at == at, t.jobs.c.job_id < job_id))


def _write_token(at: datetime, job_id: str, chosen: Filter) -> str:
    text = canonical_json([rfc3339(at), job_id, chosen.digest])
    return base64.urlsafe_b64encode(text).decode("ascii").rstrip("=")


def _read_token(token: str, chosen: Filter) -> tuple[datetime, str]:
    hint = "Start again without a token, or keep the filter of the page that gave it."
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        at, job_id, digest = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        moment = parse_time(at)
        storable(job_id, "token")
    except (ValueError, TypeError, RecursionError, binascii.Error, UsageError):
        moment, job_id, digest = None, "", ""
    if moment is None:
        raise UsageError("The page's token can't be read.", hint=hint)
    if digest != chosen.digest:
        raise UsageError("The page's token belongs to another filter.", hint=hint)
    return moment, job_id
