"""The events of OpenHands to records: an action is what was done, an observation what came of it.

Their forms are those of openhands/events (``action_from_dict``, ``observation_from_dict``). Where the model
called a function, ``tool_call_metadata`` has the call and the model's whole response, and the observation
repeats it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from autocode.jobs.canonical import canonical_json
from autocode.jobs.sessions.base import Report, label, word
from autocode.jobs.sessions.completions import (
    Draft,
    arguments_of,
    parts_of,
    thoughts_of,
    usage_of,
    without_repeats,
)

__all__ = ["Events", "is_event"]

_TOOLS: Final = frozenset({
    "browse", "browse_interactive", "call_tool_mcp", "delegate", "edit", "finish", "read", "reject", "run",
    "run_ipython", "task_tracking", "think", "write",
})  # fmt: skip
_ROLES: Final = {"user": "user", "agent": "assistant"}
_OF_ACTION: Final = frozenset({"timestamp", "action", "args", "tool_call_metadata"})
_OF_OBSERVATION: Final = frozenset({"timestamp", "observation", "content", "tool_call_metadata"})
_MAX_RESPONSES: Final = 10_000


def is_event(value: object) -> bool:
    """Say whether *value* looks like an event."""
    return isinstance(value, dict) and "source" in value and bool({"action", "observation"} & value.keys())


class Events:
    """Turns one event after another into records without number and id.

    Args:
        report: gets losses.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        # digests of the model's responses that were told, oldest first
        self._told: dict[bytes, None] = {}

    def drafts_of(self, event: dict[str, Any], *, is_answer: bool) -> list[Draft]:
        """Return the records of an event; none where it has no known shape.

        Args:
            event: the event, without its id where that has a place of its own.
            is_answer: whether the event that caused it is a tool call.
        """
        if isinstance(event.get("action"), str) and isinstance(event.get("args", {}), dict):
            return self._action(event)
        if isinstance(event.get("observation"), str):
            return self._observation(event, is_answer=is_answer)
        return []

    def _action(self, event: dict[str, Any]) -> list[Draft]:
        name, args, source = event["action"], dict(event.get("args", {})), word(event.get("source"))
        rest = {key: value for key, value in event.items() if key not in _OF_ACTION}
        role = "system" if name == "system" else _ROLES.get(source)
        if name in {"message", "system"} and role and isinstance(args.get("content"), str):
            return [self._message(role, args, rest | _metadata(event))]
        metadata = event.get("tool_call_metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("function_name"), str):
            return self._call(name, args, rest, metadata)
        if name in _TOOLS:
            return self._bare_call(name, args, rest | _metadata(event))
        if name == "condensation":
            summary = args.pop("summary", None) if isinstance(args.get("summary"), str) else None
            fields = {"trigger": None, "tokens_before": None, "text": summary, "held": None}
            return [("compaction", fields | {"extra": rest | {"args": args}})]
        return [("event", {"name": f"action/{label(name)}", "data": event})]

    def _message(self, role: str, args: dict[str, Any], rest: dict[str, Any]) -> Draft:
        text = args.pop("content")
        parts = parts_of(text, self._report)
        images = args.get("image_urls")
        if images is None or (isinstance(images, list) and all(isinstance(url, str) for url in images)):
            blocks = [{"type": "image_url", "image_url": url} for url in args.pop("image_urls", None) or []]
            parts += parts_of(blocks, self._report)
        if rest.get("message") == text:
            del rest["message"]
        if _ROLES.get(word(rest.get("source"))) == role:
            del rest["source"]
        rest |= {"args": args} if args else {}
        return "message", {"role": role, "content": parts} | ({"extra": rest} if rest else {})

    def _bare_call(self, name: str, args: dict[str, Any], rest: dict[str, Any]) -> list[Draft]:
        """Return a tool call that the program made of the model's text, with what the model said before."""
        drafts: list[Draft] = []
        thought = args.get("thought")
        if isinstance(thought, str) and thought and name != "think":
            drafts.append(_said([{"type": "text", "text": args.pop("thought")}]))
        _forget_display(rest, thought)
        fields = {"call_id": None, "name": name, "input": args}
        drafts.append(("tool_call", fields | ({"extra": rest} if rest else {})))
        return drafts

    def _call(
        self, name: str, args: dict[str, Any], rest: dict[str, Any], metadata: dict[str, Any]
    ) -> list[Draft]:
        about = {key: value for key, value in metadata.items() if key != "function_name"}
        call_id = about.pop("tool_call_id") if isinstance(about.get("tool_call_id"), str) else None
        answer = _answer(about.get("model_response"))
        given = _given(answer, call_id)
        drafts, facts = self._response(about, answer, call_id, args.get("thought") if name != "think" else "")
        said = next((fields["content"][0].get("text") for kind, fields in drafts if kind == "message"), None)
        thought = args.get("thought")
        if thought == "" or (thought is not None and thought in (said, (given or {}).get("thought"))):
            del args["thought"]
        _forget_display(rest, said)
        rest |= {"action": name} | ({"tool_call_metadata": about} if about else {})
        if given is not None and args and args != given:
            rest["args"] = args
        fields = {
            "call_id": call_id,
            "name": metadata["function_name"],
            "input": args if given is None else given,
            "extra": rest,
        }
        drafts.append(("tool_call", fields))
        drafts[0][1].update(facts)
        return drafts

    def _response(
        self, about: dict[str, Any], answer: dict[str, Any], call_id: str | None, thought: object
    ) -> tuple[list[Draft], dict[str, Any]]:
        """Return what the model said with a call, and facts about it; leave in *about* what isn't told so."""
        response = about.get("model_response")
        told: dict[str, Any] = {"role": "assistant", "content": answer.get("content")}
        drafts: list[Draft] = []
        facts: dict[str, Any] = {}
        if isinstance(response, dict) and self._is_told(response):
            del about["model_response"]
            self._report.lose("repeated-response")
            return [], {}
        if isinstance(response, dict):
            thoughts = thoughts_of(answer.get("thinking_blocks"), self._report)
            if thoughts is not None:
                told["thinking_blocks"] = answer["thinking_blocks"]
                drafts += thoughts
            if _is_plain(answer.get("tool_calls")) and _given(answer, call_id) is not None:
                told["tool_calls"] = answer["tool_calls"]
            facts = _facts(response)
            about["model_response"] = without_repeats(response, told)
        content = answer.get("content") or thought
        if isinstance(content, str | list) and content:
            drafts.append(_said(parts_of(content, self._report)))
        return drafts, facts

    def _is_told(self, response: dict[str, Any]) -> bool:
        digest = hashlib.sha256(canonical_json(response)).digest()
        if digest in self._told:
            return True
        self._told[digest] = None
        if len(self._told) > _MAX_RESPONSES:
            del self._told[next(iter(self._told))]
        return False

    def _observation(self, event: dict[str, Any], *, is_answer: bool) -> list[Draft]:
        name = event["observation"]
        metadata = event.get("tool_call_metadata")
        metadata = dict(metadata) if isinstance(metadata, dict) else {}
        response = metadata.get("model_response")
        if isinstance(response, dict) and self._is_told(response):
            del metadata["model_response"]
            self._report.lose("repeated-response")
        call_id = metadata.get("tool_call_id")
        if not (is_answer or isinstance(call_id, str)):
            return [("event", {"name": f"observation/{label(name)}", "data": event})]
        rest = {key: value for key, value in event.items() if key not in _OF_OBSERVATION} | {
            "observation": name
        }
        metadata = {
            key: value for key, value in metadata.items() if key not in {"tool_call_id", "function_name"}
        }
        if metadata or not isinstance(event.get("tool_call_metadata", {}), dict):
            rest["tool_call_metadata"] = metadata or event["tool_call_metadata"]
        if not isinstance(call_id, str) and call_id is not None:
            rest["tool_call_id"] = call_id
        _forget_display(rest, event.get("content"))
        fields = {
            "call_id": call_id if isinstance(call_id, str) else None,
            "call": None,
            "is_error": _failed(name, event.get("extras")),
            "content": parts_of(event.get("content"), self._report),
            "extra": rest,
        }
        return [("tool_result", fields)]


def _said(parts: list[dict[str, Any]]) -> Draft:
    return "message", {"role": "assistant", "content": parts}


def _metadata(event: dict[str, Any]) -> dict[str, Any]:
    return {"tool_call_metadata": event["tool_call_metadata"]} if event.get("tool_call_metadata") else {}


def _forget_display(rest: dict[str, Any], text: object) -> None:
    """Leave out what OpenHands displays of an event, where it is told already, and a source that is usual."""
    if rest.get("message") in ("", text):
        rest.pop("message", None)
    if rest.get("source") == "agent":
        del rest["source"]


def _answer(response: object) -> dict[str, Any]:
    """Return the message in a response of the model, or nothing where there isn't exactly one."""
    choices = response.get("choices") if isinstance(response, dict) else None
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict):
        message = choices[0].get("message")
        return message if isinstance(message, dict) else {}
    return {}


def _given(answer: dict[str, Any], call_id: str | None) -> dict[str, Any] | None:
    """Return the arguments that the model gave to a call."""
    calls = answer.get("tool_calls")
    for call in calls if isinstance(calls, list) and call_id is not None else []:
        function = call.get("function") if isinstance(call, dict) and call.get("id") == call_id else None
        given = arguments_of(function.get("arguments")) if isinstance(function, dict) else None
        if isinstance(given, dict):
            return given
    return None


def _is_plain(calls: object) -> bool:
    """Say whether *calls* is one call with nothing about it that a tool call's record has no place for."""
    if not isinstance(calls, list) or len(calls) != 1 or not isinstance(calls[0], dict):
        return False
    function = calls[0].get("function")
    is_plain = isinstance(function, dict) and function.keys() == {"name", "arguments"}
    return is_plain and calls[0].keys() <= {"id", "index", "type", "function"}


def _facts(response: dict[str, Any]) -> dict[str, Any]:
    facts = {
        name: response[key]
        for key, name in (("model", "model"), ("id", "message_id"))
        if isinstance(response.get(key), str)
    }
    usage = usage_of(response.get("usage"))
    return facts | ({"usage": usage} if usage is not None else {})


def _failed(name: str, extras: object) -> bool | None:
    """Say whether a tool failed, where the observation says so."""
    if name == "error":
        return True
    extras = extras if isinstance(extras, dict) else {}
    metadata = extras.get("metadata")
    code = extras.get("exit_code", metadata.get("exit_code") if isinstance(metadata, dict) else None)
    # -1: it still runs
    return code != 0 if type(code) is int and code >= 0 else None
