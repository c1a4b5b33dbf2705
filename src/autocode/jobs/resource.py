"""The job resource: what every client sees, exactly as ``docs/contract.md`` describes it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from autocode.jobs.model import BulkOutcome, DeadReason, JobStatus

__all__ = [
    "AuditEntry",
    "AuditHead",
    "AuditPage",
    "BulkError",
    "BulkResult",
    "BulkRetry",
    "Checkpoint",
    "Counts",
    "HistoryEntry",
    "Job",
    "JobPage",
    "Problem",
    "Progress",
    "Result",
    "RetryPreview",
    "Times",
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Checkpoint(_Frozen):
    """The newest checkpoint of a job."""

    seq: int
    step: str
    digest: str
    at: str


class HistoryEntry(_Frozen):
    """One checkpoint in the job's history; ``reused`` says that the object came from an earlier job."""

    seq: int
    step: str
    digest: str
    attempt: int
    at: str
    reused: bool


class Progress(_Frozen):
    """How far the job was when it last said so, and when a step tries again, if it waits for that."""

    done: int | None
    total: int | None
    unit: str | None
    at: str
    retry_at: str | None


class Result(_Frozen):
    """The committed and verified result."""

    digest: str
    size: int
    media_type: str
    href: str
    expired_at: str | None


class Problem(_Frozen):
    """The last error that somebody can act on, in the terms of RFC 9457."""

    type: str
    title: str
    detail: str
    hint: str
    step: str | None
    attempt: int
    retryable: bool
    at: str


class Times(_Frozen):
    """The five times of a job, RFC 3339 in UTC."""

    file_saved_at: str | None
    enqueued_at: str
    started_at: str | None
    checkpoint_at: str | None
    completed_at: str | None


class Job(_Frozen):
    """A job as it was persisted at ``as_of``; ``rev`` grows by one with every visible change."""

    job_id: str
    kind: str
    session_id: str | None
    status: JobStatus
    reason: DeadReason | None
    note: str | None
    attempts: int
    max_attempts: int
    next_attempt_at: str | None
    checkpoint: Checkpoint | None
    history: tuple[HistoryEntry, ...]
    progress: Progress | None
    result: Result | None
    error: Problem | None
    times: Times
    oldest_unsearchable_at: str | None
    possible_double_run: bool
    rev: int
    as_of: str
    links: dict[Literal["self", "events", "retry", "cancel", "prefect"], str | None]

    def to_json(self) -> dict[str, Any]:
        """Return the resource as JSON values."""
        return self.model_dump(mode="json")


class JobPage(_Frozen):
    """Some jobs, newest first, with an empty ``history``; events after ``event_cursor`` are news."""

    jobs: tuple[Job, ...]
    next_page_token: str | None
    event_cursor: str


class Counts(_Frozen):
    """How many jobs are in each state, at one moment."""

    queued: int
    running: int
    retrying: int
    complete: int
    dead: int
    dead_by_reason: dict[DeadReason, int]
    as_of: str
    event_cursor: str


class RetryPreview(_Frozen):
    """What a manual retry of a job would do, decided on revision ``rev``.

    ``reused`` are the checkpoints that it takes as they are when it begins from the checkpoint; ``steps`` is
    what is known to be left; ``effects_done`` won't be repeated, ``effects_open`` perhaps happened and may
    happen again.
    """

    job_id: str
    rev: int
    dead: bool
    reused: tuple[HistoryEntry, ...]
    steps: tuple[str, ...]
    effects_done: tuple[str, ...]
    effects_open: tuple[str, ...]
    max_attempts_after: int


class BulkError(_Frozen):
    """Why one job among many was refused."""

    type: str
    title: str
    detail: str
    hint: str


class BulkResult(_Frozen):
    """One job among many: the revision that the caller gave, else the one found, and what came of it.

    ``effects_open`` perhaps happened, and may happen again.
    """

    job_id: str
    rev: int | None
    outcome: BulkOutcome
    effects_open: tuple[str, ...]
    error: BulkError | None


class BulkRetry(_Frozen):
    """What came of a retry of many jobs, in the order asked.

    ``meant`` are the jobs that the request is about; ``accepted`` are those that have, or would have, further
    attempts.
    """

    dry_run: bool
    meant: int
    accepted: int
    jobs: tuple[BulkResult, ...]


class AuditEntry(_Frozen):
    """What somebody did, or was refused.

    ``before`` and ``after`` say how what was changed stood; what is said beside that is in ``data``.
    """

    seq: int
    at: str
    actor: str
    action: str
    target: str
    reason: str
    outcome: str
    request_id: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    data: dict[str, Any]
    previous: str
    digest: str


class AuditHead(_Frozen):
    """The newest entry of the audit's chain; its digest stands for all entries up to it."""

    seq: int
    digest: str


class AuditPage(_Frozen):
    """A page of the audit, newest first."""

    entries: tuple[AuditEntry, ...]
    next_page_token: str | None
    head: AuditHead
