"""The newest events of a process, kept once for all who follow them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

__all__ = ["Entry", "Ring"]

_NUMBER: Final = attrgetter("number")
_HEAVY: Final = 300
"""Bytes that an entry takes beside its text, roughly."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event as it is sent.

    Args:
        number: its cursor.
        job_id: which job.
        session_id: whose session the job belongs to.
        sessions: those that decide who may be told.
        is_progress: it may be left out where a later event of the job is there.
        text: the message.
    """

    number: int
    job_id: str
    session_id: str | None
    sessions: frozenset[str]
    is_progress: bool
    text: str


class Ring:
    """The events after :attr:`floor` up to :attr:`top`, none missing; the oldest make room for new ones.

    Args:
        most: how many events it holds at most.
        most_bytes: how many bytes they may take together; the newest event is kept however large it is.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self.begin(0)

    def begin(self, at: int) -> None:
        """Forget everything, and go on with the events after *at*."""
        self._entries: list[Entry] = []
        self._last: dict[str, int] = {}
        self.bytes = 0
        self.floor = at
        """The newest cursor that isn't here any more."""
        self.top = at
        """The newest cursor that was ever here."""

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entries: Sequence[Entry], reached: int) -> None:
        """Add *entries*, after which nothing is missing up to *reached*."""
        for entry in entries:
            self._entries.append(entry)
            self._last[entry.job_id] = entry.number
            self.bytes += _size(entry)
        self.top = reached
        self._make_room()

    def after(self, number: int, most: int) -> list[Entry]:
        """Return up to *most* entries above *number*, which isn't below :attr:`floor`."""
        first = bisect_right(self._entries, number, key=_NUMBER)
        return self._entries[first : first + most]

    def is_overtaken(self, entry: Entry) -> bool:
        """Say whether *entry* is a progress report, and a later event of its job is here to tell more."""
        return entry.is_progress and self._last.get(entry.job_id, 0) > entry.number

    def _make_room(self) -> None:
        gone = 0
        while len(self._entries) - gone > 1 and (
            len(self._entries) - gone > self._most or self.bytes > self._most_bytes
        ):
            entry = self._entries[gone]
            self.bytes -= _size(entry)
            self.floor = entry.number
            if self._last[entry.job_id] == entry.number:
                del self._last[entry.job_id]
            gone += 1
        del self._entries[:gone]


def _size(entry: Entry) -> int:
    return len(entry.text) + _HEAVY
