"""Reader for OpenHands: an exported list of events, or the output of an evaluation with a run on each line.

Times have no zone (openhands/events/event.py writes local time), so they are no times here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from autocode.jobs.sessions.base import Found, Reading, Record, Report, label
from autocode.jobs.sessions.document import ROOT, Layout, Member, Opened, parts_of_document
from autocode.jobs.sessions.head import opened_object
from autocode.jobs.sessions.mapping import Mapper, begin
from autocode.jobs.sessions.openhands_events import Events, is_event
from autocode.jobs.sessions.state import Saved
from autocode.jobs.sessions.usage import KINDS, count_of

__all__ = ["OpenHandsReader"]

_HISTORY: Final = "history"
_LAYOUT: Final[Layout] = {ROOT: {_HISTORY: _HISTORY}, _HISTORY: {}}
_KNOWN: Final = frozenset({
    "error", "instance", "instance_id", "instruction", "metadata", "metrics", "report", "test_result",
})  # fmt: skip
_HELD: Final = 1024 * 1024
_FIRST: Final = re.compile(rb'"history"[ \t\r\n]{0,9}:[ \t\r\n]{0,9}\[[ \t\r\n\[]{0,99}')
_SPACE: Final = b" \t\r\n\xef\xbb\xbf"
_TOTALS: Final = {
    "output": "completion_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
}


class OpenHandsReader:
    """Reads event lists of OpenHands, and ``output.jsonl`` of its evaluations: each line is a session."""

    name: Final = "openhands"
    revision: Final = 1
    in_parts: Final = False

    def matches(self, head: bytes) -> bool:
        """Say whether *head* begins a list of events, or an instance of an evaluation."""
        text = head.lstrip(_SPACE)
        if text[:1] == b"[":
            return _is_shown(text[1:])
        shown = opened_object(text).keys()
        if not {"instance_id", "metadata"} <= shown and not {"instance_id", _HISTORY} <= shown:
            return False
        first = _FIRST.search(head)
        return _is_shown(head[first.end() :]) if first else "test_result" in shown

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """See :meth:`autocode.jobs.sessions.base.Reader.read`."""
        return begin(self, _Conversation, stream, state)


def _is_shown(text: bytes) -> bool:
    shown = opened_object(text.lstrip(_SPACE)).keys()
    return "source" in shown and bool(shown & {"action", "observation"}) and bool(shown & {"id", "timestamp"})


def _recognises(place: str, value: Any) -> bool:
    if place == ROOT:
        return isinstance(value, dict)
    return is_event(value) or (isinstance(value, list) and any(map(is_event, value)))


class _Conversation(Mapper):
    def __init__(self, report: Report, saved: Saved | None) -> None:
        super().__init__(report, saved)
        self._opened: Opened | None = None
        self._held: list[Member] = []
        self._start_anew()

    def _start_anew(self) -> None:
        self._events = Events(self._report)
        self._has_usage = False

    def records(self, stream: BinaryIO) -> Iterator[Record]:
        for part in parts_of_document(stream, self._report, _LAYOUT, recognises=_recognises):
            if isinstance(part, Opened):
                yield from self._begin()
                if part.place == ROOT:
                    self._opened = part
                    self._start_anew()
            elif isinstance(part, Member):
                yield from self._member(part)
        yield from self._begin()
        if not self._report.sessions:
            yield self._session(None)

    def _member(self, member: Member) -> Iterator[Record]:
        if self._opened is not None:
            size = sum(item.found.length for item in self._held)
            if member.place == ROOT and member.key in _KNOWN and size < _HELD:
                self._held.append(member)
                return
            yield from self._begin()
        yield from self._records(member)

    def _begin(self) -> Iterator[Record]:
        """Yield the session that was opened, and what was held until its id could be known."""
        if self._opened is None:
            return
        found, held = self._opened.found, self._held
        self._opened, self._held = None, []
        yield self._session(found, {str(item.key): item.found.value for item in held})
        for item in held:
            yield from self._records(item)

    def _session(self, found: Found | None, facts: dict[str, Any] | None = None) -> Record:
        is_first = not self._report.sessions
        record = self.session(None, None if found is None or is_first else found._replace(length=0))
        instance = (facts or {}).get("instance_id")
        record |= {
            "session_id": instance if isinstance(instance, str) else None,
            "agent_id": None,
            "parent_session_id": None,
            "cwd": None,
            "git_branch": None,
            "tool_version": None,
            "model_provider": None,
        }
        self._report.session_id = record["session_id"]
        return record

    def _records(self, member: Member) -> Iterator[Record]:
        value, found = member.found.value, member.found
        if member.place == ROOT and member.key in _KNOWN:
            record = self._recorder.make("event", found.position, None, None, found)
            yield record | self._fact(str(member.key), value)
            return
        # the first versions of the evaluation wrote pairs of an action and its observation
        is_pair = isinstance(value, list) and value and all(map(is_event, value))
        if member.key is None and (is_pair or is_event(value)):
            index = 0
            for event in value if is_pair else [value]:
                for record in self._event(event, found, index, is_list=member.place == ROOT):
                    index += 1
                    yield record
            return
        key = member.key
        self._report.lose(f"unknown-type:{type(value).__name__ if key is None else label(key)}")
        record = self._recorder.make("unknown", found.position, None, None, found)
        yield record | {"name": key, "data": value}

    def _event(self, event: dict[str, Any], found: Found, index: int, *, is_list: bool) -> Iterator[Record]:
        number, cause = event.get("id"), event.get("cause")
        own = str(number) if type(number) is int else number
        # runs of an evaluation count their events from 0, all of them
        base = self._identities.claim(own, found.position) if is_list and not index else found.position
        call = self._calls.find(self._key(cause))
        left = {"id"} if base == own else set()
        left |= {"cause"} if type(cause) is int else set()
        bare = {key: value for key, value in event.items() if key not in left}
        drafts = self._events.drafts_of(bare, is_answer=call is not None)
        if not drafts:
            self._report.lose(f"unknown-shape:{label(event.get('action', event.get('observation')))}")
            drafts = [("unknown", {"name": None, "data": event})]
        at = self.time(event.get("timestamp"))
        for kind, fields in drafts:
            record_id = self._identities.part(base, found.position, index)
            index += 1
            record = self._recorder.make(
                kind, record_id, at, str(cause) if type(cause) is int else None, found
            )
            if at is None and event.get("timestamp") is not None:
                record["raw_at"] = event["timestamp"]
            record |= fields
            self._note(record, number, call)
            yield record

    def _note(self, record: Record, number: object, call: str | None) -> None:
        self.link(record)
        if record["type"] == "tool_call":
            self._calls.made(self._key(number), record["id"])
        elif record["type"] == "tool_result" and record["call"] is None:
            record["call"] = call
        if "usage" in record:
            self._has_usage = True
            self._totals.add(record["usage"])
        if "model" in record:
            self._report.saw_model(label(record["model"]))

    def _key(self, number: object) -> str | None:
        """Return under which name the call of an event is remembered: sessions number theirs alike."""
        return f"{self._report.sessions}#{number}" if type(number) is int else None

    def _fact(self, key: str, value: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"name": key, "data": value if isinstance(value, dict) else {key: value}}
        about = value if isinstance(value, dict) else {}
        config = about.get("llm_config")
        if isinstance(config, dict) and isinstance(config.get("model"), str):
            self._report.saw_model(label(config["model"]))
        if key == "metrics":
            if type(about.get("accumulated_cost")) in {int, float}:
                fields["cost_usd"] = about["accumulated_cost"]
            total = about.get("accumulated_token_usage")
            if isinstance(total, dict) and not self._has_usage:
                usage = dict.fromkeys(KINDS, 0)
                usage |= {name: count_of(total.get(key)) for name, key in _TOTALS.items()}
                cached = usage["cache_read"] + usage["cache_write"]
                usage["input"] = max(0, count_of(total.get("prompt_tokens")) - cached)
                fields["usage"] = usage
                self._totals.add(usage)
        return fields
