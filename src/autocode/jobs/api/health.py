"""``/livez`` and ``/readyz``: what is known of the parts of the service, and what isn't.

Only the ledger decides whether this process is ready: a job is durable once it is there, and waits for the
rest. What can't be known from here is called ``unknown``, not ``ok``.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import httpx
from fastapi import APIRouter
from starlette.requests import HTTPConnection
from starlette.responses import Response

from autocode.jobs import locks
from autocode.jobs.api.access import authenticate
from autocode.jobs.api.models import Alive, Readiness
from autocode.jobs.api.problems import RETRY_SECONDS, JsonResponse, discreet
from autocode.jobs.api.service import Calls, Service, Shared
from autocode.jobs.api.settings import Settings
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.clock import parse_time, rfc3339
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger import glances
from autocode.jobs.settings import LEASE_SECONDS, has_room

__all__ = ["router"]

router: Final = APIRouter(tags=["health"])

_PREFECT_SECONDS: Final = 2.0
_ONLINE: Final = timedelta(seconds=90)
"""Prefect's workers send a heartbeat every 30 s; it calls one offline after three that it missed."""

Word = Literal["ok", "missing", "unavailable", "unknown"]
Check = dict[str, str]


@router.get("/livez", response_model=None, responses={200: {"model": Alive}})
async def livez() -> Response:
    """Say that the process answers; nothing else is looked at."""
    return JsonResponse({"status": "alive"})


@router.get("/readyz", response_model=None, responses={200: {"model": Readiness}, 503: {"model": Readiness}})
async def readyz(connection: HTTPConnection, service: Shared, calls: Calls) -> Response:
    """Say what is known of ledger, Prefect, reconciler, worker and disk.

    `200` with `ready`, or `degraded` where jobs are accepted and something else is missing; `503` with
    `unavailable` where the ledger is away. Hosts and processes are named to callers with a token alone.
    """
    named = await _is_known(connection, service, calls)
    ledger, (prefect, workers) = await asyncio.gather(_ledger(service, calls), _prefect(service.settings))
    checks = {
        "ledger": ledger,
        "prefect": prefect,
        "reconciler": await _reconciler(service, calls, named=named)
        if ledger["status"] == "ok"
        else _unseen(),
        "worker": _worker(service, workers, named=named),
        "disk": _disk(service),
    }
    words = {check["status"] for check in checks.values()}
    away = ledger["status"] != "ok"
    status = "unavailable" if away else "degraded" if words & {"missing", "unavailable"} else "ready"
    body = {"status": status, "checks": checks, "as_of": rfc3339(service.db.clock.now())}
    headers = {"Retry-After": str(RETRY_SECONDS)} if away else {}
    return JsonResponse(body, status_code=503 if away else 200, headers=headers)


async def _is_known(connection: HTTPConnection, service: Service, calls: RequestCalls) -> bool:
    """Say whether the caller has a token that works; everybody else is answered too, and told less."""
    try:
        await authenticate(connection, service, calls)
    except JobsError:
        return False
    return True


def _check(word: Word, detail: str) -> Check:
    return {"status": word, "detail": detail}


def _disk(service: Service) -> Check:
    if has_room(service.system.home.path):
        return _check("ok", "The data folder has room.")
    return _check("missing", "The data folder has no room left: jobs are accepted, and wait until it has.")


def _unseen() -> Check:
    return _check("unknown", "The ledger, which would say, can't be read.")


async def _ledger(service: Service, calls: RequestCalls) -> Check:
    try:
        await calls(glances.epoch, service.db)
    except JobsError as error:
        return _check("unavailable", discreet(error).detail)
    return _check("ok", f"The database answers ({service.db.dialect}).")


async def _reconciler(service: Service, calls: RequestCalls, *, named: bool) -> Check:
    """Judge the leading reconciler by its counter: it lives if the counter moves while we look."""
    try:
        found = await calls(glances.leaders, service.db)
    except JobsError:
        return _unseen()
    now = asyncio.get_running_loop().time()
    for role, holder, term, renewals in found:
        if role != "reconcile":
            continue
        if not holder:
            return _alive_here(service, "reconcile", named=named) or _check(
                "missing", "No reconciler leads: the last one ended in order."
            )
        who = holder if named else "A reconciler"
        seen, since = service.heard.get(role, ((-1, -1), now))
        if seen == (-1, -1) or seen != (term, renewals):
            service.heard[role] = ((term, renewals), now)
        if seen == (-1, -1):
            return _alive_here(service, "reconcile", named=named) or _check(
                "unknown",
                f"{who} was the last to lead; ask again in a few seconds to learn if it still does.",
            )
        if seen != (term, renewals) or now - since <= LEASE_SECONDS:
            return _check("ok", f"{who} leads (term {term}).")
        return _check("missing", f"{who} has not renewed its lead for {now - since:.0f} s.")
    return _alive_here(service, "reconcile", named=named) or _check(
        "missing", "No reconciler has ever led here."
    )


def _alive_here(service: Service, part: str, *, named: bool) -> Check | None:
    """Return what the locks of the home prove: that a process of this part lives on this machine."""
    names = [
        path.stem for path in sorted(service.system.home.run.glob(f"{part}*.lock")) if locks.is_held(path)
    ]
    told = f": {', '.join(names)}" if named else ""
    return _check("ok", f"Running on this machine{told}.") if names else None


def _worker(service: Service, workers: list[dict[str, Any]] | None, *, named: bool) -> Check:
    here = _alive_here(service, "worker", named=named)
    if here is not None:
        return here
    if workers is None:
        return _check(
            "unknown", "No worker holds a lock of this data folder, and Prefect could not be asked."
        )
    oldest = datetime.now(UTC) - _ONLINE
    online = [
        str(each.get("name"))
        for each in workers
        if (parse_time(each.get("last_heartbeat_time")) or datetime.min.replace(tzinfo=UTC)) > oldest
    ]
    if online:
        who = ", ".join(sorted(online)) if named else "a worker"
        return _check("ok", f"Prefect heard from {who} within {_ONLINE.seconds} s.")
    pool = service.settings.work_pool
    return _check("missing", f"Prefect knows of no worker of the pool {pool!r} that is online.")


async def _prefect(settings: Settings) -> tuple[Check, list[dict[str, Any]] | None]:
    """Return whether Prefect answers, and its workers where it says."""
    if settings.prefect_api is None:
        return _check("unknown", "This process wasn't told where Prefect is."), None
    user, _, password = (settings.prefect_auth or "").partition(":")
    auth = (user, password) if settings.prefect_auth else None
    secure = settings.prefect_api.startswith("https:")
    try:
        async with httpx.AsyncClient(
            base_url=settings.prefect_api, auth=auth, timeout=_PREFECT_SECONDS, verify=secure, trust_env=False
        ) as client:
            answer = await client.get("/health")
            answer.raise_for_status()
            found = await client.post(f"/work_pools/{settings.work_pool}/workers/filter", json={})
    except httpx.HTTPError as error:
        return _check("unavailable", f"Prefect doesn't answer as it should ({type(error).__name__})."), None
    if found.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
        return _check(
            "unavailable", "Prefect doesn't let this process in: is PREFECT_API_AUTH_STRING set?"
        ), None
    health = _check("ok", "Prefect's API answers.")
    if found.status_code == httpx.codes.NOT_FOUND:
        return health, []
    return health, found.json() if found.is_success else None
