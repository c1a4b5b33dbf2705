"""Canonical JSON and digests: the functions on which every identity in this project stands."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["DIGEST", "canonical_json", "digest_of", "is_digest", "unstorable"]

_SURROGATE: Final = re.compile("[\ud800-\udfff]")

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
"""The written form of a digest, ``sha256:<64 hex digits>``; other algorithms would get another prefix."""


def canonical_json(value: Any) -> bytes:
    """Return *value* as canonical JSON: the same value gives the same bytes on every machine.

    Keys are sorted, nothing is padded, and every character outside ASCII is escaped, so that lone
    surrogates survive and neither locale nor library version matters. NaN and infinity are refused, and so
    are keys that aren't strings: JSON would write ``1`` and ``"1"`` alike, two values with one digest.

    Not RFC 8785: numbers are written as Python writes them, so ``1`` and ``1.0`` differ, and keys are
    sorted by code point, not by UTF-16 unit.

    Raises:
        ValueError: *value* holds NaN or an infinity, contains itself, or is nested too deeply.
        TypeError: *value* holds something that JSON doesn't know, or a key that isn't a string.
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except RecursionError as error:
        raise ValueError("the value is nested too deeply for JSON") from error
    _refuse_foreign_keys(value)
    return text.encode("ascii")


def _refuse_foreign_keys(value: Any) -> None:
    # runs after the encoder, which has refused values that contain themselves
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            for key in node:
                if not isinstance(key, str):
                    raise TypeError(f"keys must be strings, not {type(key).__name__}")
            node = node.values()
        elif not isinstance(node, list | tuple):
            continue
        pending.extend(item for item in node if isinstance(item, dict | list | tuple))


def digest_of(data: bytes) -> str:
    """Return the SHA-256 digest of *data* in its written form."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def is_digest(text: str) -> bool:
    """Say whether *text* is a digest in its written form."""
    return DIGEST.fullmatch(text) is not None


def unstorable(value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the place and the fault of each part of a JSON *value* that no database or other program takes.

    NUL and lone surrogates have no place in PostgreSQL's text, NaN and infinities none in JSON (RFC 8259).
    """
    pending: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while pending:
        place, node = pending.pop()
        if isinstance(node, float) and not math.isfinite(node):
            yield place, "is no finite number"
        elif isinstance(node, str) and (fault := _fault(node)):
            yield place, fault
        elif isinstance(node, dict):
            for key, item in node.items():
                if isinstance(key, str) and (fault := _fault(key)):
                    yield place, f"has a name that {fault}"
                pending.append(((*place, key), item))
        elif isinstance(node, list | tuple):
            pending.extend(((*place, index), item) for index, item in enumerate(node))


def _fault(text: str) -> str | None:
    if "\0" in text:
        return "holds the character NUL"
    return "holds half of a surrogate pair" if _SURROGATE.search(text) else None
