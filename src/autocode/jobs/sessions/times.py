"""Times of a transcript to the one form that records carry."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final

__all__ = ["normalise", "of_epoch"]

_FIRST_YEAR: Final = 2000
_LAST_YEAR: Final = 2099
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 10_000_000_000
_RFC_3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-]\d\d:\d\d))", re.ASCII
)
_NORMAL: Final = re.compile(
    rf"({_FIRST_YEAR // 100}\d\d-\d\d-\d\d)T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{{3}}Z", re.ASCII
)


def normalise(value: object) -> str | None:
    """Return *value* as RFC 3339 in UTC with milliseconds, or ``None`` where that would be a guess.

    Digits below a millisecond are cut off. A time without a zone, outside the years 2000 to 2099 or not
    in RFC 3339 gives ``None``: such a time would make retention delete a session at once, or never.
    """
    if not isinstance(value, str):
        return None
    # most tools write just this form
    match = _NORMAL.fullmatch(value)
    if match and _is_day(match[1]):
        return value
    match = _RFC_3339.fullmatch(value)
    if not match:
        return None
    day, time, fraction, zone = match.groups()
    exact = f"{day}T{time}.{(fraction or '')[:3]:0<3}"
    try:
        moment = datetime.fromisoformat(f"{exact}{zone or '+00:00'}")
        if zone:
            moment = moment.astimezone(UTC)
            exact = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return None
    return exact + "Z" if _FIRST_YEAR <= moment.year <= _LAST_YEAR else None


@lru_cache(maxsize=64)
def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def of_epoch(value: object) -> object:
    """Return seconds since 1970 as RFC 3339 for :func:`normalise`; what's no such number comes back as it is.

    Digits below a millisecond are cut off, as written: binary fractions don't move a time.
    """
    if type(value) not in {int, float} or not isinstance(value, int | float) or not abs(value) < _LATEST:
        return value
    milliseconds = int(Decimal(repr(value)) * 1000)
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds")
