"""Parts: a long source is cut at places that its bytes alone decide, so that growth costs its tail.

A part ends behind the first newline that has at least :data:`PART` bytes of the part before it; the last part
is what remains. Bytes that are appended to a source therefore change its last part and none before it,
whoever read it and whenever. A source that is one document (``Reader.in_parts`` is false) is one part.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

__all__ = ["PART", "Cutter", "Part"]

PART: Final = 8 * 1024 * 1024
"""Bytes after which a part ends with the line; most sessions are shorter, and so are one part."""


class Part(NamedTuple):
    """Consecutive bytes of a source.

    Args:
        size: number of bytes.
        sha256: digest of exactly these bytes, in its written form.
    """

    size: int
    sha256: str


class Cutter:
    """Cuts a source into parts while its bytes pass; the size of the pieces changes nothing.

    Args:
        part: bytes after which a part ends with the line.
    """

    def __init__(self, part: int = PART) -> None:
        self._part = part
        self._size = 0
        self._digest = hashlib.sha256()
        # that of the first part until this one ends, so that short sources are hashed once
        self._whole = self._digest
        self._parts: list[Part] = []

    @property
    def sha256(self) -> str:
        """The digest of all bytes so far, in its written form."""
        return "sha256:" + self._whole.hexdigest()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the source."""
        start = 0
        while (newline := data.find(b"\n", start + max(0, self._part - self._size))) >= 0:
            self._take(data[start : newline + 1])
            self._close()
            start = newline + 1
        self._take(data[start:])

    def finish(self) -> tuple[Part, ...]:
        """Return the parts, at least one; only that of an empty source is empty."""
        if self._size or not self._parts:
            self._close()
        return tuple(self._parts)

    def _take(self, data: bytes) -> None:
        self._size += len(data)
        self._digest.update(data)
        if self._whole is not self._digest:
            self._whole.update(data)

    def _close(self) -> None:
        self._parts.append(Part(self._size, "sha256:" + self._digest.hexdigest()))
        self._size = 0
        self._digest = hashlib.sha256()
