"""How views put things: text made harmless to look at, first lines, numbers, times and spans of time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

__all__ = [
    "clock_text",
    "count_text",
    "day_text",
    "first_line",
    "gap_text",
    "local_time",
    "plural",
    "readable",
    "seconds_between",
    "shortened",
    "tokens_text",
    "zone_text",
]

# ECMA-48: colours and cursor movement of terminals; a reader has no use for them
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-9;:?<=>]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_=>78c])"
)
# C0 and C1 controls, and the overrides that make text read otherwise than it runs (CVE-2021-42574)
_ODD: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SPACE: Final = re.compile(r"\s+")
_LOCAL: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}[\d:.,]{0,20}\Z")
_PICTURES: Final = 0x2400
_DELETE: Final = 0x7F


def readable(text: str) -> str:
    r"""Return *text* with nothing in it that a screen would obey instead of show.

    Terminal colours go; other control characters become their pictures (``␀``); marks that turn the
    direction of text are spelt out (``⟦U+202E⟧``); line ends become ``\n``.
    """
    if _ODD.search(text) is None:
        return text
    text = _ESCAPES.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n").replace("\v", "\n")
    return _ODD.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < ord(" "):
        return chr(_PICTURES + code)
    return "␡" if code == _DELETE else f"⟦U+{code:04X}⟧"


def first_line(text: str, limit: int = 90) -> str:
    """Return the first line of *text* that says something, on one line, at most *limit* characters."""
    for line in readable(text[: limit * 40]).strip().split("\n"):
        # the marks of Markdown headings, quotes and rules say nothing in a list
        plain = _SPACE.sub(" ", line).strip().lstrip("#>*-`= ").rstrip("*`").strip()
        if plain:
            return shortened(plain, limit)
    return ""


def shortened(text: str, limit: int) -> str:
    """Return *text* on one line, cut to *limit* characters with an ellipsis."""
    text = _SPACE.sub(" ", readable(text[: limit * 4])).strip()
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    # between words where one begins near
    return cut[: max(cut.rfind(" "), limit * 3 // 4)].rstrip(" ,;:") + "…"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return ``1 line``, ``2 lines``, ``1,234 lines``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def count_text(count: int) -> str:
    """Return a number as people read it at a glance: ``950``, ``12.3k``, ``4.5M``."""
    if count < 1000:
        return str(count)
    for unit, size in (("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)):
        value = count / size
        # what would be rounded up to 1000 belongs to the next unit
        if value < 999.5 or unit == "G":
            return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"
    raise AssertionError("unreachable: the last unit takes everything")


def tokens_text(tokens: Mapping[str, Any]) -> str:
    """Return what is known of *tokens* (input, output, cache_read, cache_write); empty where nothing is."""
    names = (("input", "in"), ("output", "out"), ("cache_read", "cache read"), ("cache_write", "cache write"))
    known = [(word, tokens.get(name)) for name, word in names]
    return ", ".join(
        f"{count_text(count)} {word}" for word, count in known if isinstance(count, int) and count
    )


def _moment(at: str | None) -> datetime | None:
    return None if at is None else datetime.fromisoformat(at)


def seconds_between(one: str | None, other: str | None) -> float | None:
    """Return the seconds from *one* to *other*; ``None`` where a time is missing. May be negative."""
    first, last = _moment(one), _moment(other)
    if first is None or last is None or (first.tzinfo is None) != (last.tzinfo is None):
        return None
    return (last - first).total_seconds()


def local_time(raw: Any) -> str | None:
    """Return a date and time that a source states without a zone; ``None`` for anything else.

    The result has the form of a UTC time without its ``Z``, to milliseconds.
    """
    if not isinstance(raw, str) or _LOCAL.match(raw) is None:
        return None
    try:
        moment = datetime.fromisoformat(raw)
    except ValueError:
        return None
    # what is older than Unix is a clock that wasn't set
    return None if moment.tzinfo or moment.year <= 1970 else moment.isoformat(timespec="milliseconds")


def zone_text(time: str, unstated: str = " (local time, zone not stated)") -> str:
    """Return what follows *time* in a text: `` UTC``, or *unstated* for one of :func:`local_time`."""
    return " UTC" if time.endswith(("Z", "+00:00")) else unstated


def gap_text(seconds: float) -> str:
    """Return a span of time in the largest two units that matter: ``4 s``, ``3 min``, ``2 h 5 min``."""
    if seconds < 0:
        return f"-{gap_text(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 and whole % 60 else "")
    if whole < 172_800:
        minutes = whole % 3600 // 60
        return f"{whole // 3600} h" + (f" {minutes} min" if minutes else "")
    return f"{whole // 86400} days"


def clock_text(at: str | None) -> str:
    """Return the time of day of a UTC time, ``22:04``; empty where there is none."""
    return "" if at is None else at[11:16]


def day_text(at: str | None) -> str:
    """Return the day of a UTC time, ``7 Feb 2026``; empty where there is none."""
    moment = _moment(at)
    # not strftime's %b, which speaks the language of whoever makes the view
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    return "" if moment is None else f"{moment.day} {months[moment.month - 1]} {moment.year}"
