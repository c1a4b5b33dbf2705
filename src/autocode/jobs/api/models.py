"""What clients send, as the OpenAPI document shows it; a member that isn't here is refused, not ignored."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.bulk import MOST_JOBS
from autocode.jobs.ledger.listing import LARGEST_PAGE
from autocode.jobs.ledger.retries import MOST_ATTEMPTS
from autocode.jobs.model import DeadReason, JobStatus

__all__ = [
    "Alive",
    "AuditQuery",
    "BulkFilter",
    "BulkRetryBody",
    "CancelBody",
    "Check",
    "EnqueueBody",
    "JobFilter",
    "LoginBody",
    "LoginPath",
    "PageQuery",
    "Readiness",
    "RetryBody",
    "SeenJob",
    "StoredObject",
]

_ID: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"

Id = Annotated[str, StringConstraints(pattern=_ID)]
Text = Annotated[str, StringConstraints(max_length=1_000)]
# no NUL: the audit keeps it, and PostgreSQL takes none
Reason = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000, pattern=r"^[^\x00]+$")
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EnqueueBody(_Strict):
    """A request for a job."""

    kind: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    payload: dict[str, Any]
    job_id: Id | None = None
    session_id: Id | None = None


class RetryBody(_Strict):
    """A manual retry of a dead job."""

    reason: Reason
    start: Literal["checkpoint", "start"] = Field("checkpoint", alias="from")
    attempts: int | None = Field(None, ge=1, le=MOST_ATTEMPTS)


class BulkFilter(_Strict):
    """Which dead letters; the filter of the list, but for the state."""

    reason: list[DeadReason] = Field([], description="any of these; without it, all but `cancelled`")
    kind: Text | None = None
    session_id: Text | None = None
    q: Text | None = Field(None, description="part of a job's id, its kind or its session's id")
    origin: Text | None = None


class SeenJob(BaseModel):
    """A job, and the revision at which it was seen; what else a dry run says of it may stay."""

    model_config = ConfigDict(frozen=True)

    job_id: Id
    rev: int = Field(ge=0)


class BulkRetryBody(_Strict):
    """A manual retry of many dead jobs: of exactly one of `filter`, `ids` and `jobs`."""

    filter: BulkFilter | None = None
    ids: list[Id] | None = Field(None, max_length=MOST_JOBS)
    jobs: list[SeenJob] | None = Field(None, max_length=MOST_JOBS, description="as a dry run answered them")
    reason: Reason | None = Field(None, description="may be left out of a dry run alone")
    start: Literal["checkpoint", "start"] = Field("checkpoint", alias="from")
    attempts: int | None = Field(None, ge=1, le=MOST_ATTEMPTS)
    dry_run: bool = False

    @model_validator(mode="after")
    def _one_choice(self) -> Self:
        if sum(each is not None for each in (self.filter, self.ids, self.jobs)) != 1:
            raise ValueError("exactly one of filter, ids and jobs says which jobs are meant")
        if len(set(self.names)) != len(self.names):
            raise ValueError("a job is named twice")
        if self.reason is None and not self.dry_run:
            raise ValueError("a retry needs a reason; a dry run doesn't")
        return self

    @property
    def names(self) -> list[str]:
        """The jobs that are named."""
        return [each.job_id for each in self.jobs] if self.jobs is not None else list(self.ids or ())

    @property
    def revs(self) -> dict[str, int]:
        """The revisions at which they were seen, where that is said."""
        return {each.job_id: each.rev for each in self.jobs or ()}


class CancelBody(_Strict):
    """A cancel."""

    reason: Reason


class LoginBody(_Strict):
    """A login for a browser."""

    role: Role = Role.ADMIN


class LoginPath(_Strict):
    """Where a browser logs in; it works once, for a quarter of an hour."""

    path: str


class Alive(_Strict):
    """The process answers."""

    status: Literal["alive"]


class Check(_Strict):
    """What is known of a part of the service."""

    status: Literal["ok", "missing", "unavailable", "unknown"]
    detail: str


class Readiness(_Strict):
    """What is known of all of them, at one moment."""

    status: Literal["ready", "degraded", "unavailable"]
    checks: dict[str, Check]
    as_of: str


class StoredObject(_Strict):
    """An uploaded object, as it is in the store; its size in bytes."""

    digest: str
    size: int


class JobFilter(_Strict):
    """Which jobs; the same for the list and the counts."""

    status: list[JobStatus] = Field([], description="any of these; repeat the parameter for several")
    reason: list[DeadReason] = Field([], description="dead for one of these reasons")
    kind: Text | None = None
    session_id: Text | None = None
    q: Text | None = Field(None, description="part of a job's id, its kind or its session's id")
    origin: Text | None = None


class PageQuery(JobFilter):
    """Which page of them."""

    page_size: int = Field(
        50, ge=1, description=f"jobs on a page; more than {LARGEST_PAGE} means {LARGEST_PAGE}"
    )
    page_token: str | None = None


class AuditQuery(_Strict):
    """Which entries of the audit, and which page of them."""

    target: Text | None = Field(None, description="about this: a job's id, `token:<id>`, …")
    actor: Text | None = Field(None, description="part of the actor's name")
    action: Text | None = None
    page_size: int = Field(50, ge=1, description="entries on a page; more than 500 means 500")
    page_token: str | None = None
