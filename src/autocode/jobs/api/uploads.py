"""``PUT /v1/objects/{digest}``: bytes of a snapshot, written to the store while they come, and verified.

Every byte has to be sent, also of an object that is there: an answer that spared it would tell anybody with a
digest what others have.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from autocode.jobs import crash
from autocode.jobs.api.access import Operator, Viewer
from autocode.jobs.api.problems import JsonResponse
from autocode.jobs.api.service import Calls, Service, Shared
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.canonical import is_digest
from autocode.jobs.engine.system import System
from autocode.jobs.errors import DiskFull, UsageError
from autocode.jobs.ledger import uploads
from autocode.jobs.ledger.access import Principal
from autocode.jobs.request_errors import (
    DigestMismatch,
    RequestInvalid,
    RequestStalled,
    RequestTooLarge,
    ServiceBusy,
)
from autocode.jobs.settings import ENOUGH_BYTES
from autocode.jobs.store import ObjectInfo, Staging

__all__ = ["put_object", "router"]

router: Final = APIRouter(tags=["uploads"])

_BLOCK: Final = 1 << 20
"""Bytes that are handed to a thread at once; more of an upload is never in memory."""

_PROBLEM: Final[dict[str, Any]] = {"application/problem+json": {}}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "you sent it before; it was verified again"},
    201: {"description": "it is in the store, verified and durable; `Location` is its address"},
    400: {"description": "`Content-Range`, or a `Content-Length` that is none", "content": _PROBLEM},
    401: {"description": "no token that works", "content": _PROBLEM},
    403: {"description": "the token's role is too small", "content": _PROBLEM},
    408: {"description": "the body stopped coming", "content": _PROBLEM},
    413: {
        "description": "the object is larger than the service takes; `limit` has the bytes",
        "content": _PROBLEM,
    },
    422: {"description": "no digest, or the bytes have another one; nothing was kept", "content": _PROBLEM},
    503: {"description": "too many uploads at once, or the ledger can't be reached", "content": _PROBLEM},
    507: {"description": "the disk has no room for it; nothing was kept", "content": _PROBLEM},
}
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_HEAD: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "you sent it, or a snapshot that you may see has it; it is in the store"},
    401: {"description": "no token that works"},
    403: {"description": "the token's role is too small"},
    404: {"description": "send it"},
    503: {"description": "the ledger can't be reached"},
}


@router.put(
    "/v1/objects/{digest}", response_model=None, status_code=201, responses=_ANSWERS, openapi_extra=_BODY
)
async def put(digest: str, request: Request, service: Shared, calls: Calls, caller: Operator) -> Response:
    """Upload an object: the body's bytes as they are, under `sha256:` and the hex digits of their SHA-256.

    It is kept for a week, unless a snapshot names it.
    """
    if not is_digest(digest):
        raise UsageError(f"{digest[:100]!r} is no digest.", hint="A digest is sha256: and 64 hex digits.")
    length = _announced(request, service.settings.object_limit)
    if service.uploading >= service.settings.uploads:
        raise ServiceBusy(f"There are {service.uploading} uploads at this moment.")
    service.uploading += 1
    try:
        body = _blocks(request, service.settings.object_limit, service.settings.upload_seconds)
        info, new = await put_object(service, calls, caller, body, digest=digest, length=length)
    finally:
        service.uploading -= 1
    return JsonResponse(
        {"digest": info.digest, "size": info.size},
        status_code=201 if new else 200,
        headers={"Location": f"/v1/objects/{info.digest}"} if new else {},
    )


@router.head("/v1/objects/{digest}", response_model=None, responses=_HEAD)
async def has_object(digest: str, service: Shared, calls: Calls, caller: Viewer) -> Response:
    """Say whether an object need not be sent: it is yours, and in the store."""
    found = is_digest(digest) and digest in await calls(uploads.visible_objects, service.db, caller, [digest])
    if not found or await service.files(service.system.store.stat, digest) is None:
        return Response(status_code=404)
    return Response(status_code=200)


async def put_object(
    service: Service,
    calls: RequestCalls,
    caller: Principal,
    body: AsyncIterator[bytes],
    *,
    digest: str,
    length: int,
) -> tuple[ObjectInfo, bool]:
    """Write *body* to the store under *digest*, referred to as an upload of *caller*.

    The reference comes before the object is visible, as with every object. A caller that breaks off leaves
    nothing.

    Args:
        service: the application's.
        calls: to the ledger; their time begins anew when the body is complete.
        caller: who sends it.
        body: the bytes, in blocks.
        digest: what they must be.
        length: how many there will be, as far as that is known.

    Returns:
        The object, and whether it is this caller's first upload of it.

    Raises:
        DigestMismatch: the bytes are others.
        DiskFull: there is no room.
    """
    files = service.files
    writing = _Writing(service.system)
    try:
        await files(writing.begin, length)
        async for block in body:
            await files(writing.write, block)
        info = await files(writing.finish)
        if info.digest != digest:
            raise DigestMismatch(f"The {info.size:,} bytes that came are {info.digest}.", digest=info.digest)
        calls.renew()
        new = await calls(uploads.note_upload, service.db, caller, info.digest, info.size)
        await files(writing.publish)
        return info, new
    finally:
        # in a thread: the last write may be under way still when the caller has gone
        files.later(writing.discard)


class _Writing:
    """An object on its way into the store; a call waits for the one before, in whatever thread that is."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._staging: Staging | None = None
        self._over = False

    def begin(self, length: int) -> None:
        with self._lock:
            self._check_room(length)
            if not self._over:
                self._staging = self._system.store.stage()

    def write(self, block: bytes) -> None:
        with self._lock:
            self._check_room(len(block))
            self._held().write(block)

    def finish(self) -> ObjectInfo:
        with self._lock:
            return self._held().finish()

    def publish(self) -> None:
        with self._lock:
            self._held().publish()
        crash.at("step.after-object")

    def discard(self) -> None:
        with self._lock:
            self._over = True
            if self._staging is not None:
                self._staging.discard()

    def _held(self) -> Staging:
        if self._staging is None:
            raise RequestStalled("The request was given up.")
        return self._staging

    def _check_room(self, length: int) -> None:
        # what is left is the ledger's: an upload must not take the room that running jobs need to go on
        home = self._system.home.path
        if shutil.disk_usage(home).free < length + ENOUGH_BYTES:
            raise DiskFull(f"{home} has no room for another {length:,} bytes.")


def _announced(request: Request, limit: int) -> int:
    """Return how many bytes will come, as far as the request says; 0 where it doesn't.

    Raises:
        RequestInvalid: it is a part of an object only, or its length is no number.
        RequestTooLarge: it is more than *limit*.
    """
    if "content-range" in request.headers:
        raise RequestInvalid("An object is sent whole.", hint="Leave Content-Range out.")
    text = request.headers.get("content-length", "0")
    if not (text.isascii() and text.isdecimal()):
        raise RequestInvalid("Content-Length is no number.")
    if int(text) > limit:
        raise _too_large(limit)
    return int(text)


async def _blocks(request: Request, limit: int, seconds: float) -> AsyncIterator[bytes]:
    """Yield the body in blocks of a mebibyte.

    Raises:
        RequestStalled: nothing came for *seconds*, or the caller has gone.
        RequestTooLarge: there is more than *limit*.
    """
    held = bytearray()
    size = 0
    chunks = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(seconds):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise RequestStalled(f"Nothing came for {seconds:g} s.") from None
        except ClientDisconnect:
            raise RequestStalled("The connection broke.") from None
        if chunk is None:
            break
        held += chunk
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        while len(held) >= _BLOCK:
            yield bytes(held[:_BLOCK])
            del held[:_BLOCK]
    if held:
        yield bytes(held)


def _too_large(limit: int) -> RequestTooLarge:
    hint = "Leave the file out, or ask whoever runs the service."
    return RequestTooLarge(f"An object has {limit:,} bytes at most.", hint=hint, limit=limit)
