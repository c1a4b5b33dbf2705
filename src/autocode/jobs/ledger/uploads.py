"""Objects that callers sent, and snapshots: named sets of them.

Nobody learns from here what others sent. An object counts as a caller's once it has sent every byte of it,
or where a snapshot that it may see has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from autocode.jobs.ledger import audit
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.access import Principal
from autocode.jobs.ledger.database import Database, insert_missing
from autocode.jobs.ledger.schema_uploads import snapshots

__all__ = [
    "UPLOAD_LIFETIME",
    "Named",
    "find_snapshot",
    "hold_snapshot",
    "name_snapshot",
    "note_upload",
    "release_uploads",
    "visible_objects",
]

UPLOAD_LIFETIME: Final = timedelta(days=7)
"""How long an upload is kept that no snapshot names, counted from its last repetition."""

_MANY: Final = 250
"""Values in one statement; SQLite takes a thousand in every version."""

_UPLOAD: Final = "upload:"


@dataclass(frozen=True, slots=True)
class Named:
    """A snapshot as one caller named it.

    Args:
        digest: the snapshot.
        session_id: whose session it belongs to, where there is one.
        created_at: when it was named first.
    """

    digest: str
    session_id: str | None
    created_at: datetime


def note_upload(db: Database, caller: Principal, digest: str, size: int) -> bool:
    """Refer to an object that *caller* sent whole, before it becomes visible; say whether it is news.

    The reference is tentative: :data:`UPLOAD_LIFETIME` after the last call it is dropped, by the caller's
    next upload or by :func:`release_uploads`. Idempotent, atomic.

    Args:
        db: the ledger.
        caller: who sent it.
        digest: its digest, compared with the bytes that came.
        size: number of its bytes.

    Returns:
        Whether *caller* hadn't sent it before. What others sent changes nothing in the answer.
    """
    holder = f"{_UPLOAD}{caller.token_id}"
    ours = (t.references.c.digest == digest, t.references.c.holder == holder)
    with db.write() as tx:
        now = db.clock.now()
        insert_missing(tx, t.objects, digest=digest, size=size, state="live", created_at=now)
        # the row's lock: of the same upload many times at once one is news
        tx.execute(sa.update(t.objects).where(t.objects.c.digest == digest).values(state="live"))
        new = insert_missing(tx, t.references, digest=digest, holder=holder, at=now)
        if not new:
            tx.execute(sa.update(t.references).where(*ours).values(at=now))
        tx.execute(sa.delete(t.references).where(t.references.c.holder == holder, _expired(now)))
    return new


def release_uploads(db: Database) -> int:
    """Drop the references of uploads that are older than they are kept; return how many. Idempotent.

    Objects of a snapshot have references of their own and stay.
    """
    with db.write() as tx:
        old = sa.delete(t.references).where(
            t.references.c.holder.startswith(_UPLOAD), _expired(db.clock.now())
        )
        return tx.execute(old).rowcount


def visible_objects(db: Database, caller: Principal, digests: Sequence[str]) -> dict[str, int]:
    """Return the sizes of those of *digests* that *caller* sent, or that a snapshot has which it may see."""
    named = sa.exists().where(
        t.references.c.holder == sa.literal("object:").concat(snapshots.c.digest), *_seen_by(caller)
    )
    sent = t.references.c.holder == f"{_UPLOAD}{caller.token_id}"
    found: dict[str, int] = {}
    with db.read() as tx:
        for some in _batches(sorted(set(digests))):
            query = (
                sa.select(t.objects.c.digest, t.objects.c.size)
                .join(t.references, t.references.c.digest == t.objects.c.digest)
                .where(t.objects.c.digest.in_(some), sa.or_(sent, named))
            )
            found.update({row.digest: row.size for row in tx.execute(query)})
    return found


def name_snapshot(
    db: Database,
    caller: Principal,
    session_id: str | None,
    digest: str,
    members: Sequence[str],
    *,
    request_id: str | None = None,
) -> tuple[Named, bool]:
    """Name a snapshot whose object is in the store, and refer to it and to its members. Idempotent, atomic.

    Where it is new the audit has an entry.

    Args:
        db: the ledger.
        caller: who names it.
        session_id: whose session it belongs to; the same files may be named for several.
        digest: the snapshot, which :func:`note_upload` knows.
        members: the digests of its files, which *caller* may see.
        request_id: the request that asks, for the audit.

    Returns:
        The naming, and whether it is new.
    """
    key = {"digest": digest, "owner": caller.token_id, "session_id": session_id or ""}
    insert = postgresql.insert if db.dialect == "postgresql" else sqlite.insert
    with db.write() as tx:
        now = db.clock.now()
        held = [
            (digest, f"snapshot:{digest}"),
            *((each, f"object:{digest}") for each in sorted(set(members))),
        ]
        tx.execute(
            insert(t.references).on_conflict_do_nothing(),
            [{"digest": each, "holder": holder, "at": now} for each, holder in held],
        )
        created = insert_missing(tx, snapshots, **key, created_at=now)
        same = [snapshots.c[name] == value for name, value in key.items()]
        at = tx.execute(sa.select(snapshots.c.created_at).where(*same)).scalar_one()
        if created:
            # the counter of the audit stays locked until the end, so its entry comes last
            audit.append_in(
                tx,
                now,
                actor=caller.actor,
                action="snapshot",
                target=f"snapshot:{digest}",
                reason="",
                outcome="accepted",
                request_id=request_id,
                after={"session_id": session_id, "files": len(members)},
            )
    return Named(digest, session_id, at), created


def find_snapshot(db: Database, caller: Principal, digest: str) -> Named | None:
    """Return a snapshot that *caller* may see; ``None`` where there is none, or it is somebody else's.

    A caller sees what it named itself, and what belongs to a session whose jobs it sees.
    """
    with db.read() as tx:
        row = tx.execute(_first(caller, digest)).first()
    return None if row is None else Named(row.digest, row.session_id or None, row.created_at)


def hold_snapshot(
    tx: sa.Connection, caller: Principal, digest: str, *, session_id: str | None, job_id: str, now: datetime
) -> bool:
    """Let a job of *session_id* hold a snapshot, in the caller's transaction; say whether it may. Idempotent.

    It may if *caller* sees a naming of it that belongs to the same session or to none: what a session holds
    must not come to those who see another one's jobs.
    """
    mine = _first(caller, digest).where(snapshots.c.session_id.in_(["", session_id or ""]))
    if tx.execute(mine).first() is None:
        return False
    insert = postgresql.insert if tx.dialect.name == "postgresql" else sqlite.insert
    held = {"digest": digest, "holder": f"job:{job_id}", "at": now}
    tx.execute(insert(t.references).on_conflict_do_nothing(), [held])
    return True


def _expired(now: datetime) -> sa.ColumnElement[bool]:
    return t.references.c.at < now - UPLOAD_LIFETIME


def _first(caller: Principal, digest: str) -> sa.Select[Any]:
    return (
        sa.select(snapshots)
        .where(snapshots.c.digest == digest, *_seen_by(caller))
        .order_by(snapshots.c.created_at, snapshots.c.owner, snapshots.c.session_id)
        .limit(1)
    )


def _seen_by(caller: Principal) -> Sequence[sa.ColumnElement[bool]]:
    if caller.sessions is None:
        return ()
    own = snapshots.c.owner == caller.token_id
    return (sa.or_(own, snapshots.c.session_id.in_(sorted(caller.sessions))),)


def _batches(values: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(values), _MANY):
        yield values[start : start + _MANY]
