"""Time as the contract writes it, and a clock that callers inject."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "parse_time", "rfc3339"]


class Clock(Protocol):
    """Two clocks: one to show to people, one to measure with."""

    def now(self) -> datetime:
        """Return the current time in UTC, cut to whole milliseconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """Return the current time in UTC, cut to whole milliseconds."""
        moment = datetime.now(UTC)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    def monotonic(self) -> float:
        """Return the machine's monotonic clock in seconds."""
        return time.monotonic()


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
    """Return the time that *text* (RFC 3339) names in UTC, or ``None`` for ``None``.

    Raises:
        ValueError: *text* is no RFC 3339 time, or has no zone.
    """
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.astimezone(UTC)
