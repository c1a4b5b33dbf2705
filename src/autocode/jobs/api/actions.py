"""What a person does to a job: retry and cancel. Each is in the audit, also where it was refused."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from autocode.jobs.api import refusals, resources
from autocode.jobs.api.access import Caller, Viewer, require
from autocode.jobs.api.bodies import if_match, model_of, read_json
from autocode.jobs.api.models import CancelBody, RetryBody
from autocode.jobs.api.problems import JsonResponse
from autocode.jobs.api.reading import visible_job
from autocode.jobs.api.service import Calls, Service, Shared
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.engine.announce import lives
from autocode.jobs.ledger import results, retries
from autocode.jobs.ledger.access import Principal, Role
from autocode.jobs.resource import Job, RetryPreview

__all__ = ["router"]

router: Final = APIRouter(tags=["jobs"])

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    202: {"model": Job, "description": "accepted; the job as it is right after it"},
    401: {"description": "no token that works"},
    403: {"description": "the token's role is too small"},
    404: {"description": "no such job, or none that this token may see"},
}
_TOLD_SECONDS: Final = 3.0
"""How long an answer waits for reconcile: that takes milliseconds, unless its lead is passing on."""

_RETRY: Final[dict[int | str, dict[str, Any]]] = _ANSWERS | {
    409: {"description": "the job isn't dead"},
    412: {"description": "somebody else was first"},
    428: {"description": "there is no If-Match"},
}
_CANCEL: Final[dict[int | str, dict[str, Any]]] = _ANSWERS | {
    409: {"description": "the result is committed, or the job is over"}
}
_IF_MATCH: Final = {
    "name": "If-Match",
    "in": "header",
    "required": True,
    "schema": {"type": "string"},
    "description": "the ETag of the job that the retry was decided on",
}


def _members(found: retries.RetryPreview) -> dict[str, Any]:
    return {field.name: getattr(found, field.name) for field in fields(found)}


def _body(model: type[BaseModel], *parameters: dict[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema()
    content = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"requestBody": content, "parameters": list(parameters)}


@router.get(
    "/v1/jobs/{job_id}/retry",
    response_model=None,
    responses={200: {"model": RetryPreview}, 404: _ANSWERS[404]},
)
async def preview(job_id: str, service: Shared, calls: Calls, caller: Viewer) -> Response:
    """Say what a retry would reuse and do again, and which effects may repeat. Nothing is changed."""
    await visible_job(service, calls, caller, job_id)
    found = RetryPreview(**_members(await calls(retries.preview, service.db, job_id)))
    return JsonResponse(found.model_dump(mode="json"), headers={"ETag": f'"{found.rev}"'})


@router.post(
    "/v1/jobs/{job_id}/retry",
    response_model=None,
    status_code=202,
    responses=_RETRY,
    openapi_extra=_body(RetryBody, _IF_MATCH),
)
async def retry(job_id: str, request: Request, service: Shared, calls: Calls, caller: Caller) -> Response:
    """Give a dead job further attempts, decided on the revision that `If-Match` names."""
    body = model_of(RetryBody, await read_json(request, service.settings.body_limit))
    refusals.about(request, target=job_id, reason=body.reason)
    desk = _Desk(service, calls, caller, job_id)
    await desk.check()
    rev = if_match(request)
    await calls(
        retries.request_retry,
        service.db,
        job_id,
        actor=caller.actor,
        reason=body.reason,
        start=body.start,
        expected_rev=rev,
        attempts=retries.ATTEMPTS if body.attempts is None else body.attempts,
        request_id=refusals.request_id(request),
    )
    await desk.told(rev)
    return await desk.answer()


@router.post(
    "/v1/jobs/{job_id}/cancel",
    response_model=None,
    status_code=202,
    responses=_CANCEL,
    openapi_extra=_body(CancelBody),
)
async def cancel(job_id: str, request: Request, service: Shared, calls: Calls, caller: Caller) -> Response:
    """Call the job off. Asking again changes nothing."""
    body = model_of(CancelBody, await read_json(request, service.settings.body_limit))
    refusals.about(request, target=job_id, reason=body.reason)
    desk = _Desk(service, calls, caller, job_id)
    await desk.check()
    await calls(
        results.request_cancel,
        service.db,
        job_id,
        actor=caller.actor,
        reason=body.reason,
        request_id=refusals.request_id(request),
    )
    return await desk.answer()


@dataclass(frozen=True, slots=True)
class _Desk:
    """One request to act on one job."""

    service: Service
    calls: RequestCalls
    caller: Principal
    job_id: str

    async def check(self) -> None:
        """Let the caller pass if it may act on the job.

        Raises:
            JobNotFound: there is no such job, or the caller may not see it.
            NotAllowed: the caller's role is too small.
        """
        await visible_job(self.service, self.calls, self.caller, self.job_id)
        require(self.caller, Role.OPERATOR)

    async def told(self, rev: int) -> None:
        """Wait a moment until reconcile, if one runs here, shows the job as it is after the act.

        Otherwise whoever follows the job at once would find it dead still, and take that for the end.
        """
        if await self.calls(lives, self.service.system.home, "reconcile"):
            await self.service.watch.moved(self.job_id, rev, _TOLD_SECONDS)
            self.calls.renew()

    async def answer(self) -> Response:
        """Return the job as it is now."""
        job = await visible_job(self.service, self.calls, self.caller, self.job_id)
        response = resources.answer(job, status=202)
        response.headers["Location"] = f"/v1/jobs/{self.job_id}"
        return response
