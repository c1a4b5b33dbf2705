"""Retries of many jobs at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from autocode.jobs.client.transport import Transport
from autocode.jobs.resource import BulkRetry

__all__ = ["retry_many"]


def retry_many(
    transport: Transport,
    *,
    ids: Sequence[str] | None,
    chosen: Mapping[str, Any] | None,
    seen: BulkRetry | None,
    reason: str | None,
    start: Literal["checkpoint", "start"],
    attempts: int | None,
    dry_run: bool,
) -> BulkRetry:
    """Send a request to retry many jobs; see :meth:`autocode.jobs.client.Client.retry_many`."""
    jobs = None
    if seen is not None:
        jobs = [{"job_id": each.job_id, "rev": each.rev} for each in seen.jobs if each.rev is not None]
    body = {
        "ids": None if ids is None else list(ids),
        "filter": None if chosen is None else dict(chosen),
        "jobs": jobs,
        "reason": reason,
        "from": start,
        "attempts": attempts,
        "dry_run": dry_run,
    }
    # a dry run changes nothing, and revisions keep a second sending from doing it twice
    answer = transport.send(
        "POST",
        "/v1/bulk/retry",
        again=dry_run or jobs is not None,
        json={name: value for name, value in body.items() if value is not None},
    )
    return BulkRetry.model_validate(answer.json())
