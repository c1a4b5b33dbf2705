"""``GET /v1/jobs`` and ``GET /v1/counts``: one filter for both."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from autocode.jobs.api import resources
from autocode.jobs.api.access import Viewer
from autocode.jobs.api.models import JobFilter, PageQuery
from autocode.jobs.api.problems import JsonResponse
from autocode.jobs.api.service import Calls, Shared
from autocode.jobs.clock import rfc3339
from autocode.jobs.ledger import listing
from autocode.jobs.ledger.access import Principal
from autocode.jobs.ledger.listing import LARGEST_PAGE, Filter
from autocode.jobs.model import JobStatus
from autocode.jobs.resource import Counts, JobPage

__all__ = ["router"]

router: Final = APIRouter(tags=["jobs"])

_LIST: Final[dict[int | str, dict[str, Any]]] = {200: {"model": JobPage}}
_COUNTS: Final[dict[int | str, dict[str, Any]]] = {200: {"model": Counts}}


@router.get("/v1/jobs", response_model=None, responses=_LIST)
async def list_jobs(
    query: Annotated[PageQuery, Query()], service: Shared, calls: Calls, caller: Viewer
) -> Response:
    """List jobs, newest first, with an empty `history`. Without `status` all states are meant."""
    size = min(query.page_size, LARGEST_PAGE)
    found = await calls(listing.page, service.db, _chosen(query, caller), size=size, token=query.page_token)
    jobs = await calls(resources.with_runs, service.db, found.jobs, service.settings.prefect_ui)
    shown = JobPage(
        jobs=tuple(jobs),
        next_page_token=found.next_token,
        event_cursor=f"{service.epoch}:{found.event_cursor}",
    )
    return JsonResponse(shown.model_dump(mode="json"))


@router.get("/v1/counts", response_model=None, responses=_COUNTS)
async def count_jobs(
    query: Annotated[JobFilter, Query()], service: Shared, calls: Calls, caller: Viewer
) -> Response:
    """Count the jobs in each state, the dead ones by reason as well, for the same filter as the list."""
    found = await calls(listing.counts, service.db, _chosen(query, caller))
    shown = Counts(
        **{status.value: found.by_status[status] for status in JobStatus},
        dead_by_reason=dict(found.dead),
        as_of=rfc3339(found.as_of) or "",
        event_cursor=f"{service.epoch}:{found.event_cursor}",
    )
    return JsonResponse(shown.model_dump(mode="json"))


def _chosen(query: JobFilter, caller: Principal) -> Filter:
    return Filter(
        status=frozenset(query.status) or None,
        reason=frozenset(query.reason) or None,
        kind=query.kind,
        session_id=query.session_id,
        sessions=caller.sessions,
        origin=query.origin,
        q=query.q,
    )
