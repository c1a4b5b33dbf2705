"""RE2 behind types of our own: expressions that no text can make slow.

RE2 (https://github.com/google/re2) answers in time linear in the text, whatever expression and text are, has
no look-around and no back-references therefore, and frees the interpreter lock while it searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol, cast

import re2

__all__ = ["Found", "LinearText", "NotLinear", "bytes_search", "text_pattern"]

_MEMORY: Final = 32 << 20


class NotLinear(ValueError):
    """RE2 refuses an expression; the text says why."""


class Found(Protocol):
    """A match."""

    def span(self, group: int = 0, /) -> tuple[int, int]:
        """Return the half-open span of a group; (-1, -1) where it takes no part."""
        ...


class LinearText(Protocol):
    """A compiled expression over text."""

    @property
    def groups(self) -> int:
        """Number of groups."""
        ...

    def finditer(self, text: str, /) -> Iterator[Found]:
        """Yield the matches that don't overlap, from the left."""
        ...

    def search(self, text: str, /) -> Found | None:
        """Return the first match."""
        ...

    def fullmatch(self, text: str, /) -> Found | None:
        """Return the match of the whole text."""
        ...


class Place(Protocol):
    """Where a match is."""

    def start(self) -> int:
        """Return the position of its first byte."""
        ...


class BytesSearch(Protocol):
    """A search over bytes."""

    def __call__(self, data: bytes, position: int = 0, /) -> Place | None:
        """Return the leftmost match that begins at *position* or behind it."""
        ...


def text_pattern(pattern: str) -> LinearText:
    """Compile an expression over text.

    Raises:
        NotLinear: RE2 refuses it.
    """
    return cast("LinearText", _compiled(pattern, re2.Options()))


def bytes_search(pattern: str) -> BytesSearch:
    """Compile an ASCII expression over bytes, each of which counts as one character.

    Raises:
        NotLinear: RE2 refuses it.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MEMORY
    options.never_capture = True
    return cast("BytesSearch", _compiled(pattern.encode("ascii"), options).search)


def _compiled(pattern: str | bytes, options: Any) -> Any:
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    raise NotLinear(told)
