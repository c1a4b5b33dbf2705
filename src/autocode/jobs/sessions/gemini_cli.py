"""Reader for Gemini CLI: ``~/.gemini/tmp/<project>/chats/session-<time>-<id>.json`` and ``.jsonl``.

At first a session was one pretty-printed document; later versions write the same fields and messages a line
each, with ``$set`` and ``$rewindTo`` between them (packages/core/src/services/chatRecordingService.ts).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, ClassVar, Final

from autocode.jobs.sessions.base import Reading, Record, Report, label, word
from autocode.jobs.sessions.document import Member
from autocode.jobs.sessions.document_mapping import (
    ROOT,
    DocumentMapper,
    Draft,
    Layout,
    Scope,
    rest_of,
    text_of,
    thinking,
)
from autocode.jobs.sessions.head import opened_document
from autocode.jobs.sessions.mapping import begin
from autocode.jobs.sessions.titles import is_title
from autocode.jobs.sessions.usage import count_of

__all__ = ["GeminiReader"]

_NOTICES: Final = frozenset({"info", "error", "warning"})
_OUTCOMES: Final = {"success": False, "error": True, "cancelled": None}
_CALL: Final = ("id", "name", "args", "timestamp", "result", "status")
_MESSAGE: Final = ("id", "timestamp", "type", "content", "toolCalls", "thoughts", "model")


class GeminiReader:
    """Reads sessions of Gemini CLI and of its subagents."""

    name: Final = "gemini-cli"
    revision: Final = 1
    in_parts: Final = False

    def matches(self, head: bytes) -> bool:
        """Say whether *head* begins with the fields that Gemini CLI begins a session with."""
        return opened_document(head).keys() >= {"sessionId", "projectHash"}

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """See :meth:`autocode.jobs.sessions.base.Reader.read`."""
        return begin(self, _Session, stream, state)


class _Session(DocumentMapper):
    layout: ClassVar[Layout] = {ROOT: {"messages": "messages"}, "messages": {}}

    def completes(self, fields: Mapping[str, Any]) -> bool:
        return "sessionId" in fields

    def recognises(self, place: str, value: Any) -> bool:
        return isinstance(value, dict) and (place == ROOT or "type" in value)

    def begin(self, scope: Scope) -> Iterator[Record]:
        fields = scope.fields
        session_id = text_of(fields.get("sessionId"))
        is_subagent = fields.get("kind") == "subagent"
        shown = {"session_id": session_id, "agent_id": session_id if is_subagent else None}
        used = ["startTime", *(["sessionId"] if session_id is not None else [])]
        yield self.head(scope, fields.get("startTime"), shown, used)
        self._saw_summary(fields)

    def finish(self, scope: Scope) -> Iterator[Record]:
        line = scope.header
        if line is None or scope.is_told or scope.waiting or not self._report.sessions:
            yield from super().finish(scope)
            self._saw_summary(scope.fields)
        elif "type" in line.fields and "id" in line.fields:
            yield from self.item(Member(ROOT, None, line.found))
        else:
            self._saw_summary(line.fields.get("$set"))
            known = next((name for name in ("$set", "$rewindTo") if name in line.fields), "fields")
            yield from self.tell(line.found, [Draft("event", {"name": known, "data": line.fields})])

    def item(self, item: Member) -> Iterator[Record]:
        message = item.found.value
        if not isinstance(message, dict):
            yield self.unknown(item.found)
            return
        kind = word(message.get("type"))
        about: dict[str, Any] = {"own": message.get("id"), "when": message.get("timestamp")}
        if kind in _NOTICES:
            data = rest_of(message, "id", "timestamp", "type")
            yield from self.tell(item.found, [Draft("event", {"name": kind, "data": data})], **about)
        elif kind in {"user", "gemini"}:
            drafts, extra = self._turn(message)
            yield from self.tell(item.found, drafts, extra=extra, **about)
        else:
            yield from self.not_understood(item.found, "unknown-type", message.get("type"), **about)

    def _turn(self, message: dict[str, Any]) -> tuple[list[Draft], dict[str, Any]]:
        extra = rest_of(message, *_MESSAGE)
        drafts, odd = _thoughts(message.get("thoughts"))
        if odd is not None:
            extra["thoughts"] = odd
        parts = _parts(message.get("content"), self._report)
        calls = message.get("toolCalls")
        calls = calls if isinstance(calls, list) else [] if calls is None else [calls]
        if parts or not (drafts or calls):
            role = "user" if message["type"] == "user" else "assistant"
            drafts.append(Draft("message", {"role": role, "content": parts}))
        for call in calls:
            drafts += _call(call, self._report)
        at = message.get("timestamp")
        if at is not None and not any(draft.when in (None, at) for draft in drafts):
            extra["timestamp"] = at
        self._about(message, drafts[0].fields, extra)
        return drafts, extra

    def _about(self, message: dict[str, Any], fields: dict[str, Any], extra: dict[str, Any]) -> None:
        model, tokens = message.get("model"), message.get("tokens")
        if isinstance(model, str):
            fields["model"] = model
            self._report.saw_model(label(model))
        elif model is not None:
            extra["model"] = model
        if isinstance(tokens, dict):
            fields["usage"] = usage = _usage(tokens)
            own = text_of(message.get("id"))
            self._totals.add(usage, (own, "") if own else None)

    def _saw_summary(self, fields: object) -> None:
        summary = fields.get("summary") if isinstance(fields, dict) else None
        if isinstance(summary, str) and is_title(summary):
            self._report.title = summary


def _usage(tokens: dict[str, Any]) -> dict[str, int]:
    counts = {name: count_of(value) for name, value in tokens.items()}
    cached = counts.get("cached", 0)
    return {
        # The prompt's count includes what came from the cache; what tools added to it is counted apart.
        "input": max(0, counts.get("input", 0) - cached) + counts.get("tool", 0),
        "output": counts.get("output", 0) + counts.get("thoughts", 0),
        "cache_read": cached,
        "cache_write": 0,
    }


def _thoughts(thoughts: object) -> tuple[list[Draft], object]:
    """Return a record for each thought, and what is none."""
    drafts: list[Draft] = []
    odd: list[object] = []
    if not isinstance(thoughts, list):
        return drafts, thoughts
    for thought in thoughts:
        texts = [thought.get(key) for key in ("subject", "description")] if isinstance(thought, dict) else []
        if not texts or not all(isinstance(text, str) for text in texts):
            odd.append(thought)
            continue
        fields = thinking("\n\n".join(filter(None, texts)))
        if rest := rest_of(thought, "subject", "description", "timestamp"):
            fields["extra"] = rest
        drafts.append(Draft("thinking", fields, thought.get("timestamp")))
    return drafts, odd or None


def _call(call: object, report: Report) -> list[Draft]:
    """Return a tool call and what came of it."""
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        report.lose(f"unknown-shape:{label('toolCall')}")
        return [Draft("unknown", {"name": "toolCall", "data": call})]
    call_id, status = text_of(call.get("id")), call.get("status")
    fields: dict[str, Any] = {"call_id": call_id, "name": call["name"], "input": call.get("args")}
    rest = rest_of(call, *_CALL)
    if call_id is None and call.get("id") is not None:
        rest["id"] = call["id"]
    is_over = word(status) in _OUTCOMES or call.get("result") is not None
    if status is not None and not is_over:
        rest["status"] = status
    if rest:
        fields["extra"] = rest
    drafts = [Draft("tool_call", fields, call.get("timestamp"))]
    if is_over:
        drafts.append(Draft("tool_result", _result(call, call_id, report), call.get("timestamp")))
    return drafts


def _result(call: dict[str, Any], call_id: str | None, report: Report) -> dict[str, Any]:
    status = word(call.get("status"))
    content = _parts(call.get("result"), report, call)
    fields: dict[str, Any] = {
        "call_id": call_id,
        "call": None,
        "is_error": _OUTCOMES.get(status),
        "content": content,
    }
    if call.get("status") is not None and status not in {"success", "error"}:
        fields["extra"] = {"status": call["status"]}
    return fields


def _parts(content: object, report: Report, call: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return what Gemini calls a list of parts, or one part, or a text; an empty text has none."""
    if content is None or content == "":
        return []
    blocks = content if isinstance(content, list) else [content]
    return [_part(block, report, call or {}) for block in blocks]


def _part(block: object, report: Report, call: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if isinstance(block, dict):
        for name, made in _MAKERS.items():
            part = made(block[name], call) if name in block else None
            if part is not None:
                rest = rest_of(block, name)
                return part | {"extra": part.get("extra", {}) | rest} if rest else part
    report.lose(f"unknown-part:{label(next(iter(block), '') if isinstance(block, dict) else block)}")
    return {"type": "unknown", "data": block}


def _text(value: Any, _: Mapping[str, Any]) -> dict[str, Any] | None:
    return {"type": "text", "text": value} if isinstance(value, str) else None


def _inline(value: Any, _: Mapping[str, Any]) -> dict[str, Any] | None:
    if not isinstance(value, dict) or not isinstance(value.get("data"), str):
        return None
    if not word(value.get("mimeType")).startswith("image/"):
        return {"type": "document", "data": {"inlineData": value}}
    part = {"type": "image", "media_type": value["mimeType"], "data": value["data"]}
    rest = rest_of(value, "mimeType", "data")
    return part | {"extra": {"inlineData": rest}} if rest else part


def _file(value: Any, _: Mapping[str, Any]) -> dict[str, Any] | None:
    if not isinstance(value, dict) or not isinstance(value.get("fileUri"), str):
        return None
    if not word(value.get("mimeType")).startswith("image/"):
        return {"type": "document", "data": {"fileData": value}}
    return {"type": "image", "url": value["fileUri"], "extra": {"fileData": rest_of(value, "fileUri")}}


def _response(value: Any, call: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a tool's answer; its id and name are left out where they are the call's."""
    if not isinstance(value, dict) or not isinstance(value.get("response"), dict):
        return None
    response = value["response"]
    only = next(iter(response.values())) if len(response) == 1 else None
    is_text = isinstance(only, str) and response.keys() <= {"output", "error"}
    part = {"type": "text", "text": only} if is_text else {"type": "document", "data": response}
    rest = {
        key: item
        for key, item in value.items()
        if key != "response" and item is not None and call.get(key) != item
    }
    if is_text and "error" in response:
        rest["is_error"] = True
    return part | {"extra": {"functionResponse": rest}} if rest else part


_MAKERS: Final = {"text": _text, "inlineData": _inline, "fileData": _file, "functionResponse": _response}
