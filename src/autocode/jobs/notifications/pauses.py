"""When a delivery that failed is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from autocode.jobs.retry import Backoff

__all__ = ["BACKOFF", "LONGEST_WAIT", "pause_after", "told_to_wait"]

BACKOFF: Final = Backoff(first=5.0, factor=3.0, ceiling=4 * 3600.0, jitter=0.2)
"""5 s, 15 s, 45 s … 3 h, then every 4 hours: 14 tries are made within a day and an hour."""

LONGEST_WAIT: Final = 4 * 3600.0
"""The longest that ``Retry-After`` is heeded."""


def pause_after(tries: int, draw: Callable[[], float] = random.random) -> float:
    """Return the seconds between try number *tries*, which failed, and the next."""
    return BACKOFF.delay(tries, draw)


def told_to_wait(header: str | None, pause: float) -> float:
    """Return the seconds that ``Retry-After`` asks for, at most 4 hours; *pause* where it can't be read."""
    if header is None:
        return pause
    if header.isascii() and header.isdecimal():
        seconds = float(header[:10])
    else:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return pause
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    # an answer of 0 mustn't make a loop without a pause
    return min(max(seconds, BACKOFF.first), LONGEST_WAIT)
