"""What clients send, as the OpenAPI document shows it; a member that isn't here is refused, not ignored."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from autocode.jobs.ledger.access import Role
from autocode.jobs.model import JobStatus

__all__ = ["CancelBody", "EnqueueBody", "JobFilter", "JobPage", "LoginBody", "RetryBody"]

_ID: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z"

Id = Annotated[str, StringConstraints(pattern=_ID)]
Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]


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


class CancelBody(_Strict):
    """A cancel."""

    reason: Reason


class LoginBody(_Strict):
    """A login for a browser."""

    role: Role = Role.ADMIN


class JobFilter(_Strict):
    """Which jobs; the same for the list and the counts."""

    status: list[JobStatus] = Field([], description="any of these; repeat the parameter for several")
    kind: str | None = None
    session_id: str | None = None
    q: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="part of a job id or a session id"
    )
    origin: str | None = None


class JobPage(JobFilter):
    """Which page of them."""

    page_size: int = Field(50, ge=1, description="jobs on a page; more than 200 means 200")
    page_token: str | None = None
