"""The outline of a JSON text, followed from quote to quote: where strings and brackets are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["tokens"]

_STRUCTURE: Final = re.compile(rb'["{}\[\]]')
_QUOTE, _BACKSLASH = b'"\\'


def tokens(data: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of every string and of every bracket outside strings, from *start* on.

    A string that never ends runs to the end of *data*. Linear, and no step takes long: a single regular
    expression over a string of 60 MB would hold the interpreter lock for more than a second.
    """
    position = start
    while (match := _STRUCTURE.search(data, position)) is not None:
        position = match.end()
        if data[match.start()] == _QUOTE:
            position = _string_end(data, position)
        yield match.start(), position


def _string_end(data: bytes, position: int) -> int:
    while (quote := data.find(b'"', position)) >= 0:
        before = quote
        while before > position and data[before - 1] == _BACKSLASH:
            before -= 1
        position = quote + 1
        if (quote - before) % 2 == 0:
            return position
    return len(data)
