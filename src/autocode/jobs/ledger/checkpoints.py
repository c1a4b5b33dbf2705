"""What steps produced: memo, checkpoint and references, committed together under the fence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from autocode.jobs.ledger import jobs
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.attempts import Attempt, attempt_holder, hold
from autocode.jobs.ledger.database import Database, insert_missing
from autocode.jobs.ledger.events import Fact, record

__all__ = ["MemoKey", "Produced", "commit_step", "forget", "lookup", "refer", "reserve"]


@dataclass(frozen=True, slots=True)
class MemoKey:
    """Which step, of which revision, on which inputs."""

    kind: str
    step: str
    revision: int
    inputs: str

    @property
    def holder(self) -> str:
        """The name under which the memo holds its object."""
        return f"memo:{self.kind}:{self.step}:{self.revision}:{self.inputs.removeprefix('sha256:')[:32]}"


@dataclass(frozen=True, slots=True)
class Produced:
    """An object that a step left in the store, and the objects that it names.

    Args:
        digest: the object's digest.
        size: its size in bytes, uncompressed.
        media_type: what it is.
        needs: digests of the objects without which it means nothing.
    """

    digest: str
    size: int
    media_type: str
    needs: tuple[str, ...] = ()


def lookup(db: Database, key: MemoKey) -> Produced | None:
    """Return what the step produced for these inputs before, or ``None``. A hint: verify it in the store."""
    with db.read() as tx:
        row = tx.execute(sa.select(t.memo).where(*_key(key))).first()
        if row is None:
            return None
        needs = tx.execute(
            sa.select(t.references.c.digest)
            .where(t.references.c.holder == _object_holder(row.digest))
            .order_by(t.references.c.digest)
        ).scalars()
        return Produced(row.digest, row.size, row.media_type, tuple(needs))


def forget(db: Database, key: MemoKey) -> None:
    """Drop a memo whose object turned out damaged or missing. Idempotent."""
    with db.write() as tx:
        tx.execute(sa.delete(t.memo).where(*_key(key)))
        tx.execute(sa.delete(t.references).where(t.references.c.holder == key.holder))


def reserve(db: Database, attempt: Attempt, digest: str, size: int) -> None:
    """Reference an object tentatively, before its bytes become visible in the store.

    The object's row is the lock between writers and prune: whoever holds a reference is safe from it.

    Raises:
        AttemptEnded: the attempt was ended.
    """
    with db.write() as tx:
        now = db.clock.now()
        hold(tx, attempt, now)
        refer(tx, digest, size, attempt_holder(attempt.job_id, attempt.n), now)


def refer(tx: sa.Connection, digest: str, size: int, holder: str, now: datetime) -> None:
    """Make *holder* hold the object, in the caller's transaction. Idempotent."""
    insert_missing(tx, t.objects, digest=digest, size=size, state="live", created_at=now)
    tx.execute(sa.update(t.objects).where(t.objects.c.digest == digest).values(state="live"))
    insert_missing(tx, t.references, digest=digest, holder=holder, at=now)


def commit_step(
    db: Database, attempt: Attempt, key: MemoKey, produced: Produced, *, label: str, reused: bool
) -> None:
    """Commit a step's memo, references and checkpoint under the fence, in one transaction.

    A checkpoint that the job already has for this step, with the same digest, isn't written again: the
    history of a job that crashed equals that of one that didn't, but for who did what.

    Args:
        db: the ledger.
        attempt: who commits.
        key: the memo's key.
        produced: the step's object; every object that it needs was reserved before.
        label: the step as people see it, unique within the job (``read claude-code/1f0c…``).
        reused: whether the object came from the memo.

    Raises:
        AttemptEnded: the attempt was ended; nothing was written.
    """
    with db.write() as tx:
        jobs.lock(tx, attempt.job_id)
        now = db.clock.now()
        hold(tx, attempt, now)
        _remember(tx, attempt, key, produced, now)
        last = tx.execute(
            sa.select(t.checkpoints.c.digest)
            .where(t.checkpoints.c.job_id == attempt.job_id, t.checkpoints.c.step == label)
            .order_by(t.checkpoints.c.seq.desc())
            .limit(1)
        ).scalar()
        if last == produced.digest:
            return
        seq = _next_seq(tx, attempt.job_id)
        tx.execute(
            sa.insert(t.checkpoints).values(
                job_id=attempt.job_id,
                seq=seq,
                step=label,
                digest=produced.digest,
                attempt=attempt.n,
                at=now,
                reused=reused,
            )
        )
        refer(tx, produced.digest, produced.size, f"job:{attempt.job_id}", now)
        record(tx, attempt.job_id, Fact.CHECKPOINT, {"seq": seq}, now)


def _remember(tx: sa.Connection, attempt: Attempt, key: MemoKey, produced: Produced, now: datetime) -> None:
    insert = postgresql.insert if tx.dialect.name == "postgresql" else sqlite.insert
    values = {
        "digest": produced.digest,
        "size": produced.size,
        "media_type": produced.media_type,
        "job_id": attempt.job_id,
        "at": now,
    }
    statement = insert(t.memo).values(
        kind=key.kind, step=key.step, revision=key.revision, inputs=key.inputs, **values
    )
    unique = ["kind", "step", "revision", "inputs"]
    tx.execute(statement.on_conflict_do_update(index_elements=unique, set_=values))
    tx.execute(
        sa.delete(t.references).where(
            t.references.c.holder == key.holder, t.references.c.digest != produced.digest
        )
    )
    refer(tx, produced.digest, produced.size, key.holder, now)
    for needed in produced.needs:
        insert_missing(tx, t.references, digest=needed, holder=_object_holder(produced.digest), at=now)


def _next_seq(tx: sa.Connection, job_id: str) -> int:
    newest = sa.select(sa.func.max(t.checkpoints.c.seq)).where(t.checkpoints.c.job_id == job_id)
    return (tx.execute(newest).scalar() or 0) + 1


def _object_holder(digest: str) -> str:
    return f"object:{digest}"


def _key(key: MemoKey) -> Sequence[sa.ColumnElement[bool]]:
    columns: Any = t.memo.c
    return (
        columns.kind == key.kind,
        columns.step == key.step,
        columns.revision == key.revision,
        columns.inputs == key.inputs,
    )
