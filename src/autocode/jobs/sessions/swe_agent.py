"""Readers for SWE-agent's ``.traj`` and mini-SWE-agent's ``.traj.json``: one document each.

SWE-agent tells a run twice (docs.swe-agent.com, output files): ``history`` is the conversation as the model
saw it, ``trajectory`` the steps with what the program knows beside it. The history becomes messages, tool
calls and results, each step one event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from autocode.jobs.sessions.base import Found, Reading, Record, Report, label
from autocode.jobs.sessions.completions import Draft, arguments_of, held_of
from autocode.jobs.sessions.document import EACH, ROOT, Closed, Layout, Member, Opened, parts_of_document
from autocode.jobs.sessions.head import opened_object
from autocode.jobs.sessions.mapping import Mapper, begin
from autocode.jobs.sessions.state import Saved
from autocode.jobs.sessions.swe_history import ACTION, drafts_of, is_entry
from autocode.jobs.sessions.times import of_epoch
from autocode.jobs.sessions.usage import count_of

__all__ = ["MiniSweAgentReader", "SweAgentReader"]

_HISTORIES: Final = frozenset({"history", "messages"})
_LAYOUT: Final[Layout] = {
    ROOT: {"history": "history", "messages": "messages", "trajectory": "trajectory", "attempts": "attempts"},
    "attempts": {EACH: "attempt"},
    "attempt": {"history": "history", "trajectory": "trajectory"},
    "history": {},
    "messages": {},
    "trajectory": {},
}
_KNOWN: Final = frozenset({"environment", "info", "instance_id", "replay_config", "trajectory_format"})
_COPIES: Final = ("query", "messages")
_LISTS: Final = re.compile(rb'"(?:history|messages|trajectory)"[ \t\r\n]{0,9}:[ \t\r\n]{0,9}\[')
_SPACE: Final = b" \t\r\n\xef\xbb\xbf"


class SweAgentReader:
    """Reads trajectories of SWE-agent, and demonstrations, which have a history alone."""

    name: Final = "swe-agent"
    revision: Final = 1
    in_parts: Final = False

    def matches(self, head: bytes) -> bool:
        """Say whether *head* begins an object with the history or the steps of a run."""
        shown = opened_object(head.lstrip(_SPACE)).keys()
        if "attempts" in shown and "environment" in shown:
            return True
        return bool(shown & {"history", "trajectory"}) and _begins_run(head)

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """See :meth:`autocode.jobs.sessions.base.Reader.read`."""
        return begin(self, _Run, stream, state)


class MiniSweAgentReader:
    """Reads conversations of mini-SWE-agent: a list of messages, bare or with ``info`` of the run."""

    name: Final = "mini-swe-agent"
    revision: Final = 1
    in_parts: Final = False

    def matches(self, head: bytes) -> bool:
        """Say whether *head* begins a list of messages, or an object with one and ``info``."""
        text = head.lstrip(_SPACE)
        if text[:1] == b"[":
            return {"role", "content"} <= opened_object(text[1:].lstrip(_SPACE)).keys()
        shown = opened_object(text).keys()
        return {"messages", "info"} <= shown and _begins_run(head)

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """See :meth:`autocode.jobs.sessions.base.Reader.read`."""
        return begin(self, _Run, stream, state)


def _begins_run(head: bytes) -> bool:
    """Say whether one of the lists in *head* begins with a message or a step."""
    for match in _LISTS.finditer(head):
        shown = opened_object(head[match.end() :].lstrip(_SPACE)[:65_536]).keys()
        if {"role", "content"} <= shown or {"action", "observation"} <= shown:
            return True
    return False


def _recognises(place: str, value: Any) -> bool:
    if place == "trajectory":
        return isinstance(value, dict) and bool(value.keys() & {"action", "observation"})
    return is_entry(value) if place in _HISTORIES else isinstance(value, dict)


class _Run(Mapper):
    def __init__(self, report: Report, saved: Saved | None) -> None:
        super().__init__(report, saved)
        # a document that was opened, and what came before it was clear what its session is
        self._opened: Opened | None = None
        self._held: dict[str, Member] = {}
        self._command: str | None = None

    def records(self, stream: BinaryIO) -> Iterator[Record]:
        for part in parts_of_document(stream, self._report, _LAYOUT, recognises=_recognises):
            if isinstance(part, Opened) and part.place == ROOT:
                yield from self._begin(None)
                self._opened = part
            elif isinstance(part, Member):
                yield from self._member(part)
            elif isinstance(part, Closed):
                self._command = None
        yield from self._begin(None)
        if not self._report.sessions:
            yield self._session(None, {})

    def _member(self, member: Member) -> Iterator[Record]:
        if self._opened is not None:
            key = member.key if member.place == ROOT else None
            if key is not None and key in _KNOWN and key not in self._held:
                self._held[key] = member
                return
            yield from self._begin(member)
        yield from self._records(member)

    def _begin(self, member: Member | None) -> Iterator[Record]:
        """Yield the session that was opened and what was held until it was known."""
        if self._opened is None:
            return
        opened, held = self._opened, self._held
        self._opened, self._held = None, {}
        facts = {key: item.found.value for key, item in held.items()}
        if member is not None and member.place == "trajectory":
            facts["step"] = member.found.value
        yield self._session(opened.found, facts)
        for item in held.values():
            yield from self._records(item)

    def _session(self, found: Found | None, facts: dict[str, Any]) -> Record:
        is_first = not self._report.sessions
        record = self.session(None, None if found is None or is_first else found._replace(length=0))
        info, step = _object(facts.get("info")), _object(facts.get("step"))
        state = _object(arguments_of(step.get("state")))
        record |= {
            "session_id": _text(facts.get("instance_id")),
            "agent_id": None,
            "parent_session_id": None,
            "cwd": _text(state.get("working_dir")),
            "git_branch": None,
            "tool_version": _text(info.get("mini_version")),
            "model_provider": None,
        }
        self._report.session_id = record["session_id"]
        return record

    def _records(self, member: Member) -> Iterator[Record]:
        value, place = member.found.value, member.place
        drafts: list[Draft] = []
        is_entry_of_list = place in _HISTORIES or (place == ROOT and member.key is None)
        if is_entry_of_list and isinstance(value, dict) and member.key is None:
            drafts = drafts_of(value, self._report, is_answer=self._command is not None)
        elif place == "trajectory" and isinstance(value, dict) and member.key is None:
            drafts = [("event", {"name": "step", "data": self._without_copies(value)})]
        elif place in {ROOT, "attempt"} and member.key in _KNOWN:
            drafts = [("event", self._fact(str(member.key), value))]
        if not drafts:
            yield self._unknown(member)
            return
        command, self._command = self._command, None
        at, raw = self._moment(value) if is_entry_of_list else (None, None)
        for index, (kind, fields) in enumerate(drafts):
            record_id = self._identities.part(member.found.position, member.found.position, index)
            record = self._recorder.make(kind, record_id, at, None, member.found)
            if raw is not None:
                record["raw_at"] = raw
            record |= fields
            self._note(record, command)
            yield record

    def _note(self, record: Record, command: str | None) -> None:
        self.link(record)
        if record["type"] == "tool_result" and record["call_id"] is None:
            record["call"] = command
        if record["type"] == "tool_call" and record["name"] == ACTION and record["call_id"] is None:
            self._command = record["id"]
        if record["type"] != "event" and "usage" in record:
            self._totals.add(record["usage"])
        if isinstance(record.get("model"), str):
            self._report.saw_model(label(record["model"]))

    def _unknown(self, member: Member) -> Record:
        value, key = member.found.value, member.key
        self._report.lose(f"unknown-type:{type(value).__name__ if key is None else label(key)}")
        record = self._recorder.make("unknown", member.found.position, None, None, member.found)
        return record | {"name": key, "data": value}

    def _without_copies(self, step: dict[str, Any]) -> dict[str, Any]:
        """Return a step with the conversation before it, which the history tells, by count and digest."""
        copies = {key: step[key] for key in _COPIES if isinstance(step.get(key), list) and step[key]}
        self._report.lose("repeated-history", sum(map(len, copies.values())))
        return step | {key: {"held": held_of(entries)} for key, entries in copies.items()}

    def _fact(self, key: str, value: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"name": key, "data": value if isinstance(value, dict) else {key: value}}
        about = _object(arguments_of(value))
        if key == "info":
            stats = _object(about.get("model_stats"))
            if "tokens_sent" in stats:
                usage = {
                    "input": count_of(stats["tokens_sent"]),
                    "output": count_of(stats.get("tokens_received")),
                    "cache_read": 0,
                    "cache_write": 0,
                }
                fields["usage"] = usage
                self._totals.add(usage)
            if type(stats.get("instance_cost")) in {int, float}:
                fields["cost_usd"] = stats["instance_cost"]
            about = _object(about.get("config"))
        for part in (_object(about.get("agent")), about):
            name = _object(part.get("model")).get("name") or _object(part.get("model")).get("model_name")
            if isinstance(name, str):
                self._report.saw_model(label(name))
                break
        return fields

    def _moment(self, entry: dict[str, Any]) -> tuple[str | None, Any]:
        """Return the time of an entry, and how it was written where that is no time."""
        extra = entry.get("extra")
        value = entry.get("timestamp", extra.get("timestamp") if isinstance(extra, dict) else None)
        if value is None:
            return None, None
        at = self.time(of_epoch(value))
        return at, None if at is not None else value


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
