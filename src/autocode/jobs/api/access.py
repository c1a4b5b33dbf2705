"""Who is calling: a bearer token, or the cookie of a browser session; and what they may do."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Depends
from starlette.requests import HTTPConnection

from autocode.jobs.api import refusals
from autocode.jobs.api.limits import address_of
from autocode.jobs.api.service import Calls, Service, Shared
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.ledger import access
from autocode.jobs.ledger.access import Principal, Role
from autocode.jobs.request_errors import NotAllowed, RequestRefused, TokenInvalid

__all__ = ["Admin", "Caller", "Operator", "Viewer", "authenticate", "require", "require_all", "token_of"]

_BEARER: Final = re.compile(r"(?i:bearer) +([^\s]+) *")


def token_of(connection: HTTPConnection, service: Service) -> str | None:
    """Return the token of a request: that of its header, else that of its cookie.

    Raises:
        TokenInvalid: the header isn't a bearer token.
        RequestRefused: a request that changes something or opens a socket has a cookie, and doesn't show
            which page sent it.
    """
    headers = connection.headers.getlist("authorization")
    if headers:
        parts = _BEARER.fullmatch(headers[0])
        if len(headers) > 1 or parts is None:
            raise TokenInvalid("The Authorization header isn't a bearer token.")
        return parts[1]
    cookie = connection.cookies.get(service.cookie)
    if cookie is None:
        return None
    # a browser sends its cookie with a socket that any page opens, so that is no safer than a change
    changes = connection.scope["type"] == "websocket" or connection.scope["method"] not in refusals.SAFE
    shown = "origin" in connection.headers or connection.headers.get("sec-fetch-site") == "same-origin"
    if changes and not shown:
        raise RequestRefused(
            "A cookie came with a request that doesn't say which page sent it.",
            hint="Programs send `Authorization: Bearer <token>`; a browser sends Origin by itself.",
        )
    return cookie


async def authenticate(connection: HTTPConnection, service: Service, calls: RequestCalls) -> Principal:
    """Return who sends the request: the one way in, for every route.

    Raises:
        TokenInvalid: there is no token, or none that works.
        TooManyRequests: too many wrong tokens came from the same address.
        RequestRefused: a cookie came without saying which page sent it.
    """
    token = token_of(connection, service)
    if token is None:
        raise TokenInvalid("The request has no token.")
    address = address_of(connection)
    service.limits.attempt(address, token)
    try:
        caller = await calls(access.verify, service.db, token)
    except TokenInvalid:
        service.limits.tried(address, token, good=False)
        raise
    service.limits.tried(address, token, good=True)
    refusals.known(connection, caller)
    return caller


async def _caller(connection: HTTPConnection, service: Shared, calls: Calls) -> Principal:
    caller = await authenticate(connection, service, calls)
    if connection.scope.get("method", "GET") not in refusals.SAFE:
        service.limits.change(caller)
    return caller


Caller = Annotated[Principal, Depends(_caller)]
"""A caller whose role the route checks by itself."""


def require(caller: Principal, role: Role) -> None:
    """Let *caller* pass if it has *role*.

    Raises:
        NotAllowed: it has a lesser one.
    """
    if not caller.role.covers(role):
        raise NotAllowed(f"This needs the role {role}, and the token {caller.token_id} is {caller.role}.")


def require_all(caller: Principal) -> None:
    """Let *caller* pass if its token is for all sessions.

    Raises:
        NotAllowed: it is for some only.
    """
    if caller.sessions is not None:
        raise NotAllowed(
            f"The token {caller.token_id} is for some sessions only, and this is about all of them.",
            hint="Use a token that isn't bound to sessions.",
        )


async def _viewer(caller: Caller) -> Principal:
    require(caller, Role.VIEWER)
    return caller


async def _operator(caller: Caller) -> Principal:
    require(caller, Role.OPERATOR)
    return caller


async def _admin(caller: Caller) -> Principal:
    require(caller, Role.ADMIN)
    return caller


Viewer = Annotated[Principal, Depends(_viewer)]
Operator = Annotated[Principal, Depends(_operator)]
Admin = Annotated[Principal, Depends(_admin)]
