"""Canonical JSON and digests: the two functions on which every identity in this project stands."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

__all__ = ["DIGEST", "canonical_json", "digest_of", "is_digest"]

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
"""The written form of a digest, ``sha256:<64 hex digits>``; other algorithms would get another prefix."""


def canonical_json(value: Any) -> bytes:
    """Return *value* as canonical JSON: the same value gives the same bytes on every machine.

    Keys are sorted, nothing is padded, and every character outside ASCII is escaped, so that lone
    surrogates survive and neither locale nor library version matters. NaN and infinity are refused.

    Raises:
        ValueError: *value* holds NaN or an infinity.
        TypeError: *value* holds something that JSON doesn't know.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def digest_of(data: bytes) -> str:
    """Return the SHA-256 digest of *data* in its written form."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def is_digest(text: str) -> bool:
    """Say whether *text* is a digest in its written form."""
    return DIGEST.fullmatch(text) is not None
