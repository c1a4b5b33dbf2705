"""What is refused: in the audit where the caller is known, and counted where nobody is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import Request
from starlette.requests import HTTPConnection

from autocode.jobs.api.problems import masked
from autocode.jobs.api.service import Service
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.errors import JobFinished, JobNotDead, JobsError, RevisionMoved
from autocode.jobs.ledger import audit
from autocode.jobs.ledger.access import Principal
from autocode.jobs.ledger.words import LONGEST_REASON
from autocode.jobs.request_errors import TooManyRequests

__all__ = ["SAFE", "about", "caller_of", "known", "record", "request_id"]

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

_IN_THE_LEDGER: Final = (JobFinished, JobNotDead, RevisionMoved)
"""The ledger raises these of a retry or cancel, and has the entry in the transaction that decided it."""

_LONGEST_TARGET: Final = 200

_NAMED: Final = {
    "job_id": "",
    "subscription_id": "subscription:",
    "delivery_id": "delivery:",
    "digest": "object:",
}
"""What a parameter of a path names, as the audit has it of accepted deeds."""


@dataclass(slots=True)
class _Deed:
    """What a request wants to do, as far as it was read."""

    target: str | None = None
    reason: str = ""


def request_id(connection: HTTPConnection) -> str | None:
    """Return the id that the request has in its answer, in the log and in the audit."""
    found: str | None = getattr(connection.state, "request_id", None)
    return found


def known(connection: HTTPConnection, caller: Principal) -> None:
    """Remember who sends the request."""
    connection.state.caller = caller


def caller_of(connection: HTTPConnection) -> Principal | None:
    """Return who sends the request, once that is known."""
    found: Principal | None = getattr(connection.state, "caller", None)
    return found


def about(connection: HTTPConnection, *, target: str | None = None, reason: str = "") -> None:
    """Remember to what a request wants to do something, and why, in case that it is refused.

    Without it the target is what a parameter of the path names, else the path, and the action the name of
    the route.
    """
    connection.state.deed = _Deed(target, reason)


async def record(request: Request, error: JobsError, status: int) -> None:
    """Write a refusal into the audit, if the request was to change something and its caller is known.

    Those of a caller that asks too often are counted, and the audit has one in a minute. Where nobody is
    known the refusal is counted by its type.

    Raises:
        LedgerUnavailable: the entry can't be written.
    """
    service: Service = request.app.state.service
    caller = caller_of(request)
    if caller is None:
        if status in {401, 403, 429}:
            service.denied[error.type] += 1
        return
    if request.method in SAFE or status >= 500 or isinstance(error, _IN_THE_LEDGER):
        return
    data = {}
    if isinstance(error, TooManyRequests):
        service.denied[error.type] += 1
        unsaid = service.limits.say(caller)
        if unsaid is None:
            return
        data = {"unsaid": unsaid}
    deed: _Deed = getattr(request.state, "deed", _Deed())
    route = request.scope.get("route")
    target = deed.target or _named(request.path_params) or request.url.path
    await RequestCalls(service.threads, service.settings.ledger_seconds)(
        audit.append,
        service.db,
        actor=caller.actor,
        action=_kept(str(getattr(route, "name", request.method)), 64),
        target=_kept(str(target), _LONGEST_TARGET),
        reason=_kept(deed.reason, LONGEST_REASON),
        outcome=f"refused: {error.type}",
        data=data,
        request_id=request_id(request),
    )


def _named(parameters: Mapping[str, str]) -> str | None:
    found = (f"{prefix}{parameters[name]}" for name, prefix in _NAMED.items() if name in parameters)
    return next(found, None)


def _kept(text: str, longest: int) -> str:
    """Return *text* as both databases take it, and without a token that somebody put there."""
    plain = masked(text).replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return plain.encode("utf-8", "replace").decode("utf-8")[:longest]
