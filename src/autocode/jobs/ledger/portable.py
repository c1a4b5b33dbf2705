"""A ledger as lines of JSON, a row a line: the same from either database, and read back into a new file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import sqlalchemy as sa

from autocode.jobs.canonical import canonical_json
from autocode.jobs.clock import parse_time, rfc3339
from autocode.jobs.errors import Transient
from autocode.jobs.ledger import attempts, audit
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database, new_epoch
from autocode.jobs.ledger.types import Json, UtcTime
from autocode.jobs.projection import Outcome

__all__ = [
    "AttemptNotRestored",
    "Form",
    "Needed",
    "begin_load",
    "columns",
    "end_load",
    "let_go",
    "lines",
    "load",
    "needed",
    "whose",
]

_BATCH: Final = 1000
"""Rows read and written at a time: the memory that a copy needs doesn't grow with the ledger."""

Form = Literal["json", "time", "plain"]
"""How a column is written: a JSON value, RFC 3339, or as it is."""

_MANY: Final = 250
"""Values in one statement; SQLite takes a thousand in every version."""

_FORMS: Final[dict[type[Any], Form]] = {Json: "json", UtcTime: "time"}
_TYPES: Final[dict[Form, type[sa.types.TypeEngine[Any]]]] = {
    "json": Json,
    "time": UtcTime,
    "plain": sa.types.NullType,
}
_TENTATIVE: Final = ("attempt:%", "upload:%")
"""Holders that refer to an object before it is in the store."""

_LONGEST_CHAIN: Final = 8
"""How many objects may need one another in a row; an export has two."""


class AttemptNotRestored(Transient):
    """The job was running when the backup was made that this ledger was restored from."""

    type = "attempt-not-restored"
    title = "The job was running when the backup was made"
    default_hint = "Nothing to do: the next attempt goes on from the last checkpoint in the backup."


@dataclass(frozen=True, slots=True)
class Needed:
    """An object that something in the ledger refers to.

    Args:
        digest: the object.
        size: its bytes of content.
        certain: it must be there; otherwise an attempt or an upload may still be about to write it.
    """

    digest: str
    size: int
    certain: bool


def columns() -> dict[str, dict[str, Form]]:
    """Return for each table, in an order in which rows can be inserted, how each column is written."""
    return {
        table.name: {column.name: _FORMS.get(type(column.type), "plain") for column in table.columns}
        for table in t.metadata.sorted_tables
    }


def lines(tx: sa.Connection, name: str) -> Iterator[bytes]:
    """Yield each row of the table *name* as a line of canonical JSON, in the order of its key."""
    table = t.metadata.tables[name]
    query = sa.select(table).order_by(*table.primary_key).execution_options(yield_per=_BATCH)
    with tx.execute(query) as rows:
        for row in rows.mappings():
            plain = {
                key: rfc3339(value) if isinstance(value, datetime) else value for key, value in row.items()
            }
            yield canonical_json(plain) + b"\n"


def needed(tx: sa.Connection) -> Iterator[Needed]:
    """Yield the objects that anything refers to, in the order of their digests."""
    tentative = sa.or_(*(t.references.c.holder.like(each) for each in _TENTATIVE))
    certain = sa.func.max(sa.case((tentative, 0), else_=1))
    query = (
        sa.select(t.objects.c.digest, t.objects.c.size, certain.label("certain"))
        .join(t.references, t.references.c.digest == t.objects.c.digest)
        .group_by(t.objects.c.digest, t.objects.c.size)
        # by their bytes: PostgreSQL would sort by the words of a language
        .order_by(sa.collate(t.objects.c.digest, "C" if tx.dialect.name == "postgresql" else "BINARY"))
        .execution_options(yield_per=_BATCH)
    )
    with tx.execute(query) as rows:
        for row in rows:
            yield Needed(row.digest, row.size, bool(row.certain))


def whose(db: Database, digest: str) -> list[str]:
    """Return the jobs that need the object, by themselves or through others, sorted; for people."""
    jobs: set[str] = set()
    asked, waiting = {digest}, [digest]
    with db.read() as tx:
        for _ in range(_LONGEST_CHAIN):
            holders = tx.execute(sa.select(t.references.c.holder).where(t.references.c.digest.in_(waiting)))
            made = tx.execute(sa.select(t.memo.c.job_id).where(t.memo.c.digest.in_(waiting)).distinct())
            jobs |= set(made.scalars())
            pairs = [holder.split(":", 1) for holder in holders.scalars()]
            jobs |= {name for kind, name in pairs if kind in {"job", "result"}}
            waiting = [name for kind, name in pairs if kind == "object" and name not in asked][:_MANY]
            asked |= set(waiting)
            if not waiting:
                break
    return sorted(jobs)


def begin_load(db: Database, revision: str, tables: Sequence[str]) -> None:
    """Give the empty database *db* the schema *revision*, without a row in any of *tables*."""
    db.migrate(revision)
    with db.write() as tx:
        for name in reversed(tables):
            tx.execute(sa.delete(sa.table(name)))


def load(db: Database, name: str, forms: Mapping[str, Form], rows: Iterable[bytes]) -> int:
    """Insert *rows*, as :func:`lines` wrote them, into the table *name*, and return their number. Atomic.

    Args:
        db: a database of the schema that the rows had.
        name: the table.
        forms: how each column is written; see :func:`columns`.
        rows: the lines.

    Raises:
        ValueError: a line isn't a row of this table.
        sqlalchemy.exc.SQLAlchemyError: the table takes no such row.
    """
    table = sa.table(name, *(sa.column(column, _TYPES[form]) for column, form in forms.items()))
    count = 0
    with db.write() as tx:
        batch: list[dict[str, Any]] = []
        for line in rows:
            batch.append(_row(line, name, forms))
            if len(batch) == _BATCH:
                tx.execute(sa.insert(table), batch)
                count += len(batch)
                batch = []
        if batch:
            tx.execute(sa.insert(table), batch)
    return count + len(batch)


def end_load(db: Database, *, actor: str, reason: str) -> str:
    """Make a ledger of its own of the rows in *db*, of the newest schema, and return its epoch.

    The audit says who restored it. Prefect, and readers of events, know the ledger that the rows come from by
    another epoch, so that nothing of its later life is taken for the new one's.
    """
    db.migrate()
    epoch = new_epoch()
    with db.write() as tx:
        key = t.meta.c.key == "epoch"
        before = tx.execute(sa.select(t.meta.c.value).where(key)).scalar_one()
        tx.execute(sa.update(t.meta).where(key).values(value=epoch))
        audit.append_in(
            tx,
            db.clock.now(),
            actor=actor,
            action="restore",
            target=f"ledger:{before}",
            reason=reason,
            outcome="restored",
            data={"epoch": epoch},
        )
    return epoch


def let_go(db: Database) -> None:
    """Part the jobs of a restored ledger from the processes and runs of the one that was backed up.

    An attempt that ran at the time of the backup is lost: its process isn't of this ledger. One that waited
    gets a run of this ledger's own, and of those that are over nobody tells Prefect any more. Idempotent.
    """
    open_ = t.attempts.c.ended_at.is_(None)
    begun = t.attempts.c.begun_at.is_not(None)
    with db.write() as tx:
        ran = tx.execute(sa.select(t.attempts.c.job_id, t.attempts.c.n).where(open_, begun)).all()
        waited = sa.update(t.attempts).where(open_, sa.not_(begun))
        tx.execute(waited.values(flow_run_id=None, holder=None))
    for row in ran:
        lost = AttemptNotRestored("The job was running when the backup was made.")
        error = {
            "type": lost.type,
            "title": lost.title,
            "detail": lost.detail,
            "hint": lost.hint,
            "step": None,
            "attempt": row.n,
            "retryable": True,
            "at": rfc3339(db.clock.now()),
        }
        attempts.end(db, row.job_id, row.n, Outcome.LOST, error=error)
    with db.write() as tx:
        tx.execute(sa.update(t.attempts).where(sa.not_(open_)).values(run_closed=True))


def _row(line: bytes, name: str, forms: Mapping[str, Form]) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or row.keys() != forms.keys():
        raise ValueError(f"a row of {name} has other columns than it should")
    for column, form in forms.items():
        if form == "time":
            row[column] = parse_time(row[column])
    return row
