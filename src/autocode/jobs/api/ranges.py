"""Conditional requests and byte ranges, as RFC 9110 has them, for bytes that never change under their tag."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from starlette.datastructures import Headers

from autocode.jobs.request_errors import RangeUnsatisfiable

__all__ = ["Span", "is_unchanged", "span_of"]

_RANGE: Final = re.compile(r"bytes *= *([0-9]{0,18}) *- *([0-9]{0,18})", re.IGNORECASE)
_TAG: Final = re.compile(r'(?:W/)?"[^"]*"')


class Span(NamedTuple):
    """The bytes from *start* up to, and without, *end*."""

    start: int
    end: int


def is_unchanged(headers: Headers, tag: str) -> bool:
    """Say whether ``If-None-Match`` names *tag*, compared weakly: the answer is 304 then."""
    given = ", ".join(headers.getlist("if-none-match"))
    return given.strip() == "*" or tag in {each.removeprefix("W/") for each in _TAG.findall(given)}


def span_of(headers: Headers, tag: str, size: int) -> Span | None:
    """Return the range that is asked for; ``None`` for all of it.

    All of it is also the answer to several ranges at once, to a unit that isn't bytes, to what is no range,
    and where ``If-Range`` names something else than *tag*.

    Raises:
        RangeUnsatisfiable: the range begins behind the last byte.
    """
    # RFC 9110 allows a server to ignore several ranges, and asks it to ignore what it doesn't understand
    given = headers.getlist("range")
    if_range = headers.get("if-range")
    if len(given) != 1 or (if_range is not None and if_range.strip() != tag):
        return None
    found = _RANGE.fullmatch(given[0].strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        start, end = max(0, size - int(found[2])), size
    else:
        start, end = int(found[1]), min(size, int(found[2]) + 1) if found[2] else size
        if found[2] and int(found[2]) < start:
            return None
    if start >= size:
        raise RangeUnsatisfiable(f"There are {size:,} bytes, and the range begins behind them.", size=size)
    return Span(start, end)
