"""One job of the in-process queue, and when two requests are the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autocode.jobs.canonical import canonical_json
from autocode.jobs.errors import JobConflict, PayloadInvalid
from autocode.jobs.model import DeadReason, JobStatus

__all__ = ["Job", "Worker", "own_copy", "refuse_other_request"]


@dataclass(slots=True)
class Job:
    """One job as the queue knows it; the queue's own live record, so read it and leave it alone.

    Args:
        job_id: the caller's name for the request; the key that makes enqueueing idempotent.
        kind: what is to be done.
        payload: with what; the queue's own copy of the JSON value.
        max_attempts: attempts that may begin before the job is dead.
        checkpoint: where the next attempt starts: 0 at first, then what the worker last returned or saved,
            a count or a digest as a rule.
        attempts: attempts that have begun; the number of the current one while it runs.
        status: one of the five states.
        reason: why a dead job is dead.
        problem: the last error in the form of :func:`autocode.jobs.errors.describe`, and its attempt.
        history: every checkpoint in the order in which it was recorded.
        next_attempt_at: when the next attempt is due, in seconds of the queue's clock, while one is.
        times: ``enqueued_at``, ``started_at``, ``checkpoint_at`` and ``completed_at`` as far as they are
            known, in seconds since 1970.
        cancel_requested: somebody called the job off while it ran.
    """

    job_id: str
    kind: str
    payload: Any
    max_attempts: int
    checkpoint: Any = 0
    attempts: int = 0
    status: JobStatus = JobStatus.QUEUED
    reason: DeadReason | None = None
    problem: dict[str, Any] | None = None
    history: list[Any] = field(default_factory=list)
    next_attempt_at: float | None = None
    times: dict[str, float] = field(default_factory=dict)
    cancel_requested: bool = False

    @property
    def error(self) -> str | None:
        """The last error in one sentence; ``None`` as long as nothing went wrong, and once it is mended."""
        return None if self.problem is None else str(self.problem["detail"])


Worker = Callable[[Job], Any]
"""Does the work of one attempt and returns the new checkpoint; ``None`` keeps the last one saved."""


def own_copy(payload: Any) -> Any:
    """Return a copy of *payload* that no caller can change, as JSON would carry it.

    Raises:
        PayloadInvalid: *payload* isn't a JSON value.
    """
    try:
        return json.loads(canonical_json(payload))
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadInvalid(f"The payload isn't a JSON value: {error}.", fields=["/payload"]) from error


def refuse_other_request(job: Job, kind: str, payload: Any) -> None:
    """Compare a request with the one that *job* was made for; changes nothing.

    Raises:
        JobConflict: kind or payload differ. ``data['differs']`` names the parts of the request, and
            ``data['pointers']`` each field by JSON pointer; no value is told.
    """
    pointers = [] if job.kind == kind else ["/kind"]
    if canonical_json(job.payload) != canonical_json(payload):
        pointers += _differences(job.payload, payload)
    if not pointers:
        return
    raise JobConflict(
        f"Job {job.job_id!r} exists with a different request; these fields differ: {', '.join(pointers)}.",
        job_id=job.job_id,
        differs=list(dict.fromkeys(pointer.split("/")[1] for pointer in pointers)),
        pointers=pointers,
    )


def _differences(ours: Any, theirs: Any) -> list[str]:
    if not (isinstance(ours, Mapping) and isinstance(theirs, Mapping)):
        return ["/payload"]
    missing = object()
    names = [
        name
        for name in sorted(ours.keys() | theirs.keys())
        if name not in ours
        or name not in theirs
        or canonical_json(ours[name]) != canonical_json(theirs.get(name, missing))
    ]
    # a name inside a JSON pointer (RFC 6901) is escaped like this
    return ["/payload/" + name.replace("~", "~0").replace("/", "~1") for name in names]
