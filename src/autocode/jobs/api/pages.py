"""The few pages for a browser: logging in, and what there is until the queue view comes."""

from __future__ import annotations

import html
from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from autocode.jobs.api import refusals
from autocode.jobs.api.access import Admin, authenticate, require_all
from autocode.jobs.api.bodies import model_of, read_json, read_text
from autocode.jobs.api.limits import address_of
from autocode.jobs.api.models import LoginBody, LoginPath
from autocode.jobs.api.problems import JsonResponse, status_of
from autocode.jobs.api.service import Calls, Service, Shared
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.clock import rfc3339
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger import access, listing
from autocode.jobs.ledger.access import SESSION_LIFETIME, Principal
from autocode.jobs.request_errors import RequestRefused, TokenInvalid, TooManyRequests

__all__ = ["router"]

router: Final = APIRouter()

_FORM_BYTES: Final = 4_096
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; margin: 3rem auto; max-width: 42rem; padding: 0 1rem }
table { border-collapse: collapse } td, th { padding: .25rem 1.5rem .25rem 0; text-align: left }
td + td { text-align: right; font-variant-numeric: tabular-nums }
button { font: inherit; padding: .5rem 1rem }
"""


@router.get("/login", include_in_schema=False, response_model=None)
async def login_page(code: str = "") -> Response:
    """Show one button: a browser or a scanner that fetches links ahead doesn't use the code up."""
    field = f'<input type="hidden" name="code" value="{html.escape(code)}">'
    button = f'<form method="post" action="/login">{field}<button>Log in</button></form>'
    note = "<p>This link works once. It opens a session of twelve hours in this browser.</p>"
    return _page("Log in", f"{note}{button}")


@router.post("/login", include_in_schema=False, response_model=None)
async def log_in(request: Request, service: Shared, calls: Calls) -> Response:
    """Use the code up, and let the browser in."""
    if "origin" not in request.headers and request.headers.get("sec-fetch-site") != "same-origin":
        # nobody may log a browser in behind its owner's back
        return _failed(service, RequestRefused("The request doesn't say which page sent it."), 403)
    form = parse_qs(await read_text(request, _FORM_BYTES), keep_blank_values=True)
    code = form.get("code", [""])[0]
    try:
        service.limits.login(address_of(request))
        session = await calls(access.redeem, service.db, code, request_id=refusals.request_id(request))
    except (TokenInvalid, TooManyRequests) as error:
        return _failed(service, error, status_of(error))
    response = RedirectResponse("/", status_code=303, headers=_HEADERS)
    response.set_cookie(
        service.cookie,
        session.text,
        max_age=int(SESSION_LIFETIME.total_seconds()),
        path="/",
        httponly=True,
        samesite="strict",
        secure=service.settings.public is not None or request.url.scheme == "https",
    )
    return response


@router.post(
    "/v1/logins",
    name="login.create",
    status_code=201,
    tags=["access"],
    response_model=None,
    responses={201: {"model": LoginPath, "description": "the path that lets one browser in, once"}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": LoginBody.model_json_schema()}},
        }
    },
)
async def new_login(request: Request, service: Shared, calls: Calls, caller: Admin) -> Response:
    """Make a login for one browser session; its path works once, for a quarter of an hour."""
    # the session that it opens is bound to nothing
    require_all(caller)
    body = model_of(LoginBody, await read_json(request, _FORM_BYTES))
    code = await calls(
        access.create_login,
        service.db,
        role=body.role,
        actor=caller.actor,
        request_id=refusals.request_id(request),
    )
    return JsonResponse({"path": f"/login?code={code}"}, status_code=201)


@router.post("/logout", include_in_schema=False, response_model=None)
async def log_out(request: Request, service: Shared, calls: Calls) -> Response:
    """End the session of this browser."""
    caller = await _caller(request, service, calls)
    if caller is not None:
        await calls(
            access.revoke,
            service.db,
            caller.token_id,
            actor=caller.actor,
            action="logout",
            request_id=refusals.request_id(request),
        )
    response = RedirectResponse("/", status_code=303, headers=_HEADERS)
    response.delete_cookie(service.cookie, path="/", httponly=True, samesite="strict")
    return response


@router.get("/", include_in_schema=False, response_model=None)
async def front_page(request: Request, service: Shared, calls: Calls) -> Response:
    """Show how many jobs are in each state."""
    caller = await _caller(request, service, calls)
    if caller is None:
        return _page(
            "autocode-jobs",
            "<p>You aren't logged in. Open the link that the service printed when it started; "
            "each works once.</p>",
            status=401,
        )
    counts = await calls(listing.counts, service.db, listing.Filter(sessions=caller.sessions))
    rows = "".join(
        f'<tr><td><a href="/v1/jobs?status={status}">{status}</a></td><td>{count}</td></tr>'
        for status, count in counts.by_status.items()
    )
    dead = ", ".join(f"{count} {reason}" for reason, count in counts.dead.items() if count)
    told = f"<p>Dead: {dead}.</p>" if dead else ""
    ui = service.settings.prefect_ui
    links = '<a href="/readyz">health</a> · <a href="/openapi.json">the HTTP interface</a>' + (
        f' · <a href="{html.escape(ui)}">Prefect</a>' if ui else ""
    )
    table = f"<table><thead><tr><th>jobs</th><th></th></tr></thead><tbody>{rows}</tbody></table>"
    return _page(
        "autocode-jobs", f"{table}{told}<p>As of {rfc3339(counts.as_of)}.</p><p>{links}</p>{_logout()}"
    )


async def _caller(request: Request, service: Service, calls: RequestCalls) -> Principal | None:
    try:
        return await authenticate(request, service, calls)
    except TokenInvalid:
        return None


def _logout() -> str:
    return '<form method="post" action="/logout"><button>Log out</button></form>'


def _failed(service: Service, error: JobsError, status: int) -> Response:
    service.denied[error.type] += 1
    told = f"<p>{html.escape(error.detail)}</p><p>{html.escape(error.hint)}</p>"
    page = _page(html.escape(error.title), told, status=status)
    if "retry_after" in error.data:
        page.headers["Retry-After"] = str(error.data["retry_after"])
    return page


def _page(title: str, body: str, *, status: int = 200) -> Response:
    text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<main><h1>{title}</h1>{body}</main></html>"
    )
    return HTMLResponse(text, status_code=status, headers=_HEADERS)
