"""``POST /v1/bulk/retry``: many dead letters at once, each decided by itself, and each told of by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from autocode.jobs.api import refusals
from autocode.jobs.api.access import Operator
from autocode.jobs.api.bodies import model_of, read_json
from autocode.jobs.api.models import BulkRetryBody
from autocode.jobs.api.problems import JsonResponse, discreet, status_of
from autocode.jobs.api.service import Calls, Service, Shared
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.errors import JobNotDead, JobNotFound, JobsError, RevisionMoved
from autocode.jobs.ledger import audit, bulk, retries
from autocode.jobs.ledger.access import Principal
from autocode.jobs.ledger.bulk import Standing
from autocode.jobs.ledger.listing import Filter
from autocode.jobs.model import BulkOutcome, JobStatus
from autocode.jobs.resource import BulkError, BulkResult, BulkRetry

__all__ = ["router"]

router: Final = APIRouter(tags=["jobs"])

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": BulkRetry, "description": "what a retry would do; nothing was changed"},
    202: {"model": BulkRetry, "description": "what came of each job, in the order asked"},
    401: {"description": "no token that works"},
    403: {"description": "the token's role is too small"},
    422: {"description": "neither a filter nor jobs, or too many of them"},
}


@router.post(
    "/v1/bulk/retry",
    name="bulk.retry",
    response_model=None,
    status_code=202,
    responses=_ANSWERS,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": BulkRetryBody.model_json_schema()}},
        }
    },
)
async def bulk_retry(request: Request, service: Shared, calls: Calls, caller: Operator) -> Response:
    """Retry many dead letters: those of a filter, or those named, at the revisions that were seen.

    With `dry_run` it answers which these are, and nothing is changed: send its `jobs` back to retry exactly
    what was shown. Each job is decided and audited by itself, so a call that was cut off may be sent again.
    """
    body = model_of(BulkRetryBody, await read_json(request, service.settings.body_limit))
    refusals.about(request, target="jobs", reason=body.reason or "")
    standings = await _meant(service, calls, caller, body)
    if body.dry_run:
        return JsonResponse(
            _answer([_outlook(each, body.revs.get(each.job_id)) for each in standings], dry_run=True)
        )
    desk = _Desk(service, calls, caller, body, refusals.request_id(request))
    results = await desk.retry(standings)
    return JsonResponse(_answer(results, dry_run=False), status_code=202)


async def _meant(
    service: Service, calls: RequestCalls, caller: Principal, body: BulkRetryBody
) -> tuple[Standing, ...]:
    """Return the jobs as they stand now, with the revision that the caller saw where one was given."""
    if body.filter is not None:
        wanted = body.filter
        chosen = Filter(
            reason=frozenset(wanted.reason) or None,
            kind=wanted.kind,
            session_id=wanted.session_id,
            sessions=caller.sessions,
            origin=wanted.origin,
            q=wanted.q,
        )
        return await calls(bulk.dead_letters, service.db, chosen)
    return await calls(bulk.named, service.db, body.names, caller.sessions)


@dataclass(frozen=True, slots=True)
class _Desk:
    """One request to retry many jobs."""

    service: Service
    calls: RequestCalls
    caller: Principal
    body: BulkRetryBody
    request_id: str | None

    async def retry(self, standings: tuple[Standing, ...]) -> list[BulkResult]:
        """Write the request into the audit, and then retry one job after the other.

        Where the ledger goes away in between, what was done is reported, and the rest as not tried.

        Raises:
            LedgerUnavailable: it went away before the first one was decided.
        """
        await self._note(len(standings))
        results: list[BulkResult] = []
        for each in standings:
            self.calls.renew()
            try:
                error = await self._one(each, self.body.revs.get(each.job_id, each.rev))
            except JobsError as trouble:
                if status_of(trouble) < 500 or not results:
                    raise
                told = discreet(trouble)
                results.append(self._told(each, BulkOutcome.UNKNOWN, told))
                left = standings[len(results) :]
                return results + [self._told(other, BulkOutcome.NOT_TRIED, told) for other in left]
            outcome = BulkOutcome.RETRIED if error is None else BulkOutcome.REFUSED
            results.append(self._told(each, outcome, error))
        return results

    def _told(self, standing: Standing, outcome: BulkOutcome, error: JobsError | None) -> BulkResult:
        return _result(standing, outcome, error, seen=self.body.revs.get(standing.job_id))

    async def _one(self, standing: Standing, rev: int | None) -> JobsError | None:
        """Retry a job; return why not, where it was refused."""
        if standing.rev is None:
            return JobNotFound(f"There is no job {standing.job_id!r}.")
        try:
            await self.calls(
                retries.request_retry,
                self.service.db,
                standing.job_id,
                actor=self.caller.actor,
                reason=self.body.reason or "",
                start=self.body.start,
                expected_rev=rev,
                attempts=retries.ATTEMPTS if self.body.attempts is None else self.body.attempts,
                request_id=self.request_id,
            )
        except (JobNotDead, JobNotFound, RevisionMoved) as error:
            return error
        return None

    async def _note(self, meant: int) -> None:
        """Write into the audit what is asked for; each job that is found gets an entry of its own."""
        await self.calls(
            audit.append,
            self.service.db,
            actor=self.caller.actor,
            action="bulk.retry",
            target="jobs",
            reason=self.body.reason or "",
            outcome="accepted",
            data={"after": {"meant": meant}},
            request_id=self.request_id,
        )


def _outlook(standing: Standing, seen: int | None) -> BulkResult:
    """Return what a retry would come to, by what ``ledger.retries`` decides by and in its order."""
    job_id = standing.job_id
    error: JobsError | None = None
    if standing.rev is None:
        error = JobNotFound(f"There is no job {job_id!r}.")
    elif standing.moves or seen not in {None, standing.rev}:
        error = RevisionMoved(f"Job {job_id} is no longer what it was, or is about to change.")
    elif standing.status is not JobStatus.DEAD:
        error = JobNotDead(f"Job {job_id} is {standing.status}, not dead.")
    outcome = BulkOutcome.WOULD_RETRY if error is None else BulkOutcome.REFUSED
    return _result(standing, outcome, error, seen=seen)


def _result(
    standing: Standing, outcome: BulkOutcome, error: JobsError | None, *, seen: int | None
) -> BulkResult:
    # with the revision of now, an answer that is sent back would retry what it says was refused
    rev = standing.rev if standing.rev is None or seen is None else seen
    told = None
    if error is not None:
        told = BulkError(type=error.type, title=error.title, detail=error.detail, hint=error.hint)
    return BulkResult(
        job_id=standing.job_id,
        rev=rev,
        outcome=outcome,
        effects_open=standing.effects_open,
        error=told,
    )


def _answer(results: list[BulkResult], *, dry_run: bool) -> dict[str, Any]:
    done = sum(each.outcome in {BulkOutcome.RETRIED, BulkOutcome.WOULD_RETRY} for each in results)
    return BulkRetry(dry_run=dry_run, meant=len(results), accepted=done, jobs=tuple(results)).model_dump(
        mode="json"
    )
