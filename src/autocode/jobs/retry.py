"""Backoff with jitter, and a bounded retry loop whose sleep and random draws are injected."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from autocode.jobs.errors import is_transient

__all__ = ["Backoff", "call_with_retries"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with proportional jitter.

    Args:
        first: seconds before the second try.
        factor: growth from one pause to the next.
        ceiling: the longest pause in seconds, jitter included.
        jitter: fraction of the pause that is random, 0 to 1. The random part only shortens the pause, so
            that a sum of ceilings is a true upper bound (the "equal jitter" of Brooker, "Exponential
            Backoff And Jitter", AWS Architecture Blog, 2015, with a free fraction).
    """

    first: float = 0.2
    factor: float = 2.0
    ceiling: float = 60.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        numbers = (self.first, self.factor, self.ceiling, self.jitter)
        in_range = self.first >= 0 and self.ceiling >= 0 and self.factor >= 1 and 0 <= self.jitter <= 1
        # NaN compares false with everything, and infinity times zero is NaN
        if not (all(map(math.isfinite, numbers)) and in_range):
            raise ValueError(
                "a backoff needs finite numbers: first >= 0, ceiling >= 0, factor >= 1 and 0 <= jitter <= 1"
            )

    def delay(self, failures: int, draw: Callable[[], float] = random.random) -> float:
        """Return the pause in seconds after *failures* failed tries (1 for the first).

        *draw* returns a number in [0, 1); inject it to make the pause deterministic.
        """
        if failures < 1:
            raise ValueError("a pause follows at least one failure")
        try:
            full = min(self.ceiling, self.first * float(self.factor) ** (failures - 1))
        except OverflowError:  # past any float, so past the ceiling too
            full = self.ceiling if self.first else 0.0
        return full * (1 - self.jitter * draw())

    def delays(self, count: int, draw: Callable[[], float] = random.random) -> list[float]:
        """Return the pauses after each of *count* failures."""
        return [self.delay(n, draw) for n in range(1, count + 1)]


def call_with_retries(
    call: Callable[[], T],
    *,
    max_attempts: int,
    backoff: Backoff,
    sleep: Callable[[float], None] = time.sleep,
    draw: Callable[[], float] = random.random,
    on_retry: Callable[[BaseException, float], None] | None = None,
) -> T:
    """Call *call* until it succeeds, a permanent error ends it, or *max_attempts* calls have failed.

    *on_retry* is told the error and the pause in seconds before each further try. The last error is raised
    as it is. Idempotent only where *call* is.
    """
    if max_attempts < 1:
        raise ValueError("max_attempts must be at least 1")
    for attempt in range(1, max_attempts + 1):
        try:
            return call()
        except Exception as error:
            if attempt == max_attempts or not is_transient(error):
                raise
            pause = backoff.delay(attempt, draw)
            if on_retry is not None:
                on_retry(error, pause)
            sleep(pause)
    raise AssertionError("unreachable: the loop returns or raises")
