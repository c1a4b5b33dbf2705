"""Tokens and tool calls, brought together from the records that tell of them piece by piece."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

__all__ = ["KINDS", "Calls", "Row", "Usage", "beyond", "cost_of", "milliseconds_between"]

Row = dict[str, Any]
"""A row of a table by the names of its columns."""

KINDS: Final = ("input", "output", "cache_read", "cache_write")
"""The kinds of tokens of a ``usage``."""
_SETTLED: Final = 65_536
_MOST_CALLS: Final = 10_000
_MOST_CHARS: Final = 64 << 20


def cost_of(record: Row) -> float | None:
    """Return what a record says that it cost, in US dollars; ``None`` where it doesn't say."""
    cost = record.get("cost_usd")
    if cost is None:
        # versions of Claude Code up to 1.0 wrote it beside the message
        extra = record.get("extra")
        cost = extra.get("costUSD") if isinstance(extra, dict) else None
    return float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None


class Usage:
    """The usage rows of a session: a message counts once, with what its last record says.

    The rules are those by which the reading's report adds up (docs/normal-form.md), so the rows of a source
    add up to the report's tokens.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, str], Row] = OrderedDict()
        self._running = dict.fromkeys(KINDS, 0)

    def take(self, record: Row, row: Row) -> Iterator[Row]:
        """Yield the rows that are settled now that *record* was seen; *row* has its other columns."""
        if record["type"] == "event" and record["name"] == "event_msg/token_count":
            counts = self._grown(record["data"])
        else:
            counts = record.get("usage")
        cost = cost_of(record)
        if (not counts and cost is None) or _is_copy(record):
            return
        row |= {f"{kind}_tokens": int((counts or {}).get(kind, 0)) for kind in KINDS}
        row["cost_usd"] = cost
        message = record.get("message_id")
        if not message:
            yield from _counted(row)
            return
        key = (message, record.get("request_id") or "")
        self._open.pop(key, None)
        self._open[key] = row
        if len(self._open) > _SETTLED:
            yield from _counted(self._open.popitem(last=False)[1])

    def finish(self) -> Iterator[Row]:
        """Yield the rows that were still open."""
        while self._open:
            yield from _counted(self._open.popitem(last=False)[1])

    def _grown(self, data: Any) -> dict[str, int] | None:
        info = data.get("info") if isinstance(data, dict) else None
        total = info.get("total_token_usage") if isinstance(info, dict) else None
        if not isinstance(total, dict) or not total:
            return None
        cached = _count(total.get("cached_input_tokens"))
        counts = {
            "input": max(0, _count(total.get("input_tokens")) - cached),
            "output": _count(total.get("output_tokens")),
            "cache_read": cached,
            "cache_write": 0,
        }
        grown = {kind: counts[kind] - self._running[kind] for kind in KINDS}
        self._running = counts
        return counts if min(grown.values()) < 0 else grown


def beyond(report: Row, counted: Row, row: Row) -> Iterator[Row]:
    """Yield *row* with the tokens that the *report* of a session has beyond what was *counted*, if any.

    Some tools say at the end of a session what it took, and not by message.
    """
    tokens = report.get("tokens") or {}
    rest = {f"{kind}_tokens": tokens.get(kind, 0) - counted[f"{kind}_tokens"] for kind in KINDS}
    if min(rest.values()) >= 0:
        yield from _counted({**row, **rest, "cost_usd": None})


class Calls:
    """The tool calls of a session that wait for their results.

    A row is complete when its result came. What waits is bounded: beyond 10,000 calls, or inputs of 64 Mi
    characters, the oldest is given up, and a result that comes later has a row of its own.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[str, Row] = OrderedDict()
        self._chars = 0

    def called(self, record_id: str, row: Row) -> Iterator[Row]:
        """Remember a call; yield the rows of those that are given up for it."""
        self._open[record_id] = row
        self._chars += row["input_chars"]
        while len(self._open) > _MOST_CALLS or (self._chars > _MOST_CHARS and len(self._open) > 1):
            yield self._out(next(iter(self._open)))

    def answered(self, record_id: str | None, result: Row) -> Row:
        """Return the row of a call with its result, or that of the result alone."""
        if record_id is None or record_id not in self._open:
            return result
        row = self._out(record_id)
        row |= {name: result[name] for name in ("is_error", "result_record", "result_at")}
        row |= {name: result[name] for name in ("output", "output_chars", "attachments")}
        row["duration_ms"] = milliseconds_between(row["at"], row["result_at"])
        return row

    def finish(self) -> Iterator[Row]:
        """Yield the rows of the calls that had no result."""
        while self._open:
            yield self._out(next(iter(self._open)))

    def _out(self, record_id: str) -> Row:
        row = self._open.pop(record_id)
        self._chars -= row["input_chars"]
        return row


def milliseconds_between(first: str | None, last: str | None) -> int | None:
    """Return the milliseconds from *first* to *last*; ``None`` where one is missing or earlier."""
    if first is None or last is None or last < first:
        return None
    passed = datetime.fromisoformat(last) - datetime.fromisoformat(first)
    return round(passed.total_seconds() * 1000)


def _counted(row: Row) -> Iterator[Row]:
    if row["cost_usd"] or any(row[f"{kind}_tokens"] for kind in KINDS):
        yield row


def _is_copy(record: Row) -> bool:
    # a step of ATIF that repeats one of another trajectory, where it is counted
    extra = record.get("extra")
    step = extra.get("step") if isinstance(extra, dict) else None
    return isinstance(step, dict) and step.get("is_copied_context") is True


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**53 else 0
