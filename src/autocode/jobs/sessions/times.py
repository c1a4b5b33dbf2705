"""Times of a transcript to the one form that records carry."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["normalise"]

_FIRST_YEAR: Final = 2000
_LAST_YEAR: Final = 2099


def normalise(value: object) -> str | None:
    """Return *value* as RFC 3339 in UTC with milliseconds, or ``None`` where that would be a guess.

    Digits below a millisecond are cut off. A time without a zone, outside the years 2000 to 2099 or not
    in ISO 8601 gives ``None``: such a time would make retention delete a session at once, or never.
    """
    if not isinstance(value, str) or not 20 <= len(value) <= 40 or value[10] not in "Tt ":
        return None
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            return None
        if _is_normal(value):
            return value if _FIRST_YEAR <= moment.year <= _LAST_YEAR else None
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _is_normal(value: str) -> bool:
    marks = value[4:5] + value[7:8] + value[10] + value[13:14] + value[16:17] + value[19:20] + value[23:]
    return marks == "--T::.Z"
