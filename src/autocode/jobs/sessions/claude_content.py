"""The content of a Claude Code message: blocks of the Messages API to records and parts of records."""

from __future__ import annotations

from typing import Any, Final

from autocode.jobs.sessions.base import Report, label, word

__all__ = ["Draft", "drafts_of", "parts_of"]

Draft = tuple[str, dict[str, Any]]
"""Type and own fields of a record that has neither number nor id yet."""

_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


def drafts_of(message: dict[str, Any], kind: str, report: Report) -> list[Draft]:
    """Return the records of a message, in the order of its blocks; none where it has no known shape.

    Neighbouring texts and images form one ``message``; thinking, tool calls and tool results stand alone.
    """
    content = message.get("content")
    role = message.get("role", kind)
    if word(role) not in _ROLES:
        return []
    if isinstance(content, str):
        return [_message(role, [_text(content)])]
    if not isinstance(content, list):
        return []
    drafts: list[Draft] = []
    for block in content:
        draft = _standing_alone(block, report)
        if draft is not None:
            drafts.append(draft)
            continue
        part = _part(block, report)
        if drafts and drafts[-1][0] == "message":
            drafts[-1][1]["content"].append(part)
        else:
            drafts.append(_message(role, [part]))
    return drafts or [_message(role, [])]


def parts_of(content: object, report: Report) -> list[dict[str, Any]]:
    """Return what a tool answered as parts: a text, or each block of a list."""
    if content is None:
        return []
    if isinstance(content, str):
        return [_text(content)]
    blocks = content if isinstance(content, list) else [content]
    return [_text(block) if isinstance(block, str) else _part(block, report) for block in blocks]


def _message(role: str, parts: list[dict[str, Any]]) -> Draft:
    return "message", {"role": role, "content": parts}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _with_rest(fields: dict[str, Any], block: dict[str, Any], *used: str) -> dict[str, Any]:
    rest = {key: value for key, value in block.items() if key not in used}
    if rest:
        fields["extra"] = rest
    return fields


def _standing_alone(block: Any, report: Report) -> Draft | None:
    if not isinstance(block, dict):
        return None
    kind = word(block.get("type"))
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        signed = block.get("signature") not in {None, ""} if _is_scalar(block.get("signature")) else True
        report.lose("thinking-signature", int(signed))
        fields = {"text": block["thinking"], "signed": signed, "encrypted": False}
        return "thinking", _with_rest(fields, block, "type", "thinking", "signature")
    if kind == "redacted_thinking":
        report.lose("encrypted-thinking")
        fields = {"text": "", "signed": False, "encrypted": True}
        return "thinking", _with_rest(fields, block, "type", "data")
    if kind in _CALLS and isinstance(block.get("name"), str) and _is_call_id(block.get("id")):
        fields = {"call_id": block.get("id"), "name": block["name"], "input": block.get("input")}
        return "tool_call", _with_rest(fields, block, "id", "name", "input", *_plain_type(kind, "tool_use"))
    if kind.endswith("tool_result") and _is_call_id(block.get("tool_use_id")):
        return "tool_result", _result(kind, block, report)
    return None


def _result(kind: str, block: dict[str, Any], report: Report) -> dict[str, Any]:
    is_error = block.get("is_error", False)
    used = ["tool_use_id", "content", *_plain_type(kind, "tool_result")]
    if isinstance(is_error, bool) or is_error is None:
        used.append("is_error")
    fields = {
        "call_id": block.get("tool_use_id"),
        "call": None,
        "is_error": is_error if isinstance(is_error, bool) else None,
        "content": parts_of(block.get("content"), report),
    }
    return _with_rest(fields, block, *used)


def _plain_type(kind: str, plain: str) -> tuple[str, ...]:
    """A type that says more than the record's own stays with the rest of the block."""
    return ("type",) if kind == plain else ()


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_call_id(value: object) -> bool:
    return value is None or isinstance(value, str)


def _part(block: Any, report: Report) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text" and isinstance(block.get("text"), str):
        return _with_rest(_text(block["text"]), block, "type", "text")
    if kind == "image" and isinstance(block.get("source"), dict):
        image = _image(block["source"])
        if image is not None:
            return _with_rest(image, block, "type", "source")
    if kind == "document":
        return {"type": "document", "data": block}
    report.lose(f"unknown-part:{label(kind)}")
    return {"type": "unknown", "data": block}


def _image(source: dict[str, Any]) -> dict[str, Any] | None:
    if source.keys() == {"type", "media_type", "data"} and isinstance(source["data"], str):
        return {"type": "image", "media_type": source["media_type"], "data": source["data"]}
    if source.keys() == {"type", "url"} and isinstance(source["url"], str):
        return {"type": "image", "url": source["url"]}
    return None
