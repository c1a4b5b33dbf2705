"""Small things that the tests of the ledger build their situations from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from autocode.jobs.canonical import digest_of
from autocode.jobs.ledger import attempts, checkpoints, events, jobs, schema, statuses
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.checkpoints import MemoKey, Produced
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.jobs import NewJob
from autocode.jobs.projection import Lease, RunState
from autocode.jobs.retry import Backoff

PAUSE = Backoff(first=1.0, factor=2.0, ceiling=8.0, jitter=0.5)


class TickingClock:
    """A clock that moves by one millisecond with every look, so that no two facts share a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        """Return the next millisecond."""
        with self._lock:
            self._now += timedelta(milliseconds=1)
            return self._now

    def monotonic(self) -> float:
        """Return the same clock in seconds."""
        return self.now().timestamp()


def new_job(job_id: str = "job", **changes: Any) -> NewJob:
    """Return a request for a job with three attempts; *changes* override its fields."""
    fields: dict[str, Any] = {
        "job_id": job_id,
        "kind": "noop",
        "payload": {"size": 1},
        "max_attempts": 3,
        "backoff": PAUSE,
        "time_limit": 60.0,
    }
    return NewJob(**{**fields, **changes})


def begin(db: Database, job_id: str = "job", n: int = 1) -> Attempt:
    """Begin attempt *n* as the flow run that it would have."""
    return attempts.begin(db, job_id, n, flow_run_id=f"{job_id}-run-{n}"[:36], holder="worker")


def started(db: Database, job_id: str = "job", **changes: Any) -> Attempt:
    """Enqueue a job and begin its first attempt."""
    jobs.enqueue(db, new_job(job_id, **changes))
    return begin(db, job_id)


def problem(detail: str = "It broke.", attempt: int = 1) -> dict[str, Any]:
    """Return an error as the contract writes it."""
    return {
        "type": "transient",
        "title": "A temporary failure",
        "detail": detail,
        "hint": "Wait.",
        "step": None,
        "attempt": attempt,
        "retryable": True,
        "at": "2025-03-01T12:00:00.000Z",
    }


def produced(text: str, *needs: str) -> Produced:
    """Return the object whose bytes are *text*."""
    return Produced(
        digest_of(text.encode()), len(text), "text/plain", tuple(digest_of(n.encode()) for n in needs)
    )


def memo_key(step: str = "read", inputs: str = "in") -> MemoKey:
    """Return a memo key of the test kind."""
    return MemoKey("noop", step, 1, digest_of(inputs.encode()))


def commit(
    db: Database, attempt: Attempt, text: str, *, label: str | None = None, reused: bool = False
) -> None:
    """Commit the step that produces *text*, under a label and inputs of its own."""
    checkpoints.commit_step(
        db, attempt, memo_key(inputs=text), produced(text), label=label or f"read {text}", reused=reused
    )


def look(db: Database, job_id: str = "job", run: RunState | None = None, lease: Lease = Lease.ALIVE) -> bool:
    """Stamp as reconcile does, once it has done what the verdict asks for."""
    return statuses.stamp(db, job_id, run or RunState(), lease)


def told(db: Database, job_id: str = "job") -> list[dict[str, Any]]:
    """Return the job's stamped events, oldest first, as mappings."""
    return [dict(row._mapping) for row in events.read_after(db, 0, limit=100_000) if row.job_id == job_id]


def facts_of(db: Database, job_id: str = "job") -> list[str]:
    """Return every fact recorded about the job, stamped or not, in order."""
    query = (
        sa.select(schema.events.c.fact).where(schema.events.c.job_id == job_id).order_by(schema.events.c.id)
    )
    with db.read() as tx:
        return list(tx.execute(query).scalars())


def rows(db: Database, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> Sequence[sa.Row[Any]]:
    """Return the rows of *table* in the order of its key."""
    with db.read() as tx:
        return tx.execute(sa.select(table).where(*conditions).order_by(*table.primary_key)).all()


def contents(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table."""
    with db.read() as tx:
        return {
            table.name: [tuple(row) for row in tx.execute(sa.select(table).order_by(*table.primary_key))]
            for table in schema.metadata.sorted_tables
        }


def deeds(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row but those of the audit, where refusals are kept, and the count of these."""
    found = contents(db)
    del found["audit"]
    return found | {"counters": [row for row in found["counters"] if row[0] != "audit"]}


def wipe(database: Database) -> None:
    """Bring a migrated ledger back to how it was when it was new, but for its epoch."""
    with database.write() as tx:
        for table in reversed(schema.metadata.sorted_tables):
            if table not in {schema.meta, schema.counters}:
                tx.execute(sa.delete(table))
        tx.execute(sa.update(schema.counters).values(value=0))


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run *work* with 0, 1, … in *count* threads that start together; return results or exceptions."""
    gate = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        gate.wait()
        try:
            results[number] = work(number)
        except Exception as error:  # noqa: BLE001 - the test looks at every outcome
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
