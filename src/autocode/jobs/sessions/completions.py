"""Messages of the chat completions API, which several agents keep as they were sent and received.

https://platform.openai.com/docs/api-reference/chat; litellm gives answers of other providers the same form.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any, Final

from autocode.jobs.canonical import canonical_json
from autocode.jobs.sessions.base import Report, label, word
from autocode.jobs.sessions.jsonvalue import loads
from autocode.jobs.sessions.usage import count_of

__all__ = [
    "ROLES",
    "Draft",
    "arguments_of",
    "calls_of",
    "held_of",
    "parts_of",
    "thoughts_of",
    "usage_of",
    "without_repeats",
]

Draft = tuple[str, dict[str, Any]]
"""Type and own fields of a record that has neither number nor id yet."""

ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
"""Roles that a message may have."""

_DATA: Final = "data:"
_BASE64: Final = ";base64,"


def parts_of(content: object, report: Report) -> list[dict[str, Any]]:
    """Return a message's content as parts: its text, or each block of a list."""
    if content is None:
        return []
    blocks = content if isinstance(content, list) else [content]
    return [_part(block, report) for block in blocks]


def _part(block: object, report: Report) -> dict[str, Any]:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = word(block.get("type")) if isinstance(block, dict) else ""
    if isinstance(block, dict) and kind == "text" and isinstance(block.get("text"), str):
        return _with_rest({"type": "text", "text": block["text"]}, block, "type", "text")
    if isinstance(block, dict) and kind == "image_url":
        image = block.get("image_url")
        if isinstance(image, dict) and image.keys() == {"url"}:
            image = image["url"]
        if isinstance(image, str):
            return _with_rest(_image(image), block, "type", "image_url")
    report.lose(f"unknown-part:{label(kind or block)}")
    return {"type": "unknown", "data": block}


def _image(url: str) -> dict[str, Any]:
    head, mark, _ = url[:200].partition(_BASE64)
    if mark and head.startswith(_DATA):
        return {"type": "image", "media_type": head[len(_DATA) :], "data": url[len(head + mark) :]}
    return {"type": "image", "url": url}


def _with_rest(fields: dict[str, Any], block: dict[str, Any], *used: str) -> dict[str, Any]:
    rest = {key: value for key, value in block.items() if key not in used}
    return fields | ({"extra": rest} if rest else {})


def calls_of(calls: object) -> list[dict[str, Any]] | None:
    """Return the fields of a tool call record for each of a message's ``tool_calls``.

    ``None`` where one of them has no known shape: then all stay where they are.
    """
    if not isinstance(calls, list):
        return None
    found = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return None
        call_id = call.get("id")
        if call_id is not None and not isinstance(call_id, str):
            return None
        rest = {key: value for key, value in call.items() if key not in {"function", "id"}}
        if rest.get("type") == "function":
            del rest["type"]
        more = {key: value for key, value in function.items() if key not in {"name", "arguments"}}
        rest |= {"function": more} if more else {}
        fields = {
            "call_id": call_id,
            "name": function["name"],
            "input": arguments_of(function.get("arguments")),
        }
        found.append(fields | ({"extra": rest} if rest else {}))
    return found


def arguments_of(value: object) -> Any:
    """Return the object that is written in a string, or *value* where it isn't exactly one."""
    if not isinstance(value, str):
        return value
    changed: Counter[str] = Counter()
    try:
        found = loads(value.encode(), changed)
    except ValueError:
        return value
    return found if isinstance(found, dict) and not changed else value


def thoughts_of(blocks: object, report: Report) -> list[Draft] | None:
    """Return a thinking record for each of *blocks*; ``None`` where one has no known shape."""
    if not isinstance(blocks, list):
        return None
    drafts: list[Draft] = []
    for block in blocks:
        kind = word(block.get("type")) if isinstance(block, dict) else ""
        if kind == "thinking" and isinstance(block.get("thinking"), str):
            signed = bool(block.get("signature"))
            fields = {"text": block["thinking"], "signed": signed, "encrypted": False}
            drafts.append(("thinking", _with_rest(fields, block, "type", "thinking", "signature")))
        elif kind == "redacted_thinking":
            fields = {"text": "", "signed": False, "encrypted": True}
            drafts.append(("thinking", _with_rest(fields, block, "type", "data")))
        else:
            return None
    for _, fields in drafts:
        report.lose("thinking-signature", int(fields["signed"]))
        report.lose("encrypted-thinking", int(fields["encrypted"]))
    return drafts


def usage_of(usage: object) -> dict[str, int] | None:
    """Return the counts of an answer's ``usage``; ``None`` where it isn't one.

    ``prompt_tokens`` include those that were read from a cache or written to one: they are taken off.
    """
    if not isinstance(usage, dict) or not isinstance(usage.get("prompt_tokens"), int):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    read = count_of(cached) or count_of(usage.get("cache_read_input_tokens"))
    written = count_of(usage.get("cache_creation_input_tokens"))
    return {
        "input": max(0, count_of(usage["prompt_tokens"]) - read - written),
        "output": count_of(usage.get("completion_tokens")),
        "cache_read": read,
        "cache_write": written,
    }


def held_of(entries: list[Any]) -> dict[str, Any]:
    """Return what stands for *entries* that are told elsewhere: how many they are, and a digest."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(canonical_json(entry) + b"\n")
    return {"items": len(entries), "sha256": "sha256:" + digest.hexdigest()}


def without_repeats(response: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """Return an API response without what its answer has in common with *message*, which tells it already."""
    choices = response.get("choices")
    if not isinstance(choices, list):
        return response
    left = []
    for choice in choices:
        answer = choice.get("message") if isinstance(choice, dict) else None
        if isinstance(answer, dict):
            rest = {
                k: v for k, v in answer.items() if v is not None and not (k in message and message[k] == v)
            }
            choice = choice | {"message": rest}  # noqa: PLW2901 - the list itself stays as it is
            if not rest:
                del choice["message"]
        left.append(choice)
    return response | {"choices": left}
