"""The history of SWE-agent and mini-SWE-agent: entries of a conversation to records.

An entry is a message of the chat completions API with what SWE-agent adds to it (sweagent/types.py,
``_HistoryItem``). Without function calling, the command is in ``action``, and the next entry of the user is
what it printed.
"""

from __future__ import annotations

from typing import Any, Final

from autocode.jobs.sessions.base import Report, word
from autocode.jobs.sessions.completions import (
    ROLES,
    Draft,
    calls_of,
    parts_of,
    thoughts_of,
    usage_of,
    without_repeats,
)
from autocode.jobs.sessions.mapping import joined

__all__ = ["ACTION", "drafts_of", "is_entry"]

ACTION: Final = "action"
"""Name of a tool call that is written in the text of an answer: a command for SWE-agent's shell."""

_KINDS: Final = ROLES | {"tool", "exit"}


def is_entry(value: object) -> bool:
    """Say whether *value* looks like an entry of a history."""
    return isinstance(value, dict) and word(value.get("role")) in _KINDS and "content" in value


def drafts_of(entry: dict[str, Any], report: Report, *, is_answer: bool) -> list[Draft]:
    """Return the records of an entry; none where it has no known shape.

    Args:
        entry: the entry.
        report: gets losses.
        is_answer: whether the entry before was a command without function calling.
    """
    role, content = word(entry.get("role")), entry.get("content")
    if not is_entry(entry) or not isinstance(content, str | list | None):
        return []
    if role == "exit":
        return [("event", {"name": "exit", "data": entry})]
    rest = {key: value for key, value in entry.items() if key not in {"role", "content", "timestamp"}}
    if role == "tool":
        return [_result(content, rest, report)]
    if role == "user" and is_answer and rest.get("message_type") in {None, "observation"}:
        return [_result(content, rest, report)]
    return _turn(entry, rest, report)


def _result(content: object, rest: dict[str, Any], report: Report) -> Draft:
    call_id = rest.get("tool_call_id")
    if isinstance(call_id, str):
        del rest["tool_call_id"]
    ids = rest.get("tool_call_ids")
    if isinstance(ids, list) and len(ids) == 1 and isinstance(ids[0], str):
        call_id = ids[0]
        del rest["tool_call_ids"]
    fields: dict[str, Any] = {
        "call_id": call_id if isinstance(call_id, str) else None,
        "call": None,
        "is_error": None,
        "content": parts_of(content, report),
    }
    return "tool_result", fields | ({"extra": rest} if rest else {})


def _turn(entry: dict[str, Any], rest: dict[str, Any], report: Report) -> list[Draft]:
    drafts: list[Draft] = []
    thoughts = thoughts_of(rest.get("thinking_blocks"), report)
    if thoughts is not None:
        del rest["thinking_blocks"]
        drafts += thoughts
    if "thought" in rest and rest["thought"] == entry["content"]:
        del rest["thought"]
    calls = calls_of(rest.get("tool_calls"))
    if calls is not None:
        del rest["tool_calls"]
    if entry["content"] or not (drafts or calls):
        fields = {"role": entry["role"], "content": parts_of(entry["content"], report)}
        drafts.append(("message", fields))
    drafts += [("tool_call", fields) for fields in calls or []]
    is_command = entry["role"] == "assistant" and rest.get("message_type") in {None, "action"}
    if is_command and not calls and isinstance(rest.get("action"), str):
        drafts.append(("tool_call", {"call_id": None, "name": ACTION, "input": rest.pop("action")}))
    _tell(drafts[0][1], entry, rest)
    return drafts


def _tell(fields: dict[str, Any], entry: dict[str, Any], rest: dict[str, Any]) -> None:
    """Add what is said once about an entry to the first of its records."""
    extra = rest.get("extra")
    response = extra.get("response") if isinstance(extra, dict) else None
    if isinstance(extra, dict) and isinstance(response, dict):
        for key, name in (("model", "model"), ("id", "message_id")):
            if isinstance(response.get(key), str):
                fields[name] = response[key]
        usage = usage_of(response.get("usage"))
        if usage is not None:
            fields["usage"] = usage
        rest["extra"] = extra | {"response": without_repeats(response, entry)}
    if rest:
        fields["extra"] = joined(fields.get("extra", {}), rest)
