"""Reader for ATIF 1.x, the Agent Trajectory Interchange Format (Harbor, RFC 0001; version 1.8 on PyPI)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, ClassVar, Final

from autocode.jobs.sessions.base import Reading, Record, Report, label, word
from autocode.jobs.sessions.document import Member
from autocode.jobs.sessions.document_mapping import (
    EACH,
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
from autocode.jobs.sessions.usage import count_of

__all__ = ["AtifReader"]

_ROLES: Final = {"user": "user", "agent": "assistant", "system": "system"}
_STEP: Final = (
    "timestamp", "source", "message", "model_name", "reasoning_content", "tool_calls", "observation",
    "metrics",
)  # fmt: skip
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "cached_tokens")
_RESULT: Final = ("source_call_id", "content")


class AtifReader:
    """Reads trajectories in ATIF, whichever agent they are of."""

    name: Final = "atif"
    revision: Final = 1
    in_parts: Final = False

    def matches(self, head: bytes) -> bool:
        """Say whether *head* begins with a trajectory."""
        shown = opened_document(head)
        version = word(shown.get("schema_version"))
        return version.startswith("ATIF-v1.") and not shown.keys().isdisjoint(
            {"steps", "agent", "session_id"}
        )

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """See :meth:`autocode.jobs.sessions.base.Reader.read`."""
        return begin(self, _Trajectory, stream, state)


class _Trajectory(DocumentMapper):
    layout: ClassVar[Layout] = {
        ROOT: {"steps": "steps", "subagent_trajectories": "subagents"},
        "steps": {},
        "subagents": {EACH: "subagent"},
        "subagent": {"steps": "steps", "subagent_trajectories": "subagents"},
    }
    scopes: ClassVar[frozenset[str]] = frozenset({ROOT, "subagent"})

    def completes(self, fields: Mapping[str, Any]) -> bool:
        return "session_id" in fields and "agent" in fields

    def recognises(self, place: str, value: Any) -> bool:
        return isinstance(value, dict) and ("step_id" if place == "steps" else "schema_version") in value

    def begin(self, scope: Scope) -> Iterator[Record]:
        fields = scope.fields
        agent = fields.get("agent")
        agent = agent if isinstance(agent, dict) else {}
        if isinstance(agent.get("model_name"), str):
            self._report.saw_model(label(agent["model_name"]))
        if self.depth:
            header = scope.header
            data = header.fields if header else {}
            found = header.found if header else scope.opened.found._replace(length=0)
            yield from self.tell(
                found, [Draft("event", {"name": "subagent_trajectory", "data": data})], is_side=True
            )
            return
        session_id = text_of(fields.get("session_id"))
        shown = {
            "session_id": session_id,
            "tool_version": text_of(agent.get("version")),
            "client": text_of(agent.get("name")),
        }
        yield self.head(scope, None, shown, () if session_id is None else ("session_id",))

    def finish(self, scope: Scope) -> Iterator[Record]:
        yield from super().finish(scope)
        final = scope.fields.get("final_metrics")
        if not self.depth and isinstance(final, dict) and not any(self._report.tokens.values()):
            total = {name: final.get(f"total_{name}") for name in _COUNTS}
            self._totals.add(_usage(total))

    def item(self, item: Member) -> Iterator[Record]:
        step, scope = item.found.value, self.scope
        if not isinstance(step, dict):
            yield self.unknown(item.found)
            return
        is_side = self.depth > 0
        about: dict[str, Any] = {
            "when": step.get("timestamp"),
            # Steps follow one another; only on a side chain that has to be said.
            "parent": scope.last if scope is not None and is_side else None,
            "is_side": is_side,
        }
        role = _ROLES.get(word(step.get("source")))
        if role is None or not isinstance(step.get("message"), str | list | None):
            yield from self.not_understood(item.found, "unknown-source", step.get("source"), **about)
            return
        drafts, extra = self._drafts(step, role)
        self._about(step, drafts[0].fields, extra)
        yield from self.tell(item.found, drafts, extra={"step": extra}, **about)

    def _drafts(self, step: dict[str, Any], role: str) -> tuple[list[Draft], dict[str, Any]]:
        extra = rest_of(step, *_STEP)
        drafts: list[Draft] = []
        reasoning = step.get("reasoning_content")
        if isinstance(reasoning, str):
            drafts.append(Draft("thinking", thinking(reasoning)))
        elif reasoning is not None:
            extra["reasoning_content"] = reasoning
        calls = step.get("tool_calls")
        made = [_call(call) for call in calls] if isinstance(calls, list) else []
        if calls is not None and not (isinstance(calls, list) and all(made)):
            extra["tool_calls"] = calls
        seen, odd = _results(step.get("observation"), self._report)
        if odd:
            extra["observation"] = odd
        content = _parts(step.get("message"), self._report)
        after = [*(call for call in made if call), *seen]
        if content or not (drafts or after):
            drafts.append(Draft("message", {"role": role, "content": content}))
        return drafts + after, extra

    def _about(self, step: dict[str, Any], fields: dict[str, Any], extra: dict[str, Any]) -> None:
        model, metrics = step.get("model_name"), step.get("metrics")
        if isinstance(model, str):
            fields["model"] = model
            self._report.saw_model(label(model))
        elif model is not None:
            extra["model_name"] = model
        if isinstance(metrics, dict):
            fields["usage"] = usage = _usage(metrics)
            cost = metrics.get("cost_usd")
            has_cost = type(cost) in {int, float}
            if has_cost:
                fields["cost_usd"] = cost
            if step.get("is_copied_context") is not True:
                self._totals.add(usage)
            rest = {
                key: value
                for key, value in metrics.items()
                if value is not None
                and not (key in _COUNTS and count_of(value) == value)
                and not (key == "cost_usd" and has_cost)
            }
            if rest:
                extra["metrics"] = rest
        elif metrics is not None:
            extra["metrics"] = metrics


def _usage(metrics: Mapping[str, Any]) -> dict[str, int]:
    prompt, completion, cached = (count_of(metrics.get(name)) for name in _COUNTS)
    return {"input": max(0, prompt - cached), "output": completion, "cache_read": cached, "cache_write": 0}


def _call(call: object) -> Draft | None:
    if not isinstance(call, dict) or not isinstance(call.get("function_name"), str):
        return None
    call_id = text_of(call.get("tool_call_id"))
    fields: dict[str, Any] = {
        "call_id": call_id,
        "name": call["function_name"],
        "input": call.get("arguments"),
    }
    rest = rest_of(call, "function_name", "arguments", *(["tool_call_id"] if call_id is not None else []))
    if rest:
        fields["extra"] = rest
    return Draft("tool_call", fields)


def _results(observation: object, report: Report) -> tuple[list[Draft], object]:
    """Return a record for each result of an observation, and what isn't one."""
    if observation is None:
        return [], None
    results = observation.get("results") if isinstance(observation, dict) else None
    if not isinstance(observation, dict) or not isinstance(results, list):
        return [], observation
    drafts, odd = [], []
    for result in results:
        if not isinstance(result, dict):
            odd.append(result)
            continue
        call_id = text_of(result.get("source_call_id"))
        fields: dict[str, Any] = {
            "call_id": call_id,
            "call": None,
            "is_error": None,
            "content": _parts(result.get("content"), report),
        }
        rest = rest_of(result, *(_RESULT if call_id is not None else _RESULT[1:]))
        if rest:
            fields["extra"] = rest
        drafts.append(Draft("tool_result", fields))
    rest = rest_of(observation, "results") | ({"results": odd} if odd else {})
    return drafts, rest


def _parts(content: object, report: Report) -> list[dict[str, Any]]:
    if content is None or content == "":
        return []
    return [_part(part, report) for part in (content if isinstance(content, list) else [content])]


def _part(part: object, report: Report) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = word(part.get("type")) if isinstance(part, dict) else ""
    if isinstance(part, dict) and kind == "text" and isinstance(part.get("text"), str):
        rest = rest_of(part, "type", "text")
        return {"type": "text", "text": part["text"]} | ({"extra": rest} if rest else {})
    source = part.get("source") if isinstance(part, dict) else None
    if isinstance(part, dict) and isinstance(source, dict) and isinstance(source.get("path"), str):
        if kind == "image":
            rest = rest_of(part, "type", "source") | {"source": rest_of(source, "path")}
            return {"type": "image", "url": source["path"], "extra": rest}
        if kind == "audio":
            return {"type": "document", "data": part}
    report.lose(f"unknown-part:{label(kind or part)}")
    return {"type": "unknown", "data": part}
