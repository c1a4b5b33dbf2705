"""``PUT /v1/objects/{digest}``: bytes of a snapshot, written to the store while they come, and verified.

Every byte has to be sent, also of an object that is there: an answer that spared it would tell anybody with a
digest what others have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from autocode.jobs.api.access import Operator, Viewer
from autocode.jobs.api.models import StoredObject
from autocode.jobs.api.problems import JsonResponse
from autocode.jobs.api.receiving import is_stored, put_object
from autocode.jobs.api.service import Calls, Shared
from autocode.jobs.canonical import is_digest
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import uploads
from autocode.jobs.request_errors import (
    RequestInvalid,
    RequestStalled,
    RequestTooLarge,
    ServiceBusy,
)

__all__ = ["router"]

router: Final = APIRouter(tags=["uploads"])

_BLOCK: Final = 1 << 20
"""Bytes that are handed to a thread at once; more of an upload is never in memory."""

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": StoredObject, "description": "you sent it before; it was verified again"},
    201: {
        "model": StoredObject,
        "description": "it is in the store, verified and durable; `Location` is its address",
    },
    400: {"description": "`Content-Range`, or a `Content-Length` that is none"},
    401: {"description": "no token that works"},
    403: {"description": "the token's role is too small"},
    408: {"description": "the body stopped coming"},
    413: {
        "description": "the object is larger than the service takes; `limit` has the bytes",
    },
    422: {"description": "no digest, or the bytes have another one; nothing was kept"},
    503: {"description": "too many uploads at once, or the ledger can't be reached"},
    507: {"description": "the disk has no room for it; nothing was kept"},
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
    "/v1/objects/{digest}",
    name="upload",
    response_model=None,
    status_code=201,
    responses=_ANSWERS,
    openapi_extra=_BODY,
)
async def put(digest: str, request: Request, service: Shared, calls: Calls, caller: Operator) -> Response:
    """Upload an object: the body's bytes as they are, under `sha256:` and the hex digits of their SHA-256.

    It is kept for a week, unless a snapshot names it. The audit has the snapshot, and of uploads only those
    that were refused: a folder is thousands of them.
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
    there = found and await service.files(is_stored, service.system.store, digest)
    return Response(status_code=200 if there else 404)


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
