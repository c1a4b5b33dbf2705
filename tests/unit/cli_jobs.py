"""Job resources to show."""

from __future__ import annotations

from typing import Any

from autocode.jobs.model import JobStatus
from autocode.jobs.resource import HistoryEntry, Job, Problem, Progress, Result, Times

__all__ = ["DIGEST", "entry", "job", "problem", "progress", "result"]

DIGEST = "sha256:" + "0123456789abcdef" * 4
_AT = "2026-01-05T10:15:00.000Z"


def entry(seq: int, step: str, *, attempt: int = 1, reused: bool = False) -> HistoryEntry:
    """Return a checkpoint of a history."""
    return HistoryEntry(seq=seq, step=step, digest=DIGEST, attempt=attempt, at=_AT, reused=reused)


def progress(
    done: int, total: int | None = None, unit: str = "bytes", retry_at: str | None = None
) -> Progress:
    """Return a persisted progress."""
    return Progress(done=done, total=total, unit=unit, at=_AT, retry_at=retry_at)


def result() -> Result:
    """Return a committed result."""
    return Result(digest=DIGEST, size=10, media_type="application/json", href="/", expired_at=None)


def problem(detail: str, *, at: str = _AT) -> Problem:
    """Return the error of attempt 1."""
    return Problem(
        type="disk-full",
        title="The disk is full",
        detail=detail,
        hint="Free some space.",
        step=None,
        attempt=1,
        retryable=True,
        at=at,
    )


def job(status: JobStatus = JobStatus.RUNNING, **changes: Any) -> Job:
    """Return a job resource."""
    fields: dict[str, Any] = {
        "job_id": "export-20260105-101500-3f2a1c",
        "kind": "export",
        "session_id": None,
        "status": status,
        "reason": None,
        "note": None,
        "attempts": 1,
        "max_attempts": 5,
        "next_attempt_at": None,
        "checkpoint": None,
        "history": (),
        "progress": None,
        "result": None,
        "error": None,
        "times": Times(
            file_saved_at=None, enqueued_at=_AT, started_at=None, checkpoint_at=None, completed_at=None
        ),
        "oldest_unsearchable_at": None,
        "possible_double_run": False,
        "rev": 1,
        "as_of": _AT,
        "links": {},
    }
    return Job(**{**fields, **changes})
