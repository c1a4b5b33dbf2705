"""Attempts that can't be given a run: whose trouble that is, and when to try again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autocode.jobs.clock import Clock

__all__ = ["Trouble"]

_PAUSES: Final = (1.0, 4.0, 16.0, 60.0)
"""After a failure, by how many of them were the attempt's own."""

_OWN: Final = 4
"""So many failures, each with a success of another since the one before, are the attempt's own trouble."""

Attempt = tuple[str, int]


@dataclass(slots=True)
class _Failed:
    again: float
    successes: int
    own: int = 0


class Trouble:
    """Remembers failures, so that one attempt which always fails, slowly perhaps, holds up no other.

    A server that is away fails for all, and then nobody is to blame. An attempt that fails again and again
    while others succeed in between is.

    Args:
        clock: the clock to measure pauses with.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[Attempt, _Failed] = {}
        self._successes = 0

    def may_try(self, attempt: Attempt) -> bool:
        """Say whether the attempt's pause is over."""
        failed = self._failed.get(attempt)
        return failed is None or self._clock.monotonic() >= failed.again

    def note(self, attempt: Attempt) -> None:
        """Note a failure: the attempt pauses for a while."""
        failed = self._failed.setdefault(attempt, _Failed(0.0, self._successes))
        failed.own += self._successes > failed.successes
        failed.successes = self._successes
        failed.again = self._clock.monotonic() + _PAUSES[min(failed.own, len(_PAUSES) - 1)]

    def worked(self, attempt: Attempt) -> None:
        """Note a success."""
        self._failed.pop(attempt, None)
        self._successes += 1

    def is_its_own(self, attempt: Attempt) -> bool:
        """Say whether the attempt fails where others succeed, often enough to give it up."""
        failed = self._failed.get(attempt)
        return failed is not None and failed.own >= _OWN
