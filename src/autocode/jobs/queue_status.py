"""What a status request is answered with, whichever web framework asks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from autocode.jobs.model import JobStatus
from autocode.jobs.queue import JobQueue

__all__ = ["job_status"]


def job_status(queue: JobQueue, job_id: str) -> tuple[dict[str, Any], int]:
    """Return the body and the HTTP status for a request about *job_id*; changes nothing.

    The body holds JSON values only and is taken at one moment, so its fields agree with each other. The
    payload isn't part of it. ``result`` is there once the job is complete, ``error`` once an attempt went
    wrong and nothing has mended it, ``reason`` once it is dead, and ``retry_in``, in seconds, while
    another attempt is due. An unknown id gives ``{"error": "job not found"}`` and 404.
    """
    job = queue.snapshot(job_id)
    if job is None:
        return {"error": "job not found"}, 404
    body: dict[str, Any] = {
        "job_id": job.job_id,
        "kind": job.kind,
        "status": job.status.value,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "checkpoint": job.checkpoint,
        "history": job.history,
        "times": {name: _rfc3339(seconds) for name, seconds in job.times.items()},
    }
    if job.status is JobStatus.COMPLETE:
        body["result"] = job.checkpoint
    if job.status is JobStatus.RETRY:
        body["retry_in"] = queue.seconds_until_due(job)
    if job.reason is not None:
        body["reason"] = job.reason.value
    if job.problem is not None:
        body["error"] = job.problem
    return body, 200


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
