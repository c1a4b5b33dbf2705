"""Who did what, and why: append-only, each entry chained to the one before by its digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.clock import rfc3339
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database

__all__ = [
    "GENESIS",
    "CalledOff",
    "append",
    "append_in",
    "broken_link",
    "broken_link_in",
    "called_off",
    "entries",
]

GENESIS: Final = digest_of(b"")
"""What the first entry names as the one before it."""


@dataclass(frozen=True, slots=True)
class CalledOff:
    """Who called a job off, when, and why."""

    at: datetime
    actor: str
    reason: str


def append(
    db: Database,
    *,
    actor: str,
    action: str,
    target: str,
    reason: str,
    outcome: str,
    data: Mapping[str, Any] | None = None,
    request_id: str | None = None,
) -> int:
    """Append an entry in a transaction of its own; see :func:`append_in`. Atomic."""
    with db.write() as tx:
        return append_in(
            tx,
            db.clock.now(),
            actor=actor,
            action=action,
            target=target,
            reason=reason,
            outcome=outcome,
            data=data,
            request_id=request_id,
        )


def append_in(
    tx: sa.Connection,
    now: datetime,
    *,
    actor: str,
    action: str,
    target: str,
    reason: str,
    outcome: str,
    data: Mapping[str, Any] | None = None,
    request_id: str | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> int:
    """Append an entry in the caller's transaction, so that the deed and its record are one.

    A locked counter row keeps the chain from forking until the caller commits: append last.

    Args:
        tx: the caller's transaction.
        now: when it was done.
        actor: who did it, as the caller proved it.
        action: what was done (``retry``, ``cancel``).
        target: to what; of a job, its id.
        reason: why, in the actor's own words.
        outcome: what came of it.
        data: JSON values that say more.
        request_id: the request that it was done by, where there was one; it goes into ``data``.
        before: how what was changed stood before; it goes into ``data``.
        after: how it stands now; it goes into ``data``.

    Returns:
        The entry's number.
    """
    counter = (
        sa.update(t.counters)
        .where(t.counters.c.name == "audit")
        .values(value=t.counters.c.value + 1)
        .returning(t.counters.c.value)
    )
    seq = int(tx.execute(counter).scalar_one())
    said = {"request_id": request_id, "before": before, "after": after}
    before = tx.execute(sa.select(t.audit.c.digest).where(t.audit.c.seq == seq - 1)).scalar()
    entry = {
        "seq": seq,
        "at": now,
        "actor": actor,
        "action": action,
        "target": target,
        "reason": reason,
        "outcome": outcome,
        "data": {**(data or {}), **{name: value for name, value in said.items() if value is not None}},
        "previous": before or GENESIS,
    }
    tx.execute(sa.insert(t.audit).values(**entry, digest=_digest(entry)))
    return seq


def entries(db: Database, *, target: str | None = None) -> Sequence[sa.Row[Any]]:
    """Return the entries in order, all or those about *target*."""
    query = sa.select(t.audit).order_by(t.audit.c.seq)
    if target is not None:
        query = query.where(t.audit.c.target == target)
    with db.read() as tx:
        return tx.execute(query).all()


def called_off(db: Database, job_id: str) -> CalledOff | None:
    """Return who called the job off last; ``None`` where nobody did, or it was retried since."""
    query = (
        sa.select(t.audit)
        .where(
            t.audit.c.target == job_id,
            t.audit.c.action.in_(("retry", "cancel")),
            t.audit.c.outcome == "accepted",
        )
        .order_by(t.audit.c.seq.desc())
        .limit(1)
    )
    with db.read() as tx:
        last = tx.execute(query).first()
    if last is None or last.action != "cancel":
        return None
    return CalledOff(last.at, last.actor, last.reason)


def broken_link(db: Database) -> int | None:
    """Return the number of the first entry that was altered, removed or inserted, or ``None``.

    The ledger's own count of entries shows what was cut off or added at the end. No key is involved: a
    person who rewrites every later entry and the count leaves no trace here, but doesn't pass a check against
    a head that was saved elsewhere: :func:`autocode.jobs.ledger.audit_log.verify`.
    """
    with db.read(patient=True) as tx:
        return broken_link_in(tx)


def broken_link_in(tx: sa.Connection) -> int | None:
    """Return what :func:`broken_link` does, in the caller's transaction."""
    query = sa.select(t.audit).order_by(t.audit.c.seq).execution_options(yield_per=1000)
    previous, seen = GENESIS, 0
    with tx.execute(query) as found:
        count = tx.execute(sa.select(t.counters.c.value).where(t.counters.c.name == "audit")).scalar_one()
        for row in found:
            seen += 1
            entry = dict(row._mapping)  # noqa: SLF001 - Row._mapping is SQLAlchemy's documented name
            digest = entry.pop("digest")
            if row.seq != seen or seen > count or row.previous != previous or _digest(entry) != digest:
                return seen
            previous = digest
    return None if seen == count else seen + 1


def _digest(entry: Mapping[str, Any]) -> str:
    return digest_of(canonical_json({**entry, "at": rfc3339(entry["at"])}))
