"""What the crash tests share: an export that nobody disturbed, and what may not be left after a kill.

The fixtures are in ``tests/fixtures_undisturbed.py``.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.command import Command
from autocode.jobs.store import LocalStore, verify_store


@dataclass(frozen=True)
class Undisturbed:
    """The sessions, and the export of them that ran without a crash."""

    sessions: Path
    job: dict[str, Any]

    @property
    def digest(self) -> str:
        """The bundle's digest."""
        return str(self.job["result"]["digest"])

    @property
    def checkpoints(self) -> list[tuple[str, str]]:
        """Step and digest of each checkpoint."""
        return steps_of(self.job)


def steps_of(job: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the job's steps and their digests, in order."""
    return [(entry["step"], entry["digest"]) for entry in job["history"]]


def nothing_left(command: Command) -> None:
    """Assert that no process of the home lives on, and that every object is whole."""
    command.wait_until_gone()
    report = verify_store(LocalStore(command.home / "store"))
    assert report.ok, report.as_dict()


def cursors_without_gaps(home: Path) -> None:
    """Assert that the event log's cursors are consecutive and that revisions never fall within a job."""
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        rows = ledger.execute("SELECT cursor, job_id, rev FROM events ORDER BY cursor").fetchall()
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    revs: dict[str, int] = {}
    for _, job_id, rev in rows:
        assert rev >= revs.get(job_id, 0)
        revs[job_id] = rev
