"""Time as the contract writes it, and a clock that callers inject."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

__all__ = ["Clock", "SystemClock", "parse_time", "rfc3339"]


_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


class Clock(Protocol):
    """Two clocks: one to show to people, one to measure with."""

    def now(self) -> datetime:
        """Return the current time in UTC, cut to whole milliseconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""
        ...


class SystemClock:
    """The machine's clocks.

    For tests, the file that ``AUTOCODE_CLOCK`` names holds seconds to add, where there is one.
    """

    def now(self) -> datetime:
        """Return the current time in UTC, cut to whole milliseconds."""
        moment = datetime.now(UTC)
        if (path := os.environ.get("AUTOCODE_CLOCK")) is not None:
            moment += _offset(path)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    def monotonic(self) -> float:
        """Return the machine's monotonic clock in seconds."""
        return time.monotonic()


def _offset(path: str) -> timedelta:
    with suppress(FileNotFoundError), open(path, encoding="ascii") as file:  # noqa: PTH123 - asked for often
        return timedelta(seconds=float(file.read()))
    return timedelta()


def rfc3339(moment: datetime | None) -> str | None:
    """Return *moment* as RFC 3339 in UTC with milliseconds, or ``None`` for ``None``.

    Raises:
        ValueError: *moment* has no time zone.
    """
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ValueError("a time without a zone is a guess")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str | None) -> datetime | None:
    """Return the time that *text* (RFC 3339, section 5.6) names in UTC, or ``None`` for ``None``.

    Digits beyond microseconds are cut off; a leap second (``:60``) is refused, since Python has none.

    Raises:
        ValueError: *text* is no RFC 3339 time, or has no zone.
    """
    if text is None:
        return None
    # Python reads week dates, basic formats and any separator too
    if not _RFC3339.fullmatch(text):
        raise ValueError(f"{text!r} is no RFC 3339 time with a zone")
    return datetime.fromisoformat(text.upper()).astimezone(UTC)
