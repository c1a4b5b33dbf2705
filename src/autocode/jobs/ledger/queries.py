"""Reading jobs back: rows, and the resource that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import sqlalchemy as sa

from autocode.jobs.clock import rfc3339
from autocode.jobs.errors import JobNotFound
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import TERMINAL, DeadReason, JobStatus
from autocode.jobs.resource import Checkpoint, HistoryEntry, Job, Problem, Progress, Result, Times

__all__ = [
    "MANY",
    "JobRows",
    "entry",
    "get",
    "get_within",
    "list_jobs",
    "load",
    "load_many",
    "newest_first",
    "open_ids",
    "open_jobs",
    "resource",
    "untold",
]

MANY: Final = 500
"""How many jobs one query asks for at most: SQLite takes a thousand values in every version."""

Reach = Literal["newest", "since", "all"]
"""Which checkpoints are read: the newest that was told of, that and those since, or all that were told of."""

_OPEN: Final = [status.value for status in JobStatus if status not in TERMINAL]


@dataclass(frozen=True, slots=True)
class JobRows:
    """What the ledger has about one job, read in one transaction; checkpoints by their number."""

    job: sa.Row[Any]
    status: sa.Row[Any]
    attempts: Sequence[sa.Row[Any]]
    checkpoints: Mapping[int, sa.Row[Any]]

    def checkpoint_at(self, seq: int) -> datetime | None:
        """Return when checkpoint *seq* was committed; ``None`` for 0, before the first."""
        return None if seq == 0 else self.checkpoints[seq].at


def load(tx: sa.Connection, job_id: str, *, history: bool = True) -> JobRows:
    """Read a job's rows in the caller's transaction.

    Args:
        tx: the caller's transaction.
        job_id: the job.
        history: read every checkpoint; otherwise the one last told of and those since, which is all that
            a stamp needs and stays quick in a job with thousands.

    Raises:
        JobNotFound: no job has this id.
    """
    job = tx.execute(sa.select(t.jobs).where(t.jobs.c.job_id == job_id)).first()
    if job is None:
        raise JobNotFound(f"There is no job {job_id!r}.")
    status = tx.execute(sa.select(t.statuses).where(t.statuses.c.job_id == job_id)).one()
    attempts = sa.select(t.attempts).where(t.attempts.c.job_id == job_id).order_by(t.attempts.c.n)
    first = 1 if history else status.checkpoint_seq
    checkpoints = (
        sa.select(t.checkpoints)
        .where(t.checkpoints.c.job_id == job_id, t.checkpoints.c.seq >= first)
        .order_by(t.checkpoints.c.seq)
    )
    by_seq = {row.seq: row for row in tx.execute(checkpoints)}
    return JobRows(job, status, tx.execute(attempts).all(), by_seq)


def _grouped(rows: Iterable[sa.Row[Any]]) -> dict[str, list[sa.Row[Any]]]:
    grouped: dict[str, list[sa.Row[Any]]] = {}
    for row in rows:
        grouped.setdefault(row.job_id, []).append(row)
    return grouped


def untold(tx: sa.Connection) -> set[str]:
    """Return the ids of the jobs with events that nobody was told of."""
    return set(
        tx.execute(sa.select(t.events.c.job_id).where(t.events.c.cursor.is_(None)).distinct()).scalars()
    )


def get(db: Database, job_id: str) -> Job:
    """Return the job resource as it was last persisted.

    Raises:
        JobNotFound: no job has this id.
    """
    with db.read() as tx:
        return get_within(tx, job_id)


def get_within(tx: sa.Connection, job_id: str) -> Job:
    """Return what :func:`get` does, in the caller's transaction."""
    rows = load(tx, job_id)
    return resource(rows, rows.status._mapping)  # noqa: SLF001 - Row._mapping is SQLAlchemy's documented name


def load_many(tx: sa.Connection, job_ids: Sequence[str], *, reach: Reach) -> list[JobRows]:
    """Read the rows of several jobs, in their order, by four queries for each :data:`MANY` of them.

    Args:
        tx: the caller's transaction.
        job_ids: the jobs; one that doesn't exist is left out.
        reach: which checkpoints are read; ``since`` is what :func:`load` reads without history.
    """
    found: list[JobRows] = []
    for first in range(0, len(job_ids), MANY):
        found += _load_some(tx, job_ids[first : first + MANY], reach)
    return found


def _load_some(tx: sa.Connection, wanted: Sequence[str], reach: Reach) -> list[JobRows]:
    jobs = {row.job_id: row for row in tx.execute(sa.select(t.jobs).where(t.jobs.c.job_id.in_(wanted)))}
    statuses = {
        row.job_id: row for row in tx.execute(sa.select(t.statuses).where(t.statuses.c.job_id.in_(wanted)))
    }
    tried = sa.select(t.attempts).where(t.attempts.c.job_id.in_(wanted))
    attempts = _grouped(tx.execute(tried.order_by(t.attempts.c.job_id, t.attempts.c.n)))
    seq, told = t.checkpoints.c.seq, t.statuses.c.checkpoint_seq
    reached = {"newest": seq == told, "since": seq >= told, "all": seq <= told}[reach]
    query = (
        sa.select(t.checkpoints)
        .join(t.statuses, t.statuses.c.job_id == t.checkpoints.c.job_id)
        .where(t.checkpoints.c.job_id.in_(wanted), reached)
    )
    checkpoints = _grouped(tx.execute(query))
    return [
        JobRows(
            jobs[each],
            statuses[each],
            attempts[each],
            {row.seq: row for row in checkpoints.get(each, ())},
        )
        for each in wanted
        if each in jobs
    ]


def newest_first(query: sa.Select[Any]) -> sa.Select[Any]:
    """Order a query over ``jobs`` as every list of jobs is."""
    return query.order_by(t.jobs.c.enqueued_at.desc(), t.jobs.c.job_id.desc())


def list_jobs(
    db: Database, conditions: Sequence[sa.ColumnElement[bool]] = (), *, limit: int = 50
) -> list[Job]:
    """Return the newest *limit* jobs with their histories, newest first; see ``listing.page`` for pages.

    Args:
        db: the ledger.
        conditions: on ``jobs`` joined with ``statuses``, as a filter gives them; none: all jobs.
        limit: at most so many.
    """
    query = newest_first(sa.select(t.jobs.c.job_id).join(t.statuses)).where(*conditions).limit(limit)
    with db.read() as tx:
        ids = tx.execute(query).scalars().all()
        found = load_many(tx, ids, reach="all")
    return [resource(rows, rows.status._mapping) for rows in found]  # noqa: SLF001 - Row._mapping is SQLAlchemy's documented name


def open_jobs(db: Database) -> list[str]:
    """Return the ids of jobs that reconcile looks at: open, untold, or with an attempt or run to end."""
    with db.read() as tx:
        return open_ids(tx)


def open_ids(tx: sa.Connection) -> list[str]:
    """Return what :func:`open_jobs` does, in the caller's transaction."""
    query = (
        sa.select(t.statuses.c.job_id)
        .where(t.statuses.c.status.in_(_OPEN))
        .union(
            sa.select(t.events.c.job_id).where(t.events.c.cursor.is_(None)),
            # also of a dead job: a cancel that comes between a look and its stamp leaves a planned attempt
            sa.select(t.attempts.c.job_id).where(t.attempts.c.run_closed.is_(False)),
        )
    )
    return sorted(tx.execute(query).scalars())


def resource(rows: JobRows, status: Mapping[Any, Any], *, with_history: bool = True) -> Job:
    """Build the resource from a job's rows and one state of its projection.

    History is left out of what events store, since it is a prefix of the checkpoints by ``checkpoint.seq``.
    """
    job = rows.job
    seq = status["checkpoint_seq"]
    complete = status["status"] == JobStatus.COMPLETE.value
    base = f"/v1/jobs/{job.job_id}"
    return Job(
        job_id=job.job_id,
        kind=job.kind,
        session_id=job.session_id,
        status=JobStatus(status["status"]),
        reason=None if status["reason"] is None else DeadReason(status["reason"]),
        note=status["note"],
        attempts=status["attempts"],
        max_attempts=status["max_attempts"],
        next_attempt_at=rfc3339(status["next_attempt_at"]),
        checkpoint=None if seq == 0 else _checkpoint(rows.checkpoints[seq]),
        history=tuple(entry(rows.checkpoints[n]) for n in range(1, seq + 1)) if with_history else (),
        progress=None if status["progress"] is None else Progress(**status["progress"]),
        result=_result(job, base) if complete else None,
        error=None if status["error"] is None else Problem(**status["error"]),
        times=Times(
            file_saved_at=rfc3339(job.file_saved_at),
            enqueued_at=rfc3339(job.enqueued_at) or "",
            started_at=rfc3339(status["started_at"]),
            checkpoint_at=rfc3339(status["checkpoint_at"]),
            completed_at=rfc3339(status["completed_at"]),
        ),
        oldest_unsearchable_at=None,
        possible_double_run=status["possible_double_run"],
        rev=status["rev"],
        as_of=rfc3339(status["as_of"]) or "",
        links={
            "self": base,
            "events": f"/v1/events?job_id={job.job_id}",
            "retry": f"{base}/retry",
            "cancel": f"{base}/cancel",
            "prefect": None,
        },
    )


def _checkpoint(row: sa.Row[Any]) -> Checkpoint:
    return Checkpoint(seq=row.seq, step=row.step, digest=row.digest, at=rfc3339(row.at) or "")


def entry(row: sa.Row[Any]) -> HistoryEntry:
    """Return a row of ``checkpoints`` as the contract shows it."""
    return HistoryEntry(
        seq=row.seq,
        step=row.step,
        digest=row.digest,
        attempt=row.attempt,
        at=rfc3339(row.at) or "",
        reused=row.reused,
    )


def _result(job: sa.Row[Any], base: str) -> Result:
    return Result(
        digest=job.result_digest,
        size=job.result_size,
        media_type=job.result_media_type,
        href=f"{base}/result",
        expired_at=rfc3339(job.result_expired_at),
    )
