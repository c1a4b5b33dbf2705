"""Token counts: what a record says, and totals in which a message counts once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

__all__ = ["KINDS", "MAX_MESSAGES", "Totals", "count_of"]

KINDS: Final = ("input", "output", "cache_read", "cache_write")
"""``input`` is what was neither read from nor written to a cache, whatever the tool calls it."""

MAX_MESSAGES: Final = 65_536
"""Messages whose counts may still be corrected by a later record; older ones are settled."""

_MOST: Final = 2**53


def count_of(value: object) -> int:
    """Return *value* as a token count; 0 where it's none."""
    return value if type(value) is int and 0 <= value < _MOST else 0


class Totals:
    """Adds up counts; of several records about one message the last one wins.

    A tool that streams writes a message several times, with counts that grow; adding them all up
    counts the input several times over.
    """

    def __init__(self, totals: dict[str, int], *, limit: int = MAX_MESSAGES) -> None:
        self._totals = totals
        self._limit = limit
        self._open: OrderedDict[bytes, dict[str, int]] = OrderedDict()

    def dump(self) -> Iterator[tuple[bytes, list[int]]]:
        """Yield key and counts, in the order of :data:`KINDS`, of each message that isn't settled."""
        for key, counts in self._open.items():
            yield key, [counts.get(kind, 0) for kind in KINDS]

    def restore(self, messages: Iterable[tuple[bytes, Sequence[int]]]) -> None:
        """Take up what :meth:`dump` gave; the totals have it already."""
        self._open = OrderedDict((key, dict(zip(KINDS, counts, strict=True))) for key, counts in messages)

    def add(self, counts: dict[str, int], key: tuple[str, str] | None = None) -> None:
        """Count *counts*, instead of what was counted for *key* before."""
        if key is not None:
            digest = _digest(*key)
            for kind, count in self._open.pop(digest, {}).items():
                self._totals[kind] -= count
            self._open[digest] = dict(counts)
            if len(self._open) > self._limit:
                self._open.popitem(last=False)
        for kind, count in counts.items():
            self._totals[kind] += count


def _digest(message: str, request: str) -> bytes:
    text = f"{len(message)}:{message}{request}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
