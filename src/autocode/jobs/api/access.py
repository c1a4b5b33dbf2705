"""Who is calling: a bearer token, or the cookie of a browser session."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Depends
from starlette.requests import HTTPConnection

from autocode.jobs.api.service import Calls, Service, Shared
from autocode.jobs.errors import JobNotFound
from autocode.jobs.ledger import access
from autocode.jobs.ledger.access import Principal, Role
from autocode.jobs.request_errors import NotAllowed, RequestRefused, TokenInvalid

__all__ = ["Admin", "Caller", "Operator", "Viewer", "require", "see", "token_of"]

_BEARER: Final = re.compile(r"(?i:bearer) +([^\s]+) *")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


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
    changes = connection.scope["type"] == "websocket" or connection.scope["method"] not in _SAFE
    shown = "origin" in connection.headers or connection.headers.get("sec-fetch-site") == "same-origin"
    if changes and not shown:
        raise RequestRefused(
            "A cookie came with a request that doesn't say which page sent it.",
            hint="Programs send `Authorization: Bearer <token>`; a browser sends Origin by itself.",
        )
    return cookie


async def _caller(connection: HTTPConnection, service: Shared, calls: Calls) -> Principal:
    token = token_of(connection, service)
    if token is None:
        raise TokenInvalid("The request has no token.")
    return await calls(access.verify, service.db, token)


Caller = Annotated[Principal, Depends(_caller)]
"""A caller whose role the route checks by itself."""


def require(caller: Principal, role: Role) -> None:
    """Let *caller* pass if it has *role*.

    Raises:
        NotAllowed: it has a lesser one.
    """
    if not caller.role.covers(role):
        raise NotAllowed(f"This needs the role {role}, and the token {caller.token_id} is {caller.role}.")


def see(caller: Principal, job_id: str, session_id: str | None) -> None:
    """Let *caller* pass if it may see a job of this session.

    Raises:
        JobNotFound: it may not; to the caller there is no such job.
    """
    if not caller.sees(session_id):
        raise JobNotFound(f"There is no job {job_id!r}.")


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
