"""What a redactor did: counts and places, never the text that was replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["PLACES_KEPT", "Place", "RedactionReport"]

PLACES_KEPT: Final = 10_000
"""How many places a report lists one by one; counts go on beyond it."""


@dataclass(frozen=True, slots=True)
class Place:
    """One replaced piece of text.

    Args:
        record: number of the record in its session.
        pointer: where in the record, as a JSON pointer (RFC 6901); redacted keys appear redacted.
        kind: kind of the rule.
        n: number of this secret among those of its kind in the session, from 1.
        length: length of the replaced text in characters.
        rule: id of the rule that found it.
    """

    record: int
    pointer: str
    kind: str
    n: int
    length: int
    rule: str

    def to_json(self) -> dict[str, Any]:
        """Return the place as a JSON object."""
        return {
            "record": self.record,
            "pointer": self.pointer,
            "kind": self.kind,
            "n": self.n,
            "length": self.length,
            "rule": self.rule,
        }


@dataclass(slots=True)
class RedactionReport:
    """What was replaced in one session.

    Args:
        counts: replacements by kind.
        places: the first :data:`PLACES_KEPT` replacements in document order.
        total: number of all replacements, listed or not.
    """

    counts: dict[str, int] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)
    total: int = 0

    def add(self, place: Place) -> None:
        """Count *place*, and list it while there is room."""
        self.total += 1
        self.counts[place.kind] = self.counts.get(place.kind, 0) + 1
        if len(self.places) < PLACES_KEPT:
            self.places.append(place)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RedactionReport:
        """Return the report that :meth:`to_json` made *value* of."""
        places = [Place(**place) for place in value["places"]]
        return cls(dict(value["counts"]), places, value["total"])

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object with sorted kinds; ``places_left_out`` says what the cap hid."""
        return {
            "total": self.total,
            "counts": dict(sorted(self.counts.items())),
            "places": [place.to_json() for place in self.places],
            "places_left_out": self.total - len(self.places),
        }
