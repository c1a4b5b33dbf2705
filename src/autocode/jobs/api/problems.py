"""Errors on the wire: RFC 9457 problems, made from the tree in ``errors`` by one table."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from autocode.jobs import errors, notification_errors, request_errors
from autocode.jobs.errors import JobConflict, JobsError

__all__ = [
    "MEDIA_TYPE",
    "RETRY_SECONDS",
    "STATUSES",
    "JsonResponse",
    "Problem",
    "discreet",
    "install",
    "masked",
    "problem",
    "status_of",
]

MEDIA_TYPE: Final = "application/problem+json"

RETRY_SECONDS: Final = 2
"""What ``Retry-After`` says while the database can't be reached."""

STATUSES: Final[Mapping[type[JobsError], int]] = {
    request_errors.RequestInvalid: 400,
    request_errors.TokenInvalid: 401,
    request_errors.NotAllowed: 403,
    request_errors.RequestRefused: 403,
    errors.JobNotFound: 404,
    request_errors.MemberNotFound: 404,
    request_errors.SnapshotNotFound: 404,
    request_errors.RequestStalled: 408,
    notification_errors.DeliveryNotFound: 404,
    notification_errors.SubscriptionNotFound: 404,
    errors.AttemptEnded: 409,
    errors.IllegalTransition: 409,
    errors.JobFinished: 409,
    errors.JobNotDead: 409,
    request_errors.ResultNotReady: 409,
    request_errors.ResultExpired: 410,
    notification_errors.DeliveryOpen: 409,
    notification_errors.SubscriptionDisabled: 409,
    notification_errors.SubscriptionExists: 409,
    errors.RevisionMoved: 412,
    request_errors.RequestTooLarge: 413,
    request_errors.RangeUnsatisfiable: 416,
    request_errors.DigestMismatch: 422,
    errors.JobConflict: 422,
    errors.KindUnknown: 422,
    errors.PayloadInvalid: 422,
    errors.UsageError: 422,
    request_errors.PreconditionMissing: 428,
    request_errors.TooManyRequests: 429,
    errors.HomeUnusable: 503,
    errors.LedgerUnavailable: 503,
    errors.ServerUnavailable: 503,
    request_errors.ResultDamaged: 503,
    request_errors.ServiceBusy: 503,
    request_errors.ServiceUnavailable: 503,
    request_errors.ViewNotReady: 503,
    errors.DiskFull: 507,
}
"""The status of each class; one that isn't named has that of its parent, and 500 where none is."""

_SECRETS: Final = re.compile(r"(ajt_[0-9a-f]{1,16}_)[0-9a-zA-Z]+")
_LONGEST: Final = 2_000

_PASSING: Final = (request_errors.ServiceBusy, request_errors.ViewNotReady)
"""What is no failure of ours: there is only too much at once."""

_log = logging.getLogger("autocode.jobs.api")


class JsonResponse(JSONResponse):
    """JSON in ASCII: text that holds half a surrogate pair goes through, as it does in the ledger."""

    def render(self, content: Any) -> bytes:
        """Return *content* as bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class Problem(JsonResponse):
    """A JSON document with the media type of problems."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        """Return *content* as bytes, without the secret of a token that the client put somewhere."""
        return _SECRETS.sub(r"\1***", super().render(content).decode("ascii")).encode("ascii")


def status_of(error: JobsError) -> int:
    """Return the HTTP status that *error* is answered with."""
    if isinstance(error, JobConflict) and "differs" not in error.data:
        # with a job that the caller may not see: nothing is said of it
        return 409
    return next((STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES), 500)


def masked(text: str) -> str:
    """Return *text* with the secret part of every token in it replaced, and cut to a length worth reading."""
    return _SECRETS.sub(r"\1***", text)[:_LONGEST]


def problem(error: JobsError, *, status: int | None = None) -> Problem:
    """Return the answer for *error*; *status* stands in for the table's where the caller knows better."""
    code = status if status is not None else status_of(error)
    body: dict[str, Any] = {
        "type": error.type,
        "title": error.title,
        "status": code,
        "detail": error.detail[:_LONGEST],
        "hint": error.hint[:_LONGEST],
    }
    data = dict(error.data)
    pause = data.get("retry_after")
    fields = data.pop("fields", None)
    if fields is not None:
        body["errors"] = fields
    if isinstance(error, errors.JobNotFound):
        body["error"] = "job not found"
    headers = {"Cache-Control": "no-store"}
    # waiting mends no damage
    if code == 503 and not isinstance(error, request_errors.ResultDamaged):
        headers["Retry-After"] = str(RETRY_SECONDS)
    if pause is not None:
        headers["Retry-After"] = str(pause)
    if isinstance(error, request_errors.RangeUnsatisfiable):
        headers["Content-Range"] = f"bytes */{error.data.get('size', '*')}"
    if code == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="autocode-jobs"'
    return Problem({**data, **body}, status_code=code, headers=headers)


def discreet(error: JobsError) -> JobsError:
    """Return *error* without its detail, which may name hosts, accounts and paths to anybody who asks."""
    kept = {name: error.data[name] for name in ("retry_after",) if name in error.data}
    return type(error)(f"{error.title}. The service's log says more.", hint=error.hint, **kept)


Refused = Callable[[Request, JobsError, int], Awaitable[None]]


def install(app: FastAPI, refused: Refused) -> None:
    """Let *app* answer every error with a problem; *refused* is told of each before, with its status."""

    async def own(request: Request, error: Exception) -> Response:
        assert isinstance(error, JobsError)
        return await _answer(request, error, refused)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return await _answer(request, _query_error(error), refused)

    app.add_exception_handler(JobsError, own)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _answer(request: Request, error: JobsError, refused: Refused) -> Response:
    try:
        await refused(request, error, status_of(error))
    except JobsError as trouble:
        # a refusal that can't be kept for the audit isn't told either
        error = trouble
    code = status_of(error)
    if isinstance(error, _PASSING):
        _log.info("a request is told to come again: %s", error.detail)
    elif code >= 500:
        _log.error("a request failed: %s", masked(error.detail), exc_info=error if code == 500 else None)
    return problem(discreet(error) if code >= 500 else error)


def _query_error(error: RequestValidationError) -> errors.UsageError:
    """Name each parameter of the query that is off."""
    fields = [{"parameter": masked(str(item["loc"][1])), "detail": item["msg"]} for item in error.errors()]
    told = "; ".join(f"{item['parameter']}: {item['detail']}" for item in fields)
    return errors.UsageError(f"The query is off: {told}.", hint=_QUERY_HINT, fields=fields)


_QUERY_HINT: Final = "Correct the parameters named in `errors`; /openapi.json has the allowed ones."


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {masked(request.url.path)}: {error.detail}."
    answer = problem(request_errors.RequestInvalid(detail), status=error.status_code)
    answer.headers.update(error.headers or {})
    return answer


def _unexpected(_request: Request, _error: Exception) -> Response:
    # its text could hold anything; the log has it, and Starlette raises it again for that
    shown = JobsError("The service met an error that nobody expected; its log says which.")
    return problem(shown, status=500)
