"""One JSON text to a value, without holding the interpreter lock for long.

``orjson`` parses some hundred megabytes a second; the standard library was seen to hold the lock for 2.6 s
over one line of 57 MB, so it is no fallback here. What orjson refuses although other JSON libraries write it
(lone surrogates, bytes that aren't UTF-8) is mended in the bytes and parsed again.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from typing import Any, Final

import orjson

from autocode.jobs.sessions.structure import tokens

__all__ = ["MAX_DEPTH", "MAX_VALUES", "Refused", "depth_exceeds", "loads"]

MAX_DEPTH: Final = 200
"""Levels of nesting that a value may have; serialisers downstream recurse and give up at 254 (orjson)."""

MAX_VALUES: Final = 500_000
"""Values in one text: more take hundreds of megabytes, and hold the interpreter lock for too long."""

_PIECE: Final = 1024 * 1024
_SURROGATE: Final = re.compile(rb"\\u[dD]([89a-fA-F])[0-9a-fA-F]{2}")
_HIGH: Final = b"89abAB"
_BACKSLASH: Final = 0x5C
# every digit becomes 0, every opening bracket {, and all else a space: what is looked for shows in one pass
_OUTLINE: Final = bytes(
    0x30 if byte in b"0123456789" else 0x7B if byte in b"{[" else 0x20 for byte in range(256)
)
_MANY_DIGITS: Final = b"0" * 19
_BIG: Final = 2.0**63


class Refused(ValueError):
    """Valid JSON that would harm who reads it; ``reason`` names why, as a damaged span does."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def loads(data: bytes, losses: Counter[str]) -> Any:
    """Return the value of the JSON text *data*; where a key occurs twice, the last one wins.

    Args:
        data: one JSON text without white space around it.
        losses: gets what was changed, only when the text could be parsed: ``lone-surrogate`` and
            ``invalid-utf8`` (replaced by U+FFFD), ``big-integer`` (rounded to a double).

    Raises:
        Refused: *data* nests more than 200 levels or holds more than 500,000 values.
        ValueError: *data* is no JSON text, or holds NaN or infinity.
    """
    size = len(data)
    if size > MAX_VALUES and _may_have_more_values(data) and _has_more_values(data, MAX_VALUES):
        raise Refused("too-many-values")
    mended: Counter[str] | None = None
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        mended = Counter()
        data = _mended(data, mended)
        value = orjson.loads(data)
    opened, has_many_digits = _outlined(data)
    if opened > MAX_DEPTH and depth_exceeds(value, MAX_DEPTH):
        raise Refused("too-deep")
    if has_many_digits:
        rounded = _big_numbers(value)
        if rounded:
            losses["big-integer"] += rounded
    if mended:
        losses.update(mended)
    return value


def _may_have_more_values(data: bytes) -> bool:
    # signs inside strings count too, so this only says where it is worth to count exactly
    return data.count(b"{") + data.count(b"[") + data.count(b",") > MAX_VALUES


def _has_more_values(data: bytes, limit: int) -> bool:
    """Say whether *data* has more than *limit* values: one a comma, and one a container."""
    count, before = 0, 0
    for start, end in tokens(data, 0):
        count += data.count(b",", before, start) + (data[start] in b"{[")
        if count > limit:
            return True
        before = end
    return count + data.count(b",", before) > limit


def depth_exceeds(value: Any, limit: int) -> bool:
    """Say whether *value* nests more than *limit* levels; level by level, so nothing recurses."""
    level = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level:
        depth += 1
        if depth > limit:
            return True
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) in {dict, list}
        ]
    return False


def _mended(data: bytes, changed: Counter[str]) -> bytes:
    if data[:1] not in {b"{", b"[", b'"'}:
        raise ValueError("no JSON text")
    text = _as_utf8(data, changed)
    text = _without_lone_surrogates(text, changed)
    if not changed:
        raise ValueError("no JSON text")
    return text


def _as_utf8(data: bytes, changed: Counter[str]) -> bytes:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = [
        decoder.decode(data[start : start + _PIECE], start + _PIECE >= len(data)).encode()
        for start in range(0, len(data), _PIECE)
    ]
    text = b"".join(pieces)
    if text == data:
        return data
    # UTF-8 synchronises itself: each U+FFFD that was there before is still there, none was split.
    changed["invalid-utf8"] += text.count(b"\xef\xbf\xbd") - data.count(b"\xef\xbf\xbd")
    return text


def _without_lone_surrogates(data: bytes, changed: Counter[str]) -> bytes:
    text: bytearray | None = None
    high: int | None = None
    lone = 0
    for match in _SURROGATE.finditer(data):
        start = match.start()
        if _is_escaped(data, start):
            continue
        is_high = match[1] in _HIGH
        if high is not None and not is_high and start == high + 6:
            high = None
            continue
        for position in (high, None if is_high else start):
            if position is not None:
                # The escape of U+FFFD is as long as the one that it replaces.
                text = text or bytearray(data)
                text[position : position + 6] = rb"\ufffd"
                lone += 1
        high = start if is_high else None
    if high is not None:
        text = text or bytearray(data)
        text[high : high + 6] = rb"\ufffd"
        lone += 1
    if lone:
        changed["lone-surrogate"] += lone
    return data if text is None else bytes(text)


def _is_escaped(data: bytes, position: int) -> bool:
    first = position
    while first and data[first - 1] == _BACKSLASH:
        first -= 1
    return (position - first) % 2 == 1


def _outlined(data: bytes) -> tuple[int, bool]:
    """Return at least how many brackets open in *data*, also in strings, and whether it has a long number."""
    # a regular expression searches a tenth as fast as translate, count and find do
    opened, has_many_digits = 0, False
    for start in range(0, len(data), _PIECE - len(_MANY_DIGITS)):
        outline = data[start : start + _PIECE].translate(_OUTLINE)
        opened += outline.count(b"{")
        has_many_digits = has_many_digits or _MANY_DIGITS in outline
    return opened, has_many_digits


def _big_numbers(value: Any) -> int:
    found = 0
    level = [value]
    while level:
        found += sum(type(item) is float and abs(item) >= _BIG for item in level)
        level = [
            child
            for parent in level
            if type(parent) in {dict, list}
            for child in (parent.values() if type(parent) is dict else parent)
        ]
    return found
