"""Bytes as an answer: whole or a range, under a strong tag, and never more than was proven.

A transcript holds whatever its tools read, and is served from the origin that holds the session cookie. So
nothing is sniffed, everything but a view's own page is a download, and no page may run a script that its
policy doesn't name.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from autocode.jobs.api.files import FileThreads, Pieces
from autocode.jobs.api.ranges import Span, is_unchanged, span_of
from autocode.jobs.errors import ObjectCorrupt, ObjectMissing
from autocode.jobs.request_errors import ResultDamaged
from autocode.jobs.store import ObjectStore

__all__ = ["Content", "answer", "damage_told", "file_content", "object_content"]

_BLOCK: Final = 256 << 10
_SMALL: Final = 8 << 20
"""Stored bytes up to which an object is unpacked and proven before the first byte is sent."""

_CLOSED: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:; charset=utf-8)?")
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Content:
    """What a request may get.

    Args:
        tag: its entity tag, in quotes; other bytes have another one.
        size: number of its bytes.
        media_type: its type.
        name: the name that a browser saves it under.
        blocks: gives the bytes of a range; blocks, and raises where the bytes aren't what they should be.
        prove: called before the first byte is sent; raises where they aren't.
        digest: of all its bytes, in its written form, where that is known.
        policy: the Content-Security-Policy of a page to be shown; ``None`` for what is saved, not shown.
    """

    tag: str
    size: int
    media_type: str
    name: str
    blocks: Callable[[Span], Iterator[bytes]]
    prove: Callable[[], None] = lambda: None
    digest: str | None = None
    policy: str | None = None


async def answer(request: Request, files: FileThreads, content: Content) -> Response:
    """Return *content*, or the range of it that *request* asks for, or 304.

    Where the bytes turn out damaged when some of them were sent already, the connection is broken off before
    the announced length is reached: no client takes that for the whole.

    Raises:
        RangeUnsatisfiable: the range begins behind the end.
        ResultDamaged: the bytes are damaged or missing.
    """
    headers = {
        "ETag": content.tag,
        "Cache-Control": "private, no-cache",
        "Vary": "Authorization, Cookie",
    }
    if is_unchanged(request.headers, content.tag):
        return Response(status_code=304, headers=headers)
    span = span_of(request.headers, content.tag, content.size) if request.method == "GET" else None
    await files(content.prove)
    sent = span if span is not None else Span(0, content.size)
    headers |= _described(content) | {"Accept-Ranges": "bytes", "Content-Length": str(sent.end - sent.start)}
    if span is not None:
        headers["Content-Range"] = f"bytes {span.start}-{span.end - 1}/{content.size}"
    status = 200 if span is None else 206
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    return StreamingResponse(aiter(Pieces(files, content.blocks(sent))), status_code=status, headers=headers)


def object_content(store: ObjectStore, digest: str, *, size: int, media_type: str, name: str) -> Content:
    """Return an object of the store as content.

    A small one is unpacked and compared with its digest first. Of a larger one the stored bytes are compared
    with their checksum first, which finds what disks do, and the digest is compared on the way: the last
    block is held back until all of the object was read, also for a range that ends before.
    """

    def blocks(span: Span) -> Iterator[bytes]:
        with damage_told(), store.open(digest) as reader:
            held = b""
            left = span.end - span.start
            buffer = memoryview(bytearray(_BLOCK))
            skipped = 0
            while skipped < span.start and (
                count := reader.readinto(buffer[: min(_BLOCK, span.start - skipped)])
            ):
                skipped += count
            while left and (count := reader.readinto(buffer[: min(_BLOCK, left)])):
                if held:
                    yield held
                held = bytes(buffer[:count])
                left -= count
            while reader.readinto(buffer):
                pass
            yield held

    def prove() -> None:
        with damage_told():
            info = store.stat(digest)
            if info is None:
                raise ObjectMissing(f"Object {digest} is not in the store.", digest=digest)
            if info.stored_size <= _SMALL:
                store.verify(digest)
            else:
                store.check(digest)

    tag = f'"{digest}"'
    return Content(tag, size, media_type, name, blocks, prove=prove, digest=digest)


def file_content(
    path: Path,
    *,
    tag: str,
    media_type: str,
    name: str,
    digest: str | None = None,
    policy: str | None = None,
) -> Content:
    """Return a file of our own making as content.

    Raises:
        FileNotFoundError: there is none.
    """

    def blocks(span: Span) -> Iterator[bytes]:
        with open(path, "rb", buffering=0, opener=_unlinked) as file:
            file.seek(span.start)
            left = span.end - span.start
            while left:
                block = file.read(min(_BLOCK, left))
                if not block:
                    raise ResultDamaged(f"{path.name} is shorter than it was.")
                left -= len(block)
                yield block

    size = path.stat(follow_symlinks=False).st_size
    return Content(tag, size, media_type, name, blocks, digest=digest, policy=policy)


@contextmanager
def damage_told() -> Iterator[None]:
    """Turn what the store finds wrong into the answer for a result.

    Raises:
        ResultDamaged: an object is damaged or missing.
    """
    try:
        yield
    except (ObjectCorrupt, ObjectMissing) as error:
        raise ResultDamaged(error.detail) from error


def _described(content: Content) -> dict[str, str]:
    media_type = content.media_type if _TYPE.fullmatch(content.media_type) else "application/octet-stream"
    name = _ODD.sub("_", content.name)[-150:].lstrip("._-") or "result"
    how = "attachment" if content.policy is None else "inline"
    headers = {
        "Content-Type": media_type,
        "Content-Disposition": f'{how}; filename="{name}"',
        "Content-Security-Policy": content.policy if content.policy is not None else _CLOSED,
        "X-Content-Type-Options": "nosniff",
    }
    if content.digest is not None:
        value = base64.b64encode(bytes.fromhex(content.digest.removeprefix("sha256:"))).decode("ascii")
        headers["Repr-Digest"] = f"sha-256=:{value}:"
    return headers


def _unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
