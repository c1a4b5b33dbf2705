"""Reader for Claude Code: ``projects/<folder>/<session>.jsonl`` and the transcripts of its subagents.

One object a line, told apart by ``type``. Seen in versions 1.0.96 to 2.1.33; the names of further types come
from the tool's changelog and from other people's readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from autocode.jobs.sessions.base import Found, Reading, Record, Report, label, word
from autocode.jobs.sessions.claude_content import Draft, drafts_of
from autocode.jobs.sessions.head import any_object, split_head
from autocode.jobs.sessions.lines import segments
from autocode.jobs.sessions.mapping import Mapper, begin, joined
from autocode.jobs.sessions.recovery import objects
from autocode.jobs.sessions.state import Saved
from autocode.jobs.sessions.times import normalise
from autocode.jobs.sessions.titles import Titles
from autocode.jobs.sessions.usage import count_of

__all__ = ["ClaudeCodeReader", "is_record"]

_EVENTS: Final = frozenset({
    "agent-name", "ai-title", "attachment", "custom-title", "file-history-delta", "file-history-snapshot",
    "fork-context-ref", "frame-link", "last-prompt", "mode", "permission-mode", "pr-link", "progress",
    "queue-operation", "tag", "worktree-state",
})  # fmt: skip
_WITHOUT_CHAIN: Final = {
    "ai-title": {"sessionId"},
    "custom-title": {"sessionId"},
    "file-history-snapshot": {"messageId", "snapshot"},
    "queue-operation": {"operation", "sessionId"},
    "summary": {"leafUuid", "summary"},
}
_SESSION_FIELDS: Final = {
    "sessionId": "session_id",
    "cwd": "cwd",
    "gitBranch": "git_branch",
    "version": "tool_version",
    "userType": "user_type",
    "agentId": "agent_id",
    "slug": "slug",
}
_COMMON: Final = frozenset({"type", "timestamp", "uuid", "parentUuid", "isSidechain"})
_USAGE: Final = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_input_tokens": "cache_write",
}
_TITLES: Final = {"custom-title": "customTitle", "ai-title": "aiTitle"}


def is_record(value: dict[str, Any]) -> bool:
    """Say whether *value* is a line that Claude Code writes, by its keys."""
    if "isSidechain" in value and "sessionId" in value:
        return True
    kind = value.get("type")
    return isinstance(kind, str) and kind in _WITHOUT_CHAIN and _WITHOUT_CHAIN[kind] <= value.keys()


class ClaudeCodeReader:
    """Reads Claude Code transcripts of a session or of one of its subagents."""

    name: Final = "claude-code"
    revision: Final = 2
    in_parts: Final = True

    def matches(self, head: bytes) -> bool:
        """Say whether one of the first objects in *head* is a line that Claude Code writes."""
        return any_object(head, is_record)

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """See :meth:`autocode.jobs.sessions.base.Reader.read`."""
        return begin(self, _Session, stream, state)


class _Session(Mapper):
    def __init__(self, report: Report, saved: Saved | None) -> None:
        super().__init__(report, saved)
        self._titles = Titles()
        self._head: dict[str, Any] | None = None
        self._known: dict[str, Any] = {}
        if saved is not None:
            self._head = saved.texts["head"]
            self._known = _without_none(self._head)
            self._titles.restore(saved.texts["titles"], saved.facts["titles"])

    def texts(self) -> dict[str, Any]:
        return {"head": self._head, "titles": self._titles.texts()}

    def facts(self) -> dict[str, Any]:
        return {"titles": self._titles.keys()}

    def records(self, stream: BinaryIO) -> Iterator[Record]:
        found = objects(segments(stream, self._report), self._report, is_record)
        if self._is_first:
            head, found = split_head(found, _completes_head, self._report)
            yield self._session(head)
        for item in found:
            yield from self._records(item)
        self._report.title = self._titles.best(self._identities)

    def _session(self, head: list[Found]) -> Record:
        values = [item.value for item in head if isinstance(item.value, dict)]
        first: dict[str, Any] = {}
        for value in values:
            for key, name in _SESSION_FIELDS.items():
                if isinstance(value.get(key), str):
                    first.setdefault(name, value[key])
        if not any(value.get("isSidechain") is True for value in values):
            first.pop("agent_id", None)
        times = (normalise(value.get("timestamp")) for value in values)
        record = self.session(next(filter(None, times), None))
        record |= {
            "parent_session_id": first.get("session_id") if "agent_id" in first else None,
            "model_provider": None,
        }
        record |= {name: first.get(name) for name in _SESSION_FIELDS.values()}
        self._head = {key: record[name] for key, name in _SESSION_FIELDS.items()}
        self._known = _without_none(self._head)
        self._report.session_id = record["session_id"]
        self._report.agent_id = record["agent_id"]
        self._report.parent_session_id = record["parent_session_id"]
        return record

    def _records(self, item: Found) -> Iterator[Record]:
        line = item.value
        if not isinstance(line, dict):
            yield self.unknown(item)
            return
        own, parent = line.get("uuid"), line.get("parentUuid")
        base = self._identities.claim(own, item.position, parent)
        at = self.time(line.get("timestamp"))
        self._saw_session(line.get("sessionId"))
        known = self._known
        rest = {
            key: value
            for key, value in line.items()
            if key not in _COMMON and (key not in known or known[key] != value)
        }
        sidechain = line.get("isSidechain", False)
        if not isinstance(sidechain, bool):
            rest["isSidechain"] = sidechain
        if own is not None and base != own:
            rest["uuid"] = own
        if parent is not None and not isinstance(parent, str):
            rest["parentUuid"] = parent
            parent = None
        for index, (kind, fields) in enumerate(self._drafts(line, rest)):
            record_id = self._identities.part(base, item.position, index)
            record = self._recorder.make(kind, record_id, at, parent, item)
            if at is None and line.get("timestamp") is not None:
                record["raw_at"] = line["timestamp"]
            if sidechain is True:
                record["sidechain"] = True
            record |= fields
            self.link(record)
            yield record

    def _drafts(self, line: dict[str, Any], rest: dict[str, Any]) -> list[Draft]:
        kind = word(line.get("type"))
        if kind in {"user", "assistant"}:
            return self._turn(line, rest) or self._unknown("unknown-shape", line)
        if kind == "system":
            return self._system(line, rest)
        if kind == "summary" and isinstance(line.get("summary"), str):
            return [self._summary(line, rest)]
        if kind in _EVENTS:
            self._saw_title(line)
            data = line.get("data")
            part = data.get("type") if kind == "progress" and isinstance(data, dict) else None
            return [("event", {"name": f"progress/{label(part)}" if part else kind, "data": rest})]
        return self._unknown("unknown-type", line)

    def _turn(self, line: dict[str, Any], rest: dict[str, Any]) -> list[Draft]:
        message = line.get("message")
        if not isinstance(message, dict):
            return []
        drafts = drafts_of(message, line["type"], self._report)
        if drafts:
            rest.pop("message", None)
            about = self._about(message, rest)
            if "extra" in about:
                about["extra"] = joined(drafts[0][1].get("extra", {}), about["extra"])
            drafts[0][1].update(about)
        return drafts

    def _about(self, message: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
        """Return what is said once about a message, for the first of its records."""
        fields: dict[str, Any] = {}
        for key, name in (("model", "model"), ("id", "message_id"), ("stop_reason", "stop_reason")):
            if isinstance(message.get(key), str):
                fields[name] = message[key]
        if isinstance(rest.get("requestId"), str):
            fields["request_id"] = rest.pop("requestId")
        more = {
            key: value
            for key, value in message.items()
            if key not in {"role", "content", "usage"}
            and not (key in {"model", "id", "stop_reason"} and isinstance(value, str))
            and not (key == "type" and value == "message")
            and value is not None
        }
        usage = message.get("usage")
        if isinstance(usage, dict):
            fields["usage"] = {name: count_of(usage.get(key)) for key, name in _USAGE.items()}
            self._count(fields)
            more["usage"] = {
                key: value for key, value in usage.items() if key not in _USAGE or count_of(value) != value
            }
        elif usage is not None:
            more["usage"] = usage
        if more:
            rest["message"] = more
        if rest:
            fields["extra"] = rest
        return fields

    def _count(self, fields: dict[str, Any]) -> None:
        message, request = fields.get("message_id"), fields.get("request_id")
        self._totals.add(fields["usage"], (message, request or "") if message else None)
        model = fields.get("model")
        if model and model != "<synthetic>":
            self._report.saw_model(label(model))

    def _system(self, line: dict[str, Any], rest: dict[str, Any]) -> list[Draft]:
        subtype = line.get("subtype")
        if word(subtype) not in {"compact_boundary", "microcompact_boundary"}:
            return [("event", {"name": f"system/{label(subtype)}", "data": rest})]
        about = rest.get("compactMetadata")
        about = about if isinstance(about, dict) else {}
        tokens = about.get("preTokens")
        fields = {
            "trigger": about["trigger"] if isinstance(about.get("trigger"), str) else None,
            "tokens_before": tokens if type(tokens) is int else None,
            "text": rest.pop("content") if isinstance(rest.get("content"), str) else None,
            "held": None,
            "extra": rest,
        }
        return [("compaction", fields)]

    def _summary(self, line: dict[str, Any], rest: dict[str, Any]) -> Draft:
        leaf = line.get("leafUuid")
        fields: dict[str, Any] = {"text": rest.pop("summary"), "leaf": None}
        if isinstance(leaf, str):
            fields["leaf"] = rest.pop("leafUuid")
            self._titles.summarised(leaf, fields["text"])
        if rest:
            fields["extra"] = rest
        return "summary", fields

    def _unknown(self, reason: str, line: dict[str, Any]) -> list[Draft]:
        self._report.lose(f"{reason}:{label(line.get('type'))}")
        name = line.get("type")
        return [("unknown", {"name": name if isinstance(name, str) else None, "data": line})]

    def _saw_session(self, session_id: object) -> None:
        # Old versions copied the resumed session's lines with its id; the running one writes its own last.
        report = self._report
        if isinstance(session_id, str) and session_id != report.session_id:
            if report.agent_id is None and report.parent_session_id is None:
                report.parent_session_id = report.session_id
            report.session_id = session_id

    def _saw_title(self, line: dict[str, Any]) -> None:
        key = _TITLES.get(line["type"])
        title = line.get(key) if key else None
        if isinstance(title, str):
            self._titles.given(line["type"], title)


def _without_none(head: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (head or {}).items() if value is not None}


def _completes_head(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("sessionId"), str) and "cwd" in value
