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

__all__ = ["MAX_DEPTH", "depth_exceeds", "loads"]

MAX_DEPTH: Final = 200
"""Levels of nesting that a value may have; serialisers downstream recurse and give up at 254 (orjson)."""

_PIECE: Final = 1024 * 1024
_SURROGATE: Final = re.compile(rb"\\u[dD]([89a-fA-F])[0-9a-fA-F]{2}")
_HIGH: Final = b"89abAB"
_BACKSLASH: Final = 0x5C
_DIGITS: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_MANY_DIGITS: Final = b"0" * 19
_BIG: Final = 2.0**63


def loads(data: bytes, losses: Counter[str]) -> Any:
    """Return the value of the JSON text *data*; where a key occurs twice, the last one wins.

    Args:
        data: one JSON text without white space around it.
        losses: gets what was changed, only when the text could be parsed: ``lone-surrogate`` and
            ``invalid-utf8`` (replaced by U+FFFD), ``big-integer`` (rounded to a double).

    Raises:
        ValueError: *data* is no JSON text, holds NaN or infinity, or nests more than 200 levels.
    """
    changed: Counter[str] = Counter()
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        data = _mended(data, changed)
        value = orjson.loads(data)
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and depth_exceeds(value, MAX_DEPTH):
        raise ValueError(f"nested more than {MAX_DEPTH} levels")
    if _has_many_digits(data):
        changed["big-integer"] += _big_numbers(value)
    losses.update(+changed)
    return value


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
    pieces: list[bytes] = []
    done = 0
    high: re.Match[bytes] | None = None
    for match in _SURROGATE.finditer(data):
        if _is_escaped(data, match.start()):
            continue
        is_high = match[1] in _HIGH
        if high is not None and not is_high and match.start() == high.end():
            high = None
            continue
        if high is not None:
            pieces += (data[done : high.start()], rb"\ufffd")
            done, high = high.end(), None
        if is_high:
            high = match
        else:
            pieces += (data[done : match.start()], rb"\ufffd")
            done = match.end()
    if high is not None:
        pieces += (data[done : high.start()], rb"\ufffd")
        done = high.end()
    changed["lone-surrogate"] += len(pieces) // 2
    if not changed["lone-surrogate"]:
        del changed["lone-surrogate"]
    return b"".join([*pieces, data[done:]])


def _is_escaped(data: bytes, position: int) -> bool:
    first = position
    while first and data[first - 1] == _BACKSLASH:
        first -= 1
    return (position - first) % 2 == 1


def _has_many_digits(data: bytes) -> bool:
    # A regular expression searches a tenth as fast as translate and find do.
    step = _PIECE - len(_MANY_DIGITS)
    return any(
        _MANY_DIGITS in data[start : start + _PIECE].translate(_DIGITS) for start in range(0, len(data), step)
    )


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
