"""What ``read`` leaves behind a part of a long session, for the part that follows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from autocode.jobs.canonical import canonical_json

__all__ = ["Before"]

_FORMAT: Final = "autocode-part/1"


@dataclass(frozen=True, slots=True)
class Before:
    """What is known of the parts that were read; nothing, where none was.

    It stays in the store and is no member of any export. Where secrets are redacted, it holds none.

    Args:
        parts: for each part its source's digest and size, and the objects that it became.
        reading: the reader's state.
        redaction: the redactor's state.
    """

    parts: tuple[Mapping[str, Any], ...] = ()
    reading: bytes | None = None
    redaction: Mapping[str, Any] | None = None

    @classmethod
    def from_bytes(cls, data: bytes) -> Before:
        """Return what :meth:`to_bytes` wrote."""
        value = json.loads(data)
        reading = value["reading"]
        return cls(
            parts=tuple(value["parts"]),
            reading=None if reading is None else reading.encode("ascii"),
            redaction=value["redaction"],
        )

    def to_bytes(self) -> bytes:
        """Return canonical JSON; it depends on the bytes read, the reader's revision and the policy alone."""
        return canonical_json(
            {
                "format": _FORMAT,
                "parts": list(self.parts),
                "reading": None if self.reading is None else self.reading.decode("ascii"),
                "redaction": self.redaction,
            }
        )
