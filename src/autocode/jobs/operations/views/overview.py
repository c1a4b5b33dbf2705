"""The first pass over a source: what a reader wants to know of each session before reading it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from autocode.jobs.operations.views.counting import KINDS, Row, Usage
from autocode.jobs.operations.views.sources import Record, by_session
from autocode.jobs.operations.views.turns import message_of
from autocode.jobs.operations.views.wording import first_line, local_time, plural, seconds_between

__all__ = ["Overview", "Prompt", "survey"]

_PROMPTS: Final = 1000
"""Prompts in a table of contents; a longer one helps nobody, and memory stays bounded."""
_NAMES: Final = 200
_COMMAND: Final = re.compile(r"/[a-z][\w:-]{0,60}(?:\s|\Z)", re.IGNORECASE)
"""A slash command; a path has a second slash."""

_THINGS: Final = (
    ("message", "message", "messages"),
    ("tool_call", "tool call", "tool calls"),
    ("thinking", "thought", "thoughts"),
    ("event", "output of the tool", "outputs of the tool"),
    ("summary", "summary", "summaries"),
    ("unknown", "record not understood", "records not understood"),
)


@dataclass(slots=True)
class Prompt:
    """A prompt of the user, and what it set in motion; times may lack a zone, as :attr:`Overview.begun`."""

    id: str
    text: str
    at: str | None
    calls: int = 0
    last_at: str | None = None

    @property
    def seconds(self) -> float | None:
        """How long the tool worked on it; ``None`` where times are missing."""
        return seconds_between(self.at, self.last_at)


@dataclass(slots=True)
class Overview:
    """One session in numbers. Nothing in it grows with the session past fixed bounds."""

    number: int
    session: Record
    title: str = ""
    prompts: list[Prompt] = field(default_factory=list)
    prompt_count: int = 0
    first_at: str | None = None
    last_at: str | None = None
    first_local: str | None = None
    last_local: str | None = None
    """Times without a zone, of records that have no other."""
    records: Counter[str] = field(default_factory=Counter)
    replies: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    errors: int = 0
    models: dict[str, None] = field(default_factory=dict)
    tokens: Counter[str] = field(default_factory=Counter)
    cost: float | None = None
    agents: dict[str, str] = field(default_factory=dict)
    """The call of each subagent: the call's id, and the subagent's."""
    _usage: Usage = field(default_factory=Usage)

    @property
    def headline(self) -> str:
        """The title, else what was asked first, else the session's own id, else what there is."""
        return self.title or self.opening or str(self.session.get("session_id") or self._inventory())

    @property
    def opening(self) -> str:
        """The first line of the first prompt that is no slash command, else of the first; may be empty."""
        texts = [prompt.text for prompt in self.prompts]
        return next((text for text in texts if _COMMAND.match(text) is None), texts[0] if texts else "")

    @property
    def begun(self) -> str | None:
        """The first time: UTC, or where no record has that, one without a zone."""
        return self.first_at or self.first_local

    @property
    def ended(self) -> str | None:
        """The last time, of the same kind as :attr:`begun`."""
        return self.last_at or self.last_local

    @property
    def seconds(self) -> float | None:
        """From the first to the last time."""
        return seconds_between(self.begun, self.ended)

    def take(self, record: Record) -> None:
        """Count *record*."""
        kind = str(record["type"])
        self.records[kind] += 1
        self._model(record.get("model"))
        self._spend(self._usage.take(record, {}))
        if kind == "message":
            self._message(record)
        elif kind == "tool_call" and not self._aside(record):
            name = str(record.get("name"))
            self.calls[name if name in self.calls or len(self.calls) < _NAMES else "…"] += 1
            if self.prompts and self.prompt_count == len(self.prompts):
                self.prompts[-1].calls += 1
        elif kind == "tool_result" and not self._aside(record):
            self.errors += record.get("is_error") is True
        self._time(record.get("at"), record.get("raw_at"))
        self._agent(record)

    def end(self, report: Mapping[str, Any] | None) -> None:
        """Finish; *report* is the source's, for the only session of a source."""
        self._spend(self._usage.finish())
        report = report or {}
        self.title = first_line(str(self.session.get("title") or report.get("title") or ""), 120)
        if isinstance(report.get("tokens"), dict):
            # the report knows of counts that were told several times, or as running totals
            self.tokens = Counter({str(name): int(value or 0) for name, value in report["tokens"].items()})
        for model in report.get("models") or ():
            self._model(model)

    def _inventory(self) -> str:
        found = [plural(self.records[kind], one, many) for kind, one, many in _THINGS if self.records[kind]]
        return f"No prompt: {', '.join(found[:2])}" if found else "Nothing recorded"

    def _model(self, model: Any) -> None:
        # Claude Code writes <synthetic> where no model spoke
        if isinstance(model, str) and len(self.models) < _NAMES and not model.startswith("<"):
            self.models[model] = None

    def _time(self, at: str | None, raw: Any) -> None:
        # the text of such times sorts as the times do
        if at is not None:
            self.first_at = at if self.first_at is None else min(self.first_at, at)
            self.last_at = at if self.last_at is None else max(self.last_at, at)
        else:
            at = local_time(raw)
            if at is None:
                return
            self.first_local = at if self.first_local is None else min(self.first_local, at)
            self.last_local = at if self.last_local is None else max(self.last_local, at)
        if self.prompts and self.prompt_count == len(self.prompts):
            self.prompts[-1].last_at = at

    def _message(self, record: Record) -> None:
        message = message_of(record)
        if self._aside(record):
            return
        self.replies += message.role == "assistant"
        if message.role != "user" or message.origin not in {"said", "command"}:
            return
        self.prompt_count += 1
        if len(self.prompts) < _PROMPTS:
            told = " ".join(part.text[:4000] for part in message.parts if part.kind == "text")
            text = first_line(told) or "(no text)"
            self.prompts.append(
                Prompt(message.stamp.id, text, message.stamp.time, last_at=message.stamp.time)
            )

    def _aside(self, record: Record) -> bool:
        # a subagent's whole transcript is a side chain
        return bool(record.get("sidechain")) and self.session.get("agent_id") is None

    def _spend(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.tokens.update({kind: row[f"{kind}_tokens"] for kind in KINDS if row[f"{kind}_tokens"]})
            if row["cost_usd"] is not None:
                self.cost = (self.cost or 0.0) + row["cost_usd"]

    def _agent(self, record: Record) -> None:
        if record["type"] == "tool_result":
            told = (record.get("extra") or {}).get("toolUseResult")
            agent, call = (told.get("agentId") if isinstance(told, dict) else None), record.get("call_id")
        elif record.get("name") == "progress/agent_progress" and isinstance(record.get("data"), dict):
            inner = record["data"].get("data")
            agent = inner.get("agentId") if isinstance(inner, dict) else None
            call = record["data"].get("parentToolUseID")
        else:
            return
        if isinstance(agent, str) and isinstance(call, str):
            self.agents.setdefault(call, agent)


def survey(records: Iterable[Record], report: Mapping[str, Any]) -> list[Overview]:
    """Return an overview of each session in *records*; *report* is the source's."""
    found = []
    for number, session in by_session(records):
        overview = Overview(number, {})
        for record in session:
            if record["type"] == "session":
                overview.session = record
            overview.take(record)
        found.append(overview)
    for overview in found:
        overview.end(report if len(found) == 1 else None)
    return found
