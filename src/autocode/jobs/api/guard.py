"""The outermost layer: which hosts and pages may talk to us, and one line of log for each request.

A page of another site can make a browser send requests here. It can't read the answers, but a request may do
harm by itself, so what comes from another origin is refused before anything is read. A foreign name that
resolves to this machine (DNS rebinding) makes a foreign page look like one of ours; its ``Host`` tells.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autocode.jobs.api.problems import masked, problem
from autocode.jobs.api.settings import is_loopback
from autocode.jobs.request_errors import RequestRefused

__all__ = ["Guard"]

_log = logging.getLogger("autocode.jobs.api.access")

_JOB: Final = re.compile(r"/v1/jobs/([A-Za-z0-9][A-Za-z0-9._:-]{0,127})(?:/|$)")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]{1,5})?")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_ALWAYS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware around the whole application.

    Args:
        app: the application.
        hosts: host names that are ours beside the loopback ones.
        public: the origin of a proxy in front of us, whose host is ours too.
        refused: told of each refusal by its type.
        answered: told of each answer: the scope, its status, and the seconds that it took.
        monotonic: a clock in seconds, to measure with.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: frozenset[str],
        public: str | None = None,
        *,
        refused: Callable[[str], None] = lambda _: None,
        answered: Callable[[Scope, int, float], None] = lambda *_: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._public = None if public is None else public.lower()
        self._public_name = None if public is None else urlsplit(public).hostname
        named = hosts if self._public_name is None else hosts | {self._public_name}
        self._hosts = frozenset(host.lower().rstrip(".") for host in named)
        self._refused = refused
        self._answered = answered
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        # a copy: what a server hands on is shared by its requests
        scope["state"] = {**scope.get("state", {}), "request_id": _request_id(Headers(scope=scope))}
        refusal = self._refusal(scope)
        if refusal is not None:
            self._refused(refusal.type)
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send, refusal)
            return
        await self._http(scope, receive, send, refusal)

    async def _socket(
        self, scope: Scope, receive: Receive, send: Send, refusal: RequestRefused | None
    ) -> None:
        began = self._monotonic()
        seen: dict[str, Any] = {"status": None}

        async def observe(message: Message) -> None:
            if message["type"] == "websocket.close":
                seen["status"] = seen["status"] or message.get("code", 1000)
            await send(message)

        async def hear() -> Message:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                seen["status"] = seen["status"] or message.get("code")
            return message

        try:
            if refusal is None:
                await self._app(scope, hear, observe)
            else:
                await observe({"type": "websocket.close", "code": 4403, "reason": "request refused"})
        finally:
            seconds = round(self._monotonic() - began, 1)
            path = masked(scope["path"])
            _log.info("socket", extra={"method": "SOCKET", "path": path, "seconds": seconds, **seen})

    async def _http(self, scope: Scope, receive: Receive, send: Send, refusal: RequestRefused | None) -> None:
        began = self._monotonic()
        request_id = scope["state"]["request_id"]
        seen: dict[str, Any] = {"status": 500, "job_id": _job_in(scope["path"]), "request_id": request_id}

        async def observe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                headers["X-Request-Id"] = request_id
                seen["status"] = message["status"]
                seen["job_id"] = seen["job_id"] or _job_in(headers.get("location", ""))
            await send(message)

        try:
            if refusal is None:
                await self._app(scope, receive, observe)
            else:
                await problem(refusal)(scope, receive, observe)
        finally:
            seconds = self._monotonic() - began
            self._answered(scope, seen["status"], seconds)
            milliseconds = round(seconds * 1000, 1)
            path = masked(scope["path"])
            facts = {"method": scope["method"], "path": path, "ms": milliseconds, **seen}
            _log.info("request", extra=facts)

    def _refusal(self, scope: Scope) -> RequestRefused | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._ours(hosts[0]):
            return RequestRefused(f"The host {masked(', '.join(hosts))!r} isn't one of this service's names.")
        origins = headers.getlist("origin")
        if origins and not (len(origins) == 1 and self._same(origins[0], hosts[0], scope["scheme"])):
            return RequestRefused("The request comes from a page of another origin.")
        site = headers.get("sec-fetch-site", "none")
        opened = headers.get("sec-fetch-mode") == "navigate" and scope.get("method") in {"GET", "HEAD"}
        # a link may lead here from anywhere; `same-site` is another port of this very machine
        if site in {"cross-site", "same-site"} and not opened:
            return RequestRefused("The browser says that a page of another site sent the request.")
        return None

    def _ours(self, host: str) -> bool:
        parts = _HOST.fullmatch(host)
        if parts is None:
            return False
        name = parts[1].lower().rstrip(".")
        return is_loopback(name) or name in self._hosts

    def _same(self, origin: str, host: str, scheme: str) -> bool:
        """Say whether *origin* is the address that the request went to, or the proxy's."""
        if self._public is not None and origin.lower() == self._public:
            return True
        try:
            parts, name = urlsplit(origin), urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if self._public_name is not None and name == self._public_name:
            # a page that came without TLS under the public name could be anybody's
            return False
        # a WebSocket is opened by a page, which has the scheme of pages
        ours = {"ws": "http", "wss": "https"}.get(scheme, scheme)
        return parts.scheme == ours and parts.netloc.lower() == host.lower()


def _request_id(headers: Headers) -> str:
    """Return the caller's id of the request where it is harmless in a log, else one of our own."""
    given = headers.getlist("x-request-id")
    if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]) and masked(given[0]) == given[0]:
        return given[0]
    return secrets.token_hex(8)


def _job_in(path: str) -> str | None:
    found = _JOB.match(path)
    return masked(found[1]) if found else None
