"""Rows of one source's records, session by session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from autocode.jobs.operations.views.counting import Calls, Row, Usage, beyond, milliseconds_between

__all__ = ["SourceRows"]

_EVERYWHERE: Final = frozenset(
    {"seq", "id", "type", "at", "parent", "source", "sidechain"}
    | {"model", "message_id", "request_id", "stop_reason", "usage", "cost_usd"}
)
_IN_COLUMNS: Final = {
    "session": frozenset(
        {"format", "tool", "reader", "reader_revision", "session_id", "agent_id", "parent_session_id", "cwd"}
        | {"git_branch", "tool_version", "model_provider", "title"}
    ),
    "message": frozenset({"role", "content"}),
    "thinking": frozenset({"text"}),
    "summary": frozenset({"text"}),
    "compaction": frozenset({"text"}),
    "tool_call": frozenset({"call_id", "name", "input"}),
    "tool_result": frozenset({"call_id", "call", "is_error", "content"}),
    "event": frozenset({"name"}),
    "unknown": frozenset({"name"}),
}
_SAID: Final = frozenset({"message", "thinking", "summary", "compaction"})
_BY_MODEL: Final = frozenset({"thinking", "tool_call"})
_COUNTS: Final = "event_msg/token_count"
_TOKENS: Final = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class _Session:
    """What is counted of a session until it ends."""

    def __init__(self, row: Row, at: str | None) -> None:
        self.row = row
        self.at = at
        self.usage = Usage()
        self.calls = Calls()
        self.models: set[str] = set()
        self.model: str | None = None

    def saw(self, at: str | None) -> None:
        if at is not None:
            self.row["first_at"] = min(at, self.row["first_at"] or at)
            self.row["last_at"] = max(at, self.row["last_at"] or at)

    def finished(self) -> Row:
        if self.row["first_at"] is None:
            self.saw(self.at)
        passed = milliseconds_between(self.row["first_at"], self.row["last_at"])
        self.row["duration_s"] = None if passed is None else passed / 1000
        self.row["models"] = _json(sorted(self.models))
        return self.row


class SourceRows:
    """Turns the records of a source into rows; hand them over in order.

    Args:
        source: number of the source.
        first_session: number that its first session gets.
        first_record: number that its first record gets.
        report: its report, which is that of the session where there is one.
        wanted: names of the tables whose rows are needed.
    """

    def __init__(
        self, source: int, *, first_session: int, first_record: int, report: Row, wanted: frozenset[str]
    ) -> None:
        self.next_session = first_session
        self._source = source
        self._first_session = first_session
        self._first_record = first_record
        self._report = report
        self._wanted = wanted
        self._session: _Session | None = None
        self._object: tuple[int, str | None] = (-1, None)

    def take(self, record: Row) -> Iterator[tuple[str, Row]]:
        """Yield the rows that are complete now that *record* was seen."""
        kind = record["type"]
        if kind == "session" or self._session is None:
            yield from self._end_session()
            self._begin_session(record)
        session = self._session
        assert session is not None
        number = self._first_record + record["seq"]
        model = self._model_of(record, session)
        common: Row = {"record": number, "session": session.row["session"], "at": record["at"]}
        common["model"] = model
        if kind != "session":
            session.saw(record["at"])
        session.row["records"] += 1
        if "records" in self._wanted:
            yield "records", _record_row(record, common)
        if kind in _SAID:
            session.row["messages"] += kind == "message"
            if "messages" in self._wanted:
                yield "messages", _message_row(record, common)
        elif kind == "tool_call":
            session.row["tool_calls"] += 1
            if "tool_calls" in self._wanted:
                yield from _named("tool_calls", session.calls.called(record["id"], _call_row(record, common)))
        elif kind == "tool_result":
            session.row["tool_errors"] += record["is_error"] is True
            if "tool_calls" in self._wanted:
                yield "tool_calls", session.calls.answered(record["call"], _result_row(record, common))
        yield from self._used(session, session.usage.take(record, dict(common)))

    def finish(self) -> Iterator[tuple[str, Row]]:
        """Yield the rows that were still open."""
        session = self._session
        if session is None or session.row["session"] != self._first_session:
            yield from self._end_session()
            return
        report = self._report
        yield from self._settled(session)
        row = session.row
        at = {"record": self._first_record, "session": row["session"], "at": session.at}
        at["model"] = report["models"][0] if len(report.get("models", ())) == 1 else None
        yield from self._used(session, beyond(report, row, at))
        row["title"] = row["title"] or _plain(report.get("title"))
        row |= {name: report[name] for name in ("first_at", "last_at") if report.get(name)}
        session.models = set(report.get("models", session.models))
        yield "sessions", session.finished()

    def _begin_session(self, record: Row) -> None:
        row: Row = {"session": self.next_session, "source": self._source, "title": record.get("title")}
        for name in ("tool", "session_id", "agent_id", "parent_session_id", "git_branch", "tool_version"):
            row[name] = record.get(name)
        row |= {"model_provider": record.get("model_provider"), "project": record.get("cwd")}
        row |= {"first_at": None, "last_at": None, "records": 0, "messages": 0, "tool_calls": 0}
        row |= {"tool_errors": 0, **dict.fromkeys(_TOKENS, 0), "cost_usd": None}
        self._session = _Session(_plain_row(row), record["at"])
        self.next_session += 1

    def _end_session(self) -> Iterator[tuple[str, Row]]:
        session = self._session
        if session is None:
            return
        yield from self._settled(session)
        yield "sessions", session.finished()

    def _settled(self, session: _Session) -> Iterator[tuple[str, Row]]:
        yield from _named("tool_calls", session.calls.finish())
        yield from self._used(session, session.usage.finish())

    def _used(self, session: _Session, rows: Iterator[Row]) -> Iterator[tuple[str, Row]]:
        for row in rows:
            for name in _TOKENS:
                session.row[name] += row[name]
            if row["cost_usd"] is not None:
                session.row["cost_usd"] = (session.row["cost_usd"] or 0.0) + row["cost_usd"]
            yield "usage", row

    def _model_of(self, record: Row, session: _Session) -> str | None:
        """Return the model that a record is of.

        It may be said on the first record of the object that holds a message (Claude Code), or in an event
        before it (Codex).
        """
        said = record.get("model")
        offset = record["source"]["offset"]
        kind, data = record["type"], record.get("data")
        name = record["name"] if kind == "event" else None
        if name == "turn_context" and isinstance(data, dict):
            session.model = _plain(data.get("model"))
        if said is None and offset == self._object[0]:
            said = self._object[1]
        self._object = (offset, said)
        of_model = kind in _BY_MODEL or record.get("role") == "assistant" or name == _COUNTS
        if said is None and of_model:
            said = session.model
        if isinstance(said, str) and said != "<synthetic>":
            session.models.add(said)
        return None if said is None else str(_plain(said))


def _record_row(record: Row, common: Row) -> Row:
    held = _EVERYWHERE | _IN_COLUMNS.get(record["type"], frozenset())
    rest = {name: value for name, value in record.items() if name not in held and value is not None}
    if record["type"] in {"event", "unknown"} and rest.keys() == {"data"}:
        rest = rest["data"]
    return common | {
        "seq": record["seq"],
        "id": record["id"],
        "type": record["type"],
        "name": _plain(record.get("name")),
        "parent": _plain(record["parent"]),
        "sidechain": record.get("sidechain", False),
        "message_id": _plain(record.get("message_id")),
        "request_id": _plain(record.get("request_id")),
        "stop_reason": _plain(record.get("stop_reason")),
        "source_offset": record["source"]["offset"],
        "source_length": record["source"]["length"],
        "data": _json(rest) if rest else None,
    }


def _message_row(record: Row, common: Row) -> Row:
    kind = record["type"]
    text, others = _text_of(record["content"]) if kind == "message" else (_plain(record["text"]), 0)
    return common | {
        "type": kind,
        "role": "assistant" if kind == "thinking" else _plain(record.get("role")),
        "sidechain": record.get("sidechain", False),
        "chars": len(text or ""),
        "attachments": others,
        "text": text,
    }


def _call_row(record: Row, common: Row) -> Row:
    given = _json(record["input"])
    return common | {
        "name": _plain(record["name"]),
        "duration_ms": None,
        "is_error": None,
        "result_record": None,
        "result_at": None,
        "call_id": _plain(record["call_id"]),
        "sidechain": record.get("sidechain", False),
        "input_chars": len(given),
        "output_chars": None,
        "attachments": None,
        "input": given,
        "output": None,
    }


def _result_row(record: Row, common: Row) -> Row:
    text, others = _text_of(record["content"])
    return common | {
        "name": None,
        "at": None,
        "duration_ms": None,
        "is_error": record["is_error"],
        "result_record": common["record"],
        "result_at": record["at"],
        "call_id": _plain(record["call_id"]),
        "sidechain": record.get("sidechain", False),
        "input_chars": None,
        "output_chars": len(text),
        "attachments": others,
        "input": None,
        "output": text,
    }


def _text_of(content: list[dict[str, Any]]) -> tuple[str, int]:
    """Return the text of *content*, its parts on lines of their own, and how many parts aren't text."""
    texts = [part["text"] for part in content if part["type"] == "text"]
    return str(_plain("\n".join(texts))), len(content) - len(texts)


def _named(table: str, rows: Iterator[Row]) -> Iterator[tuple[str, Row]]:
    return ((table, row) for row in rows)


def _plain_row(row: Row) -> Row:
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    # SQL functions end a text at a NUL
    return value.replace("\0", " ") if isinstance(value, str) and "\0" in value else value


def _json(value: Any) -> str:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    if b"\\u0000" in text:
        text = orjson.dumps(_without_nul(value), option=orjson.OPT_SORT_KEYS)
    return text.decode()


def _without_nul(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(_plain(name)): _without_nul(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    return _plain(value)
