"""Reader for Codex CLI rollouts: ``sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`` and ``archived_sessions``.

Every line is ``{timestamp, type, payload}``; what the model saw is in ``response_item``, and ``event_msg``
tells parts of it a second time for the terminal (codex-rs/protocol/src/protocol.rs, ``RolloutItem``).
The first versions wrote the payload of ``response_item`` bare; those lines are read too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from autocode.jobs.canonical import canonical_json
from autocode.jobs.sessions.base import Found, Reading, Record, Report, label, word
from autocode.jobs.sessions.codex_items import ITEMS, drafts_of
from autocode.jobs.sessions.head import any_object, split_head
from autocode.jobs.sessions.lines import segments
from autocode.jobs.sessions.mapping import Mapper, begin
from autocode.jobs.sessions.recovery import objects
from autocode.jobs.sessions.state import Saved
from autocode.jobs.sessions.times import normalise
from autocode.jobs.sessions.titles import is_title
from autocode.jobs.sessions.usage import KINDS, count_of

__all__ = ["CodexReader", "is_record"]

_LINES: Final = frozenset({
    "compacted", "event_msg", "inter_agent_communication", "response_item", "session_meta",
    "token_usage_record", "turn_context", "world_state",
})  # fmt: skip
_FIRST_META: Final = frozenset({"id", "instructions", "timestamp"})
_META: Final = {"cwd": "cwd", "cli_version": "tool_version", "model_provider": "model_provider"}


def is_record(value: dict[str, Any]) -> bool:
    """Say whether *value* is a line of a rollout, by its keys."""
    kind = value.get("type")
    if isinstance(kind, str) and kind in _LINES:
        return "payload" in value and "timestamp" in value
    return "type" not in value and value.keys() >= _FIRST_META


class CodexReader:
    """Reads rollouts of the Codex CLI, its editor plug-ins and its desktop program."""

    name: Final = "codex"
    revision: Final = 2
    in_parts: Final = True

    def matches(self, head: bytes) -> bool:
        """Say whether one of the first objects in *head* is a line of a rollout."""
        return any_object(head, is_record)

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """See :meth:`autocode.jobs.sessions.base.Reader.read`."""
        return begin(self, _Rollout, stream, state)


class _Rollout(Mapper):
    def __init__(self, report: Report, saved: Saved | None) -> None:
        super().__init__(report, saved)
        self._counted: dict[str, int] = saved.facts["counted"] if saved else dict.fromkeys(KINDS, 0)

    def facts(self) -> dict[str, Any]:
        return {"counted": self._counted}

    def records(self, stream: BinaryIO) -> Iterator[Record]:
        found = objects(segments(stream, self._report), self._report, is_record)
        if self._is_first:
            head, found = split_head(found, lambda value: _meta_of(value) is not None, self._report)
            yield self._session(_meta_of(head[-1].value) if head else None)
        for item in found:
            yield from self._records(item)

    def _session(self, meta: dict[str, Any] | None) -> Record:
        meta = meta or {}
        git = _object(meta.get("git"))
        parent = _text(meta.get("forked_from_id"))
        subagent = _object(meta.get("source")).get("subagent")
        if parent is None:
            spawn = _object(_object(subagent).get("thread_spawn"))
            parent = _text(spawn.get("parent_thread_id"))
        session_id = _text(meta.get("id"))
        record = self.session(normalise(meta.get("timestamp")))
        record |= {
            "session_id": session_id,
            "agent_id": session_id if subagent is not None else None,
            "parent_session_id": parent,
            "git_branch": _text(git.get("branch")),
            "git_commit": _text(git.get("commit_hash")),
            "git_remote": _text(git.get("repository_url")),
            "client": _text(meta.get("originator")),
        }
        record |= {name: _text(meta.get(key)) for key, name in _META.items()}
        self._report.session_id = session_id
        self._report.agent_id = record["agent_id"]
        self._report.parent_session_id = parent
        return record

    def _records(self, item: Found) -> Iterator[Record]:
        line = item.value
        if not isinstance(line, dict):
            yield self.unknown(item)
            return
        at = self.time(line.get("timestamp"))
        kind, payload, rest = _opened(line)
        own = payload.get("id") if kind == "response_item" and isinstance(payload, dict) else None
        base = self._identities.claim(own, item.position)
        if own is not None and base == own:
            payload = {key: value for key, value in payload.items() if key != "id"}
        for index, (type_, fields) in enumerate(self._drafts(kind, payload, line)):
            record_id = self._identities.part(base, item.position, index)
            record = self._recorder.make(type_, record_id, at, None, item)
            if at is None and line.get("timestamp") is not None:
                record["raw_at"] = line["timestamp"]
            record |= fields
            if rest and type_ != "unknown":
                record["line"] = rest
            self.link(record)
            yield record

    def _drafts(self, kind: str, payload: Any, line: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        if not isinstance(payload, dict):
            return self._unknown("unknown-shape" if kind in _LINES else "unknown-type", kind, line)
        if kind == "response_item":
            drafts = drafts_of(payload, self._report)
            return drafts or self._unknown(
                "unknown-type", f"response_item/{label(payload.get('type'))}", line
            )
        if kind == "compacted":
            return [("compaction", self._compaction(payload))]
        if kind == "event_msg":
            return [("event", self._event(payload))]
        if kind == "turn_context" and isinstance(payload.get("model"), str):
            self._report.saw_model(label(payload["model"]))
        if kind in _LINES:
            return [("event", {"name": kind, "data": payload})]
        return self._unknown("unknown-type", kind, line)

    def _event(self, payload: dict[str, Any]) -> dict[str, Any]:
        name = payload.get("type")
        fields: dict[str, Any] = {"name": f"event_msg/{label(name)}", "data": payload}
        if name == "token_count":
            info = _object(payload.get("info"))
            self._count(_object(info.get("total_token_usage")))
            if isinstance(info.get("last_token_usage"), dict):
                fields["usage"] = _usage(info["last_token_usage"])
        elif name == "thread_name_updated":
            title = payload.get("thread_name")
            if isinstance(title, str) and is_title(title):
                self._report.title = title
        return fields

    def _count(self, total: dict[str, Any]) -> None:
        """Add what a running total has grown by; one that shrank began anew."""
        if not total:
            return
        counts = _usage(total)
        grown = {kind: counts[kind] - self._counted[kind] for kind in KINDS}
        self._totals.add(counts if min(grown.values()) < 0 else grown)
        self._counted = counts

    def _compaction(self, payload: dict[str, Any]) -> dict[str, Any]:
        rest = dict(payload)
        fields: dict[str, Any] = {"trigger": None, "tokens_before": None, "text": None, "held": None}
        if isinstance(rest.get("message"), str):
            fields["text"] = rest.pop("message")
        history = rest.get("replacement_history")
        if isinstance(history, list):
            digest = hashlib.sha256()
            for entry in history:
                digest.update(canonical_json(entry) + b"\n")
            del rest["replacement_history"]
            fields["held"] = {"items": len(history), "sha256": "sha256:" + digest.hexdigest()}
            self._report.lose("replacement-history", len(history))
        if rest:
            fields["extra"] = rest
        return fields

    def _unknown(self, reason: str, kind: str, line: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        self._report.lose(f"{reason}:{label(kind or line.get('type'))}")
        return [("unknown", {"name": kind or None, "data": line})]


def _opened(line: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """Return the type, the payload and the other fields of a line, whichever version wrote it."""
    kind = word(line.get("type"))
    if "payload" in line or kind in _LINES:
        rest = {key: value for key, value in line.items() if key not in {"timestamp", "type", "payload"}}
        return kind, line.get("payload"), rest
    if kind in ITEMS:
        return "response_item", {key: value for key, value in line.items() if key != "timestamp"}, {}
    if "type" not in line and _meta_of(line) is not None:
        return "session_meta", line, {}
    return kind, None, {}


def _meta_of(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    if value.get("type") == "session_meta" and isinstance(value.get("payload"), dict):
        payload: dict[str, Any] = value["payload"]
        return payload
    return value if "type" not in value and value.keys() >= _FIRST_META else None


def _usage(counts: dict[str, Any]) -> dict[str, int]:
    cached = count_of(counts.get("cached_input_tokens"))
    return {
        "input": max(0, count_of(counts.get("input_tokens")) - cached),
        "output": count_of(counts.get("output_tokens")),
        "cache_read": cached,
        "cache_write": 0,
    }


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
