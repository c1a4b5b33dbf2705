"""Records to JSON lines in UTF-8: fast for the many small ones, in small pieces for the few huge ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

__all__ = ["LARGE", "encode_record", "pieces_of"]

LARGE: Final = 4 << 20
"""Bytes of source from which a record is encoded piece by piece."""

_SLICE: Final = 1 << 20
_BATCH: Final = 1 << 18
_GROUP: Final = 256
_FEW: Final = 16
_SHORT: Final = 1024

if orjson.dumps([1e16, 1e-5, 1e-6]) != b"[1e+16,0.00001,1e-6]":
    # an export's identity would depend on it: rather none than another one
    raise ImportError("this orjson writes floats in another way than docs/normal-form.md says: install 3.13")


def encode_record(record: Any) -> bytes:
    """Return a record as the line that ``docs/normal-form.md`` specifies, without its newline.

    Raises:
        orjson.JSONEncodeError: the record holds something that no parser of JSON gives, a lone surrogate
            for instance.
    """
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)


def pieces_of(value: Any) -> Iterator[bytes]:
    """Yield what :func:`encode_record` returns, in pieces of a few mebibytes at most.

    The encoder would hold the interpreter lock over a record of 60 MB, and all its text would lie in memory
    once more. This one works on a mebibyte of text at a time.
    """
    batch: list[bytes] = []
    size = 0
    for text in _texts(value):
        batch.append(text)
        size += len(text)
        if size >= _BATCH:
            yield b"".join(batch)
            batch, size = [], 0
    yield b"".join(batch)


def _texts(value: Any) -> Iterator[bytes]:
    if isinstance(value, str) and len(value) > _SLICE:
        yield b'"'
        for start in range(0, len(value), _SLICE):
            yield encode_record(value[start : start + _SLICE])[1:-1]
        yield b'"'
    elif isinstance(value, dict) and value:
        before = b"{"
        for key in sorted(value):
            yield before + encode_record(key) + b":"
            yield from _texts(value[key])
            before = b","
        yield b"}"
    elif isinstance(value, list) and value:
        before = b"["
        for start in range(0, len(value), _GROUP):
            group = value[start : start + _GROUP]
            yield before
            if all(_is_small(item) for item in group):
                yield encode_record(group)[1:-1]
            else:
                yield from _separated(group)
            before = b","
        yield b"]"
    else:
        yield encode_record(value)


def _separated(items: list[Any]) -> Iterator[bytes]:
    before = b""
    for item in items:
        yield before
        yield from _texts(item)
        before = b","


def _is_small(value: Any) -> bool:
    """Say whether a group of such values is encoded at once: scalars, short texts, small objects."""
    if isinstance(value, dict):
        return len(value) <= _FEW and all(_is_short(item) for item in value.values())
    return _is_short(value)


def _is_short(value: Any) -> bool:
    return len(value) <= _SHORT if isinstance(value, str) else not isinstance(value, dict | list)
