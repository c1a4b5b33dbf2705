"""What the ledger's file says, asked by plain SQL and not by the code that wrote it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

__all__ = ["AttemptRow", "CheckpointRow", "Error", "Told", "attempts", "checkpoints", "jobs", "query", "told"]

_OUR_WORDS: Final = (
    "job.queued",
    "job.running",
    "job.retrying",
    "job.complete",
    "job.dead",
    "job.checkpoint",
)
"""Events whose number doesn't depend on how fast the machine is; reports of progress are left out."""


Error: Final = sqlite3.Error
"""What every function here raises where the file is missing or can't answer."""


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint: its job, its number in the job, its step, the attempt that committed it, its digest."""

    job_id: str
    seq: int
    step: str
    attempt: int
    digest: str


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt: its job, its number, whether it began, how it ended, and its run in Prefect."""

    job_id: str
    n: int
    begun: bool
    outcome: str | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class Told:
    """An event: what was told of a job, in which attempt, and after which checkpoint."""

    job_id: str
    type: str
    attempt: int
    checkpoint: int


def query(ledger: Path, sql: str, values: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and the rows that *sql* selects; the file is opened for reading only.

    Raises:
        sqlite3.Error: the file isn't there yet, or *sql* is no query that it can answer.
    """
    address = f"file:{quote(str(ledger))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=15.0)) as connection:
        cursor = connection.execute(sql, values)
        return [column[0] for column in cursor.description or ()], cursor.fetchall()


def jobs(ledger: Path) -> list[str]:
    """Return the ids of the jobs in the order in which they were accepted; none where there is no ledger."""
    if not ledger.exists():
        return []
    return [row[0] for row in query(ledger, "SELECT job_id FROM jobs ORDER BY enqueued_at, job_id")[1]]


def checkpoints(ledger: Path, job_id: str) -> list[CheckpointRow]:
    """Return the checkpoints of a job in order."""
    sql = "SELECT job_id, seq, step, attempt, digest FROM checkpoints WHERE job_id = ? ORDER BY seq"
    return [CheckpointRow(*row) for row in query(ledger, sql, (job_id,))[1]]


def attempts(ledger: Path, job_id: str) -> list[AttemptRow]:
    """Return the attempts of a job in order."""
    sql = (
        "SELECT job_id, n, begun_at IS NOT NULL, outcome, flow_run_id "
        "FROM attempts WHERE job_id = ? ORDER BY n"
    )
    return [
        AttemptRow(job, n, bool(begun), outcome, run)
        for job, n, begun, outcome, run in query(ledger, sql, (job_id,))[1]
    ]


def told(ledger: Path, job_id: str) -> list[Told]:
    """Return what was told of a job in order, without what depends on the speed of the machine.

    Each checkpoint is kept, and of each attempt the first time that each status was told: whether somebody
    looked between two facts, and so told a status again with another note, is chance.
    """
    sql = (
        "SELECT job_id, type, json_extract(data, '$.attempts'), "
        "coalesce(json_extract(data, '$.checkpoint.seq'), 0) "
        "FROM events WHERE job_id = ? AND cursor IS NOT NULL ORDER BY cursor"
    )
    events: dict[tuple[str, int, int], Told] = {}
    for row in query(ledger, sql, (job_id,))[1]:
        event = Told(*row)
        step = event.checkpoint if event.type == "job.checkpoint" else 0
        if event.type in _OUR_WORDS:
            events.setdefault((event.type, event.attempt, step), event)
    return list(events.values())
