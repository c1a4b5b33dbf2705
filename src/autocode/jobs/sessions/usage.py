"""Token counts: what a record says, and totals in which a message counts once."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from itertools import chain
from typing import Final

__all__ = ["KINDS", "MAX_MESSAGES", "Totals", "count_of"]

KINDS: Final = ("input", "output", "cache_read", "cache_write")
"""``input`` is what was neither read from nor written to a cache, whatever the tool calls it."""

MAX_MESSAGES: Final = 65_536
"""Messages whose counts may still be corrected by a later record; older ones are settled."""

_MOST: Final = 2**53
_DIGEST: Final = 16


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
        self._open: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()

    def add(self, counts: dict[str, int], key: tuple[str, str] | None = None) -> None:
        """Count *counts*, instead of what was counted for *key* before."""
        if key is not None:
            digest = _digest(*key)
            before = self._open.pop(digest, None)
            if before is not None:
                for kind, count in zip(KINDS, before, strict=True):
                    if count:
                        self._totals[kind] -= count
            self._open[digest] = tuple([counts.get(kind, 0) for kind in KINDS])
            if len(self._open) > self._limit:
                self._open.popitem(last=False)
        for kind, count in counts.items():
            self._totals[kind] += count

    def dump(self) -> tuple[bytes, array[int]]:
        """Return digests of the messages that aren't settled, and the counts of each by :data:`KINDS`."""
        return b"".join(self._open), array("Q", chain.from_iterable(self._open.values()))

    def restore(self, digests: bytes, counts: array[int]) -> None:
        """Take up what :meth:`dump` gave; the totals have it already."""
        keys = (digests[start : start + _DIGEST] for start in range(0, len(digests), _DIGEST))
        self._open = OrderedDict(zip(keys, zip(*[iter(counts)] * len(KINDS), strict=True), strict=True))


def _digest(message: str, request: str) -> bytes:
    text = f"{len(message)}:{message}{request}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
