"""Which jobs a token for some sessions may see: the one rule, in Python and in SQL.

A job has the sessions that its payload reads and the one that it belongs to. A caller whose token is for some
sessions sees the job if it has any, and the token has all of them. Where a kind can't say what a payload
reads, the job has :data:`EVERYTHING` among its sessions, which no token has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.schema_scopes import job_sessions

__all__ = ["EVERYTHING", "conditions", "covers", "keep", "of_job", "of_jobs", "sessions_of"]

EVERYTHING: Final = "*"
"""Stands among a job's sessions where nobody knows what it reads; no id of a session is written so."""


def sessions_of(session_id: str | None, reads: Collection[str] | None) -> frozenset[str]:
    """Return the sessions of a job.

    Args:
        session_id: the one that it belongs to, if there is one.
        reads: those that its payload reads; ``None`` where that can't be known.
    """
    own = frozenset() if session_id is None else frozenset({session_id})
    return own | (frozenset({EVERYTHING}) if reads is None else frozenset(reads))


def covers(allowed: frozenset[str] | None, sessions: frozenset[str]) -> bool:
    """Say whether a token for the sessions *allowed* (``None``: for all) may see a job of *sessions*."""
    return allowed is None or (bool(sessions) and sessions <= allowed - {EVERYTHING})


def conditions(allowed: frozenset[str] | None) -> list[sa.ColumnElement[bool]]:
    """Return what :func:`covers` says as conditions on ``jobs``."""
    if allowed is None:
        return []
    theirs = sorted(allowed - {EVERYTHING})
    of_theirs = sa.select(job_sessions.c.job_id).where(job_sessions.c.session_id.in_(theirs))
    of_others = sa.exists().where(
        job_sessions.c.job_id == t.jobs.c.job_id, job_sessions.c.session_id.not_in(theirs)
    )
    return [t.jobs.c.job_id.in_(of_theirs), sa.not_(of_others)]


def keep(tx: sa.Connection, job_id: str, sessions: frozenset[str]) -> None:
    """Write the sessions of a new job, in the transaction that makes it."""
    # a job that only everybody may see needs no row to be hidden from the others
    if sessions - {EVERYTHING}:
        rows = [{"job_id": job_id, "session_id": each} for each in sorted(sessions)]
        tx.execute(sa.insert(job_sessions), rows)


def of_job(tx: sa.Connection, job_id: str) -> frozenset[str]:
    """Return the sessions of a job; none where there is no such job."""
    return of_jobs(tx, {job_id})[job_id]


def of_jobs(tx: sa.Connection, job_ids: Collection[str]) -> dict[str, frozenset[str]]:
    """Return what :func:`of_job` does for each of these jobs."""
    found: dict[str, set[str]] = {job_id: set() for job_id in job_ids}
    query = sa.select(job_sessions).where(job_sessions.c.job_id.in_(sorted(found)))
    for row in tx.execute(query) if found else ():
        found[row.job_id].add(row.session_id)
    return {job_id: frozenset(sessions) for job_id, sessions in found.items()}
