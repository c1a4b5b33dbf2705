"""``GET /v1/jobs/{id}``: one job, at once or when it has moved."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from autocode.jobs.api import resources
from autocode.jobs.api.access import Viewer
from autocode.jobs.api.bodies import wait_seconds
from autocode.jobs.api.service import Calls, Service, Shared
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.errors import JobNotFound
from autocode.jobs.ledger.access import Principal
from autocode.jobs.ledger.jobs import JOB_ID
from autocode.jobs.model import TERMINAL
from autocode.jobs.resource import Job

__all__ = ["router", "visible_job"]

router: Final = APIRouter(tags=["jobs"])

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": Job, "description": "the job; `ETag` is its `rev`"},
    304: {"description": "it is still what If-None-Match names"},
    404: {"description": "no such job, or none that this token may see"},
}


async def visible_job(service: Service, calls: RequestCalls, caller: Principal, job_id: str) -> Job:
    """Return a job that *caller* may see; to it there are no others.

    Raises:
        JobNotFound: there is none.
    """
    if not JOB_ID.fullmatch(job_id):
        # no id at all, and perhaps no text that a database takes
        raise JobNotFound(f"There is no job {job_id!r}.")
    return await calls(resources.load, service.db, caller, job_id, service.settings.prefect_ui)


@router.get("/v1/jobs/{job_id}", response_model=None, responses=_ANSWERS)
async def read_job(job_id: str, request: Request, service: Shared, calls: Calls, caller: Viewer) -> Response:
    """Read a job.

    `Prefer: wait=N` holds the answer for up to N seconds (30 at most): with `If-None-Match` until the job is
    another than the one it names, else until it is complete or dead.
    """
    seconds = wait_seconds(request, service.settings.wait_limit)
    known = request.headers.get("if-none-match")
    job = await visible_job(service, calls, caller, job_id)
    if seconds is not None:
        job = await _held(service, calls, caller, job, known=known, seconds=seconds)
    same = known is not None and _matches(known, resources.etag(job))
    response = resources.answer(job, status=304 if same else 200)
    if seconds is not None:
        response.headers["Preference-Applied"] = f"wait={seconds:.0f}"
    return response


async def _held(
    service: Service, calls: RequestCalls, caller: Principal, job: Job, *, known: str | None, seconds: float
) -> Job:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while _waits(job, known) and (left := until - loop.time()) > 0:
        if not await service.watch.moved(job.job_id, job.rev, left):
            break
        calls.renew()
        job = await visible_job(service, calls, caller, job.job_id)
    return job


def _waits(job: Job, known: str | None) -> bool:
    if known is None:
        return job.status not in TERMINAL
    return _matches(known, resources.etag(job)) and job.status not in TERMINAL


def _matches(header: str, tag: str) -> bool:
    """Compare weakly, as RFC 9110 has it for If-None-Match."""
    given = [each.strip().removeprefix("W/") for each in header.split(",")]
    return "*" in given or tag in given
