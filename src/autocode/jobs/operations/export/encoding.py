"""Records to canonical JSON lines: fast for the many small ones, in small pieces for the few huge ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from autocode.jobs.sessions import Record

__all__ = ["LARGE", "encode_record", "pieces_of"]

LARGE: Final = 4 << 20
"""Bytes of source from which a record is encoded piece by piece."""

_SLICE: Final = 1 << 20
_BATCH: Final = 1 << 18
_GROUP: Final = 256
_FEW: Final = 16
_SHORT: Final = 1024
_ENCODE: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
).encode


def encode_record(record: Record) -> bytes:
    """Return the canonical JSON of a record, in half the time that ``canonical_json`` takes.

    That function builds an encoder each time and looks for keys that aren't strings; a record comes from a
    parser of JSON and can't have any.
    """
    return _ENCODE(record).encode("ascii")


def pieces_of(value: Any) -> Iterator[bytes]:
    """Yield the canonical JSON of *value* in pieces of a few mebibytes at most.

    The encoder in C would hold the interpreter lock for seconds over a record of 60 MB, and the text of it
    would lie in memory three times. This one works on a mebibyte of text at a time.
    """
    batch: list[str] = []
    size = 0
    for text in _texts(value):
        batch.append(text)
        size += len(text)
        if size >= _BATCH:
            yield "".join(batch).encode("ascii")
            batch, size = [], 0
    yield "".join(batch).encode("ascii")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and len(value) > _SLICE:
        yield '"'
        for start in range(0, len(value), _SLICE):
            yield _ENCODE(value[start : start + _SLICE])[1:-1]
        yield '"'
    elif isinstance(value, dict) and value:
        before = "{"
        for key in sorted(value):
            yield f"{before}{_ENCODE(key)}:"
            yield from _texts(value[key])
            before = ","
        yield "}"
    elif isinstance(value, list) and value:
        before = "["
        for start in range(0, len(value), _GROUP):
            group = value[start : start + _GROUP]
            yield before
            if all(_is_small(item) for item in group):
                yield _ENCODE(group)[1:-1]
            else:
                yield from _separated(group)
            before = ","
        yield "]"
    else:
        yield _ENCODE(value)


def _separated(items: list[Any]) -> Iterator[str]:
    before = ""
    for item in items:
        yield before
        yield from _texts(item)
        before = ","


def _is_small(value: Any) -> bool:
    """Say whether a group of such values is encoded at once: scalars, short texts, small objects."""
    if isinstance(value, dict):
        return len(value) <= _FEW and all(_is_short(item) for item in value.values())
    return _is_short(value)


def _is_short(value: Any) -> bool:
    return len(value) <= _SHORT if isinstance(value, str) else not isinstance(value, dict | list)
