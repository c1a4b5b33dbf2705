"""Where a preview's redactions are: rule, place, tool and surroundings, never the text itself.

The surroundings come from the redacted record, so what is shown is what an export would hold.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from autocode.jobs.redaction import Place, RedactionReport, digest_of_value, marker

__all__ = ["Group", "ShownPlace", "Watcher"]

_AROUND: Final = 48
_CALLS: Final = 10_000
_INDEX: Final = re.compile(r"/[0-9]+(?=/|$)")


@dataclass(frozen=True, slots=True)
class ShownPlace:
    """One redaction.

    Args:
        record: number of the record in its session.
        pointer: where in the record (RFC 6901).
        kind: what the marker says.
        n: number of the secret among those of its kind.
        length: length of the replaced text in characters.
        rule: id of the rule that found it.
        type: type of the record; ``report`` for text of the reader's report.
        tool: name of the tool that was called or that answered, where there is one.
        excerpt: the marker among the characters around it, on one line; ``None`` where a key was redacted.
        sha256: digest of the replaced text, for the allow list; ``None`` unless it was asked for.
    """

    record: int
    pointer: str
    kind: str
    n: int
    length: int
    rule: str
    type: str
    tool: str | None
    excerpt: str | None
    sha256: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the place as a JSON object, without a digest that nobody asked for."""
        value = asdict(self)
        if self.sha256 is None:
            del value["sha256"]
        return value


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """Redactions alike: the same rule in the same field of the same tool's records, at any index."""

    rule: str
    type: str
    tool: str
    pointer: str

    @classmethod
    def of(cls, place: ShownPlace) -> Group:
        """Return the group of a place."""
        return cls(place.rule, place.type, place.tool or "", _INDEX.sub("/*", place.pointer))


class Watcher:
    """Sees the redacted records of one file go by, and turns a report's places into shown ones.

    Args:
        digests: give each place the digest of its text. Short secrets can be guessed from it.
    """

    def __init__(self, *, digests: bool = False) -> None:
        self.places: list[ShownPlace] = []
        self._digests = digests
        self._values: dict[tuple[str, int], str] = {}
        self._tools: dict[str, str] = {}
        self._told = 0

    def found(self, place: Place, value: str) -> None:
        """Take note of a find; the redactor calls it."""
        if self._digests:
            self._values[place.kind, place.n] = digest_of_value(value)

    def see(
        self, record: Mapping[str, Any], report: RedactionReport | None, *, kind: str | None = None
    ) -> None:
        """Look at a redacted record, or at the reader's report, behind which *report* may have grown."""
        tool = self._tool(record) if kind is None else None
        if report is None:
            return
        seen: Counter[tuple[str, str]] = Counter()
        for place in report.places[self._told :]:
            shown = marker(place.kind, place.n)
            excerpt = _excerpt(record, place.pointer, shown, seen[place.pointer, shown])
            seen[place.pointer, shown] += 1
            self.places.append(
                ShownPlace(
                    place.record,
                    place.pointer,
                    place.kind,
                    place.n,
                    place.length,
                    place.rule,
                    kind or str(record.get("type")),
                    tool,
                    excerpt,
                    self._values.get((place.kind, place.n)),
                )
            )
        self._told = len(report.places)

    def _tool(self, record: Mapping[str, Any]) -> str | None:
        if record.get("type") == "tool_call":
            name = str(record.get("name"))
            if len(self._tools) >= _CALLS:
                del self._tools[next(iter(self._tools))]
            self._tools[str(record.get("id"))] = name
            return name
        return self._tools.get(str(record.get("call"))) if record.get("type") == "tool_result" else None


def _excerpt(record: Any, pointer: str, shown: str, nth: int) -> str | None:
    text = _at(record, pointer)
    if not isinstance(text, str):
        return None
    start = -1
    for _ in range(nth + 1):
        start = text.find(shown, start + 1)
    if start < 0:
        return None
    end = start + len(shown)
    before, after = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
    cut = ("…" if start > _AROUND else "", "…" if end + _AROUND < len(text) else "")
    return cut[0] + _one_line(before) + shown + _one_line(after) + cut[1]


def _at(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _one_line(text: str) -> str:
    # what a terminal would obey is no part of what is shown
    return "".join("·" if unicodedata.category(c) in {"Cc", "Cs", "Cf", "Zl", "Zp"} else c for c in text)
