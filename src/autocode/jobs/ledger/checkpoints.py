"""What steps produced: memo, checkpoint and references, committed together under the fence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from autocode.jobs.ledger import jobs
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.attempts import Attempt, attempt_holder, hold
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.events import Fact, record_all
from autocode.jobs.ledger.memo import MemoKey, Produced

__all__ = [
    "MemoKey",
    "Produced",
    "StepCommit",
    "commit_step",
    "commit_steps",
    "forget",
    "lookup",
    "lookup_all",
    "refer",
    "reserve",
    "reserve_all",
]


_REUSED: Final = 0
"""The fence of a memo of which nobody knows under which fence its object was made."""

_MANY: Final = 250
"""Values in one statement; SQLite takes a thousand in every version."""


@dataclass(frozen=True, slots=True)
class StepCommit:
    """One step to commit.

    Args:
        key: the memo's key.
        produced: the step's object; every object that it needs was reserved before.
        label: the step as people see it, unique within the job (``read claude-code/1f0c…``).
        reused: whether the object came from the memo.
    """

    key: MemoKey
    produced: Produced
    label: str
    reused: bool


def lookup(db: Database, key: MemoKey, *, above: int | None = None) -> Produced | None:
    """Return what the step produced for these inputs before, or ``None``; see :func:`lookup_all`."""
    return lookup_all(db, [key], above=above).get(key)


def lookup_all(db: Database, keys: Iterable[MemoKey], *, above: int | None = None) -> dict[MemoKey, Produced]:
    """Return what is remembered under each of *keys*, where anything is, as of one moment.

    Each is a hint: verify it in the store.

    Args:
        db: the ledger.
        keys: what to look for.
        above: only what was made under a higher fence counts (``Attempt.fresh_fence``); ``None``: all does.
    """
    recent = () if above is None else (t.memo.c.fence > above,)
    wanted: dict[tuple[str, str, int], list[str]] = {}
    for key in keys:
        wanted.setdefault((key.kind, key.step, key.revision), []).append(key.inputs)
    found: dict[MemoKey, Produced] = {}
    with db.read() as tx:
        for (kind, step, revision), inputs in wanted.items():
            for some in _batches(inputs):
                rows = tx.execute(
                    sa.select(t.memo).where(
                        t.memo.c.kind == kind,
                        t.memo.c.step == step,
                        t.memo.c.revision == revision,
                        t.memo.c.inputs.in_(some),
                        *recent,
                    )
                ).all()
                needs = _needs(tx, [row.digest for row in rows])
                for row in rows:
                    found[MemoKey(kind, step, revision, row.inputs)] = Produced(
                        row.digest, row.size, row.media_type, needs[row.digest]
                    )
    return found


def forget(db: Database, key: MemoKey) -> None:
    """Drop a memo whose object turned out damaged or missing. Idempotent."""
    with db.write() as tx:
        tx.execute(sa.delete(t.memo).where(*_key(key)))
        tx.execute(sa.delete(t.references).where(t.references.c.holder == key.holder))


def reserve(db: Database, attempt: Attempt, digest: str, size: int) -> None:
    """Reference an object tentatively, before its bytes become visible; see :func:`reserve_all`."""
    reserve_all(db, attempt, [(digest, size)])


def reserve_all(db: Database, attempt: Attempt, objects: Iterable[tuple[str, int]]) -> None:
    """Reference objects, given by digest and size, before their bytes become visible, in one transaction.

    An object's row is the lock between writers and prune: whoever holds a reference is safe from it.

    Raises:
        AttemptEnded: the attempt was ended.
    """
    with db.write() as tx:
        now = db.clock.now()
        hold(tx, attempt, now)
        holder = attempt_holder(attempt.job_id, attempt.n)
        _refer_all(tx, [(digest, size, holder) for digest, size in objects], now)


def refer(tx: sa.Connection, digest: str, size: int, holder: str, now: datetime) -> None:
    """Make *holder* hold the object, in the caller's transaction. Idempotent."""
    _refer_all(tx, [(digest, size, holder)], now)


def commit_step(
    db: Database, attempt: Attempt, key: MemoKey, produced: Produced, *, label: str, reused: bool
) -> None:
    """Commit one step; see :func:`commit_steps`."""
    commit_steps(db, attempt, [StepCommit(key, produced, label, reused)])


def commit_steps(db: Database, attempt: Attempt, commits: Sequence[StepCommit]) -> None:
    """Commit memo, references and checkpoint of each step under the fence, in one transaction.

    A checkpoint that the job already has for a step, with the same digest, isn't written again: the history
    of a job that crashed equals that of one that didn't, but for who did what. In a job that starts afresh
    only checkpoints since then count, so that the history shows what was done again. Checkpoints get their
    numbers in the order of *commits*.

    A memo gets the fence of the attempt that made the object; reusing it leaves that fence as it is.

    Raises:
        AttemptEnded: the attempt was ended; nothing was written.
    """
    with db.write() as tx:
        jobs.lock(tx, attempt.job_id)
        now = db.clock.now()
        hold(tx, attempt, now)
        _remember(tx, attempt, commits, now)
        last = _last(tx, attempt, [each.label for each in commits])
        new = [each for each in commits if last.get(each.label) != each.produced.digest]
        first = _next_seq(tx, attempt.job_id) if new else 0
        rows = [
            {
                "job_id": attempt.job_id,
                "seq": seq,
                "step": each.label,
                "digest": each.produced.digest,
                "attempt": attempt.n,
                "at": now,
                "reused": each.reused,
            }
            for seq, each in enumerate(new, first)
        ]
        _execute(tx, sa.insert(t.checkpoints), rows)
        holder = f"job:{attempt.job_id}"
        _refer_all(tx, [(each.produced.digest, each.produced.size, holder) for each in new], now)
        record_all(tx, attempt.job_id, Fact.CHECKPOINT, [{"seq": row["seq"]} for row in rows], now)


def _remember(tx: sa.Connection, attempt: Attempt, commits: Sequence[StepCommit], now: datetime) -> None:
    insert = postgresql.insert if tx.dialect.name == "postgresql" else sqlite.insert
    statement = insert(t.memo)
    given = statement.excluded
    set_: dict[str, Any] = {name: given[name] for name in ("digest", "size", "media_type", "job_id", "at")}
    # who reuses an object didn't make it; if the memo names another by now, nobody knows who made this one
    set_["fence"] = sa.case(
        (given.fence > _REUSED, given.fence), (t.memo.c.digest == given.digest, t.memo.c.fence), else_=_REUSED
    )
    unique = ["kind", "step", "revision", "inputs"]
    # two jobs that remember the same steps take the rows in the same order, so neither waits for the other
    ordered = sorted(commits, key=lambda each: each.key.holder)
    rows = [
        {
            "kind": each.key.kind,
            "step": each.key.step,
            "revision": each.key.revision,
            "inputs": each.key.inputs,
            "digest": each.produced.digest,
            "size": each.produced.size,
            "media_type": each.produced.media_type,
            "job_id": attempt.job_id,
            "fence": _REUSED if each.reused else attempt.fence,
            "at": now,
        }
        for each in ordered
    ]
    _execute(tx, statement.on_conflict_do_update(index_elements=unique, set_=set_), rows)
    stale = sa.delete(t.references).where(
        t.references.c.holder == sa.bindparam("by"), t.references.c.digest != sa.bindparam("kept")
    )
    _execute(tx, stale, [{"by": each.key.holder, "kept": each.produced.digest} for each in ordered])
    _refer_all(tx, [(each.produced.digest, each.produced.size, each.key.holder) for each in ordered], now)
    needed = {
        (digest, _object_holder(each.produced.digest)) for each in ordered for digest in each.produced.needs
    }
    _execute(
        tx,
        insert(t.references).on_conflict_do_nothing(),
        [{"digest": digest, "holder": holder, "at": now} for digest, holder in sorted(needed)],
    )


def _refer_all(tx: sa.Connection, held: Iterable[tuple[str, int, str]], now: datetime) -> None:
    insert = postgresql.insert if tx.dialect.name == "postgresql" else sqlite.insert
    ordered = sorted(set(held))
    sizes = {digest: size for digest, size, _ in ordered}
    _execute(
        tx,
        insert(t.objects).on_conflict_do_nothing(),
        [
            {"digest": digest, "size": size, "state": "live", "created_at": now}
            for digest, size in sizes.items()
        ],
    )
    alive = sa.update(t.objects).where(t.objects.c.digest == sa.bindparam("named")).values(state="live")
    _execute(tx, alive, [{"named": digest} for digest in sizes])
    _execute(
        tx,
        insert(t.references).on_conflict_do_nothing(),
        [{"digest": digest, "holder": holder, "at": now} for digest, _, holder in ordered],
    )


def _execute(tx: sa.Connection, statement: sa.Executable, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        tx.execute(statement, rows)


def _last(tx: sa.Connection, attempt: Attempt, labels: Sequence[str]) -> dict[str, str]:
    """Return the digest of the newest checkpoint of each label that the job has and that still counts."""
    job_id = attempt.job_id
    since = 0
    if attempt.fresh_fence is not None:
        earlier = sa.select(sa.func.max(t.attempts.c.n)).where(
            t.attempts.c.job_id == job_id, t.attempts.c.fence <= attempt.fresh_fence
        )
        since = tx.execute(earlier).scalar() or 0
    last: dict[str, str] = {}
    for some in _batches(labels):
        query = (
            sa.select(t.checkpoints.c.step, t.checkpoints.c.digest)
            .where(
                t.checkpoints.c.job_id == job_id,
                t.checkpoints.c.step.in_(some),
                t.checkpoints.c.attempt > since,
            )
            .order_by(t.checkpoints.c.seq)
        )
        last.update({row.step: row.digest for row in tx.execute(query)})
    return last


def _needs(tx: sa.Connection, digests: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return for each object the digests of those that it needs, sorted."""
    holders = {_object_holder(digest): digest for digest in digests}
    found: dict[str, list[str]] = {digest: [] for digest in digests}
    query = (
        sa.select(t.references.c.holder, t.references.c.digest)
        .where(t.references.c.holder.in_(list(holders)))
        .order_by(t.references.c.digest)
    )
    for row in tx.execute(query) if holders else ():
        found[holders[row.holder]].append(row.digest)
    return {digest: tuple(needs) for digest, needs in found.items()}


def _batches(values: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(values), _MANY):
        yield values[start : start + _MANY]


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
