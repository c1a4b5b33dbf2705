"""The cheap question before the expensive one: which rules could match in this text at all?

Searching for one literal runs at about 2 GB/s, so sixty of them would already cost more than the budget.
Literals therefore share searches: those whose rarest character is the same become one pattern that starts
with that character (and so is found by ``memchr``) and looks around from there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from autocode.jobs.redaction.policy import Rule

__all__ = ["Gate"]

_SLICE: Final = 1 << 20
_OVERLAP: Final = 4096
# From rare to frequent in transcripts of coding sessions; the speed depends on it, the answer doesn't.
_RARITY: Final = "@zqj=_-.wkx"


class Gate:
    """Finds the rules whose needles or probes occur in a text.

    Args:
        rules: the rules to choose from; their order is kept.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._signs = [frozenset(_signs(rule)) for rule in self._rules]
        needles = sorted({needle.encode("ascii") for rule in self._rules for needle in rule.needles})
        self._groups = [(_any_of(anchor, group), group) for anchor, group in _by_anchor(needles)]
        probes = sorted({probe for rule in self._rules for probe in rule.probes})
        self._probes = [(re.compile(probe.encode("ascii")).search, probe.encode("ascii")) for probe in probes]

    def candidates(self, text: str) -> tuple[Rule, ...]:
        """Return the rules that may match in *text*, in order; never leaves out one that would match.

        No single search covers more than about a megabyte.
        """
        found: set[bytes] = set()
        for start in range(0, len(text), _SLICE):
            piece = text if len(text) <= _SLICE else text[start : start + _SLICE + _OVERLAP]
            self._look(piece.encode("utf-8", "surrogatepass").lower(), found)
        if not found:
            return ()
        return tuple(
            rule for rule, signs in zip(self._rules, self._signs, strict=True) if not found.isdisjoint(signs)
        )

    def _look(self, lowered: bytes, found: set[bytes]) -> None:
        for search, needles in self._groups:
            if search(lowered) is not None:
                found.update([needle for needle in needles if needle in lowered])
        for search, probe in self._probes:
            if search(lowered) is not None:
                found.add(probe)


def _signs(rule: Rule) -> list[bytes]:
    return [sign.encode("ascii") for sign in (*rule.needles, *rule.probes)]


def _by_anchor(needles: Sequence[bytes]) -> list[tuple[str, tuple[bytes, ...]]]:
    groups: dict[str, list[bytes]] = defaultdict(list)
    for needle in needles:
        known = [c for c in _RARITY if c in needle.decode("ascii")]
        groups[known[0] if known else chr(needle[-1])].append(needle)
    return [(anchor, tuple(group)) for anchor, group in sorted(groups.items())]


def _any_of(anchor: str, needles: Sequence[bytes]) -> Callable[[bytes], object]:
    """Compile a search for any of *needles*, all of which hold *anchor*."""
    char = re.escape(anchor.encode("ascii"))
    around: list[bytes] = []
    before: list[bytes] = []
    for needle in needles:
        at = needle.rindex(anchor.encode("ascii"))
        around.append(b"(?<=" + re.escape(needle[: at + 1]) + b")(?=" + re.escape(needle[at + 1 :]) + b")")
        before.append(needle[:at])
    # A look at the one or two characters before turns most places down before the list is walked.
    sets = [
        _set(text[-back] for text in before) for back in (2, 1) if all(len(text) >= back for text in before)
    ]
    first = b"(?<=" + b"".join(sets) + char + b")" if sets else b""
    return re.compile(char + first + b"(?:" + b"|".join(around) + b")").search


def _set(characters: Iterable[int]) -> bytes:
    return b"[" + b"".join(re.escape(bytes([c])) for c in sorted(set(characters))) + b"]"
