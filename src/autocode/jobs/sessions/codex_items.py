"""The items of a Codex rollout: what went to the model and came back, to records and parts of records."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from autocode.jobs.sessions.base import Report, label, word
from autocode.jobs.sessions.jsonvalue import loads

__all__ = ["ITEMS", "drafts_of"]

_Draft = tuple[str, dict[str, Any]]

_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_CALLS: Final = {
    "custom_tool_call": "input",
    "function_call": "arguments",
    "image_generation_call": "action",
    "local_shell_call": "action",
    "tool_search_call": "arguments",
    "web_search_call": "action",
}
_OUTPUTS: Final = {
    "custom_tool_call_output": "output",
    "function_call_output": "output",
    "tool_search_output": "tools",
}
_EVENTS: Final = frozenset({"agent_message", "additional_tools", "ghost_snapshot"})
_COMPACTIONS: Final = frozenset({"compaction", "compaction_summary", "context_compaction"})

ITEMS: Final = frozenset({"message", "reasoning"}) | _CALLS.keys() | _OUTPUTS.keys() | _EVENTS | _COMPACTIONS
"""Types of items that are understood."""

_DATA_URL: Final = re.compile(r"data:([a-z0-9.+/-]{1,100});base64,")


def drafts_of(item: dict[str, Any], report: Report) -> list[_Draft]:
    """Return the record of an item, without number and id; none where the item isn't understood."""
    kind = word(item.get("type"))
    if kind == "message":
        return _message(item, report)
    if kind in ITEMS:
        return [_standing_alone(kind, item, report)]
    return []


def _standing_alone(kind: str, item: dict[str, Any], report: Report) -> _Draft:
    if kind == "reasoning":
        return _reasoning(item, report)
    if kind in _CALLS:
        return _call(kind, item)
    if kind in _OUTPUTS:
        return _output(kind, item, report)
    if kind in _COMPACTIONS:
        return _compaction(item, report)
    return "event", {"name": f"response_item/{kind}", "data": item}


def _message(item: dict[str, Any], report: Report) -> list[_Draft]:
    role, content = item.get("role"), item.get("content")
    if word(role) not in _ROLES or not isinstance(content, str | list):
        return []
    fields = {"role": role, "content": _parts(content, report)}
    return [("message", _with_rest(fields, item, "role", "content"))]


def _reasoning(item: dict[str, Any], report: Report) -> _Draft:
    encrypted = item.get("encrypted_content") is not None
    report.lose("encrypted-thinking", int(encrypted))
    full, summary = _texts(item.get("content")), _texts(item.get("summary"))
    used = ["encrypted_content"]
    if full is not None or item.get("content") is None:
        used.append("content")
    if summary is not None and not full:
        used.append("summary")
    text = "\n\n".join(full or summary or [])
    fields = {"text": text, "signed": False, "encrypted": encrypted}
    return "thinking", _with_rest(fields, item, *used)


def _texts(content: object) -> list[str] | None:
    """Return the texts of *content*, or ``None`` where it holds anything else."""
    if not isinstance(content, list):
        return None
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.keys() != {"type", "text"} or word(part["type"]) not in _TEXTS:
            return None
        if not isinstance(part["text"], str):
            return None
        texts.append(part["text"])
    return texts


def _call(kind: str, item: dict[str, Any]) -> _Draft:
    key = _CALLS[kind]
    value, name, call_id = item.get(key), item.get("name"), item.get("call_id")
    used = [key]
    if kind == "function_call" and isinstance(value, str):
        value = _arguments(value)
    if isinstance(name, str):
        used.append("name")
    if isinstance(call_id, str):
        used.append("call_id")
    fields = {
        "call_id": call_id if isinstance(call_id, str) else None,
        "name": name if isinstance(name, str) else kind.removesuffix("_call"),
        "input": value,
    }
    rest = _with_rest(fields, item, *used)
    if kind != "function_call":
        rest["extra"] = {"type": kind} | rest.get("extra", {})
    return "tool_call", rest


def _arguments(text: str) -> Any:
    """Return the object that is written in a string, or the string where it isn't exactly one."""
    if not text.lstrip(" \t\r\n").startswith("{"):
        return text
    changed: Counter[str] = Counter()
    try:
        value = loads(text.encode(), changed)
    except ValueError:
        return text
    return value if isinstance(value, dict) and not changed else text


def _output(kind: str, item: dict[str, Any], report: Report) -> _Draft:
    key = _OUTPUTS[kind]
    output, call_id = item.get(key), item.get("call_id")
    used = [key]
    is_error: bool | None = None
    if isinstance(output, dict) and output.keys() <= {"content", "success"} and "content" in output:
        success = output.get("success")
        is_error = not success if isinstance(success, bool) else None
        output = output["content"]
    if isinstance(call_id, str):
        used.append("call_id")
    fields = {
        "call_id": call_id if isinstance(call_id, str) else None,
        "call": None,
        "is_error": is_error,
        "content": _parts(output, report),
    }
    return "tool_result", _with_rest(fields, item, *used)


def _compaction(item: dict[str, Any], report: Report) -> _Draft:
    report.lose("encrypted-compaction", int(item.get("encrypted_content") is not None))
    fields = {"trigger": None, "tokens_before": None, "text": None, "held": None}
    return "compaction", _with_rest(fields, item, "encrypted_content")


def _parts(content: object, report: Report) -> list[dict[str, Any]]:
    if content is None:
        return []
    blocks = content if isinstance(content, list) else [content]
    return [_part(block, report) for block in blocks]


def _part(block: object, report: Report) -> dict[str, Any]:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(block, dict) and word(kind) in _TEXTS and isinstance(block.get("text"), str):
        part = {"type": "text", "text": block["text"]}
        rest = {key: value for key, value in block.items() if key not in {"type", "text"}}
        return part | ({"extra": rest} if rest else {})
    if isinstance(block, dict) and kind == "input_image" and isinstance(block.get("image_url"), str):
        rest = {key: value for key, value in block.items() if key not in {"type", "image_url"}}
        return _image(block["image_url"]) | ({"extra": rest} if rest else {})
    report.lose(f"unknown-part:{label(kind)}")
    return {"type": "unknown", "data": block}


def _image(url: str) -> dict[str, Any]:
    match = _DATA_URL.match(url)
    if match is None:
        return {"type": "image", "url": url}
    return {"type": "image", "media_type": match[1], "data": url[match.end() :]}


def _with_rest(fields: dict[str, Any], item: dict[str, Any], *used: str) -> dict[str, Any]:
    rest = {key: value for key, value in item.items() if key != "type" and key not in used}
    if rest:
        fields["extra"] = rest
    return fields
