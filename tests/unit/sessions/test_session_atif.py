"""Trajectories in ATIF 1.x."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autocode.jobs.sessions.atif import AtifReader
from unit.sessions.session_documents import kinds, read_document, texts

ATIF = AtifReader()
AT = "2026-01-10T20:00:21Z"
AGENT = {"name": "ada", "version": "0.9", "model_name": "model-1"}


def step(source: str = "agent", message: Any = "done", **more: Any) -> dict[str, Any]:
    """Return a step."""
    return {"step_id": 1, "timestamp": AT, "source": source, "message": message, **more}


def trajectory(*steps: Any, **more: Any) -> dict[str, Any]:
    """Return a trajectory."""
    return {"schema_version": "ATIF-v1.7", "session_id": "s-1", "agent": AGENT, "steps": list(steps), **more}


def one(*steps: Any, **more: Any) -> Any:
    """Read a trajectory."""
    return read_document(trajectory(*steps, **more), ATIF, indent=2)


def test_the_session_is_the_trajectory() -> None:
    """Its id and its agent are the record's; all fields are kept."""
    records, report = one(step("user", "hi"), notes="n")

    session = records[0]
    assert (session["session_id"], session["client"], session["tool_version"]) == ("s-1", "ada", "0.9")
    assert session["extra"] == {"schema_version": "ATIF-v1.7", "agent": AGENT}
    assert (records[-1]["name"], records[-1]["data"]) == ("fields", {"notes": "n"})
    assert (report.session_id, report.models, report.first_at) == (
        "s-1",
        ["model-1"],
        "2026-01-10T20:00:21.000Z",
    )


@pytest.mark.parametrize(("source", "role"), [("user", "user"), ("agent", "assistant"), ("system", "system")])
def test_sources_are_roles(source: str, role: str) -> None:
    """Who a step is from is who said its message."""
    records, _ = one(step(source, "text"))

    assert (records[1]["role"], texts(records[1])) == (role, ["text"])


def test_a_step_becomes_reasoning_message_calls_and_results() -> None:
    """In this order; results name their calls, and the counts of tokens are the step's."""
    calls = [{"tool_call_id": "c-1", "function_name": "ls", "arguments": {"p": "."}, "extra": {"x": 1}}]
    results = [
        {"source_call_id": "c-1", "content": "out", "subagent_trajectory_ref": [{"trajectory_id": "t"}]},
        {"source_call_id": None, "content": [{"type": "text", "text": "seen"}]},
    ]
    metrics = {
        "prompt_tokens": 100,
        "cached_tokens": 30,
        "completion_tokens": 9,
        "cost_usd": 0.5,
        "logprobs": [-1.0],
    }

    records, report = one(
        step(
            reasoning_content="think",
            tool_calls=calls,
            observation={"results": results},
            metrics=metrics,
            model_name="m",
            llm_call_count=1,
        )
    )

    assert kinds(records) == ["thinking", "message", "tool_call", "tool_result", "tool_result"]
    thinking, message, call, result, seen = records[1:]
    assert (thinking["text"], thinking["model"]) == ("think", "m")
    assert thinking["usage"] == {"input": 70, "output": 9, "cache_read": 30, "cache_write": 0}
    assert thinking["extra"] == {"step": {"step_id": 1, "llm_call_count": 1, "metrics": {"logprobs": [-1.0]}}}
    assert thinking["cost_usd"] == 0.5
    assert texts(message) == ["done"]
    assert (call["call_id"], call["name"], call["input"], call["extra"]) == (
        "c-1",
        "ls",
        {"p": "."},
        {"extra": {"x": 1}},
    )
    assert (result["call"], texts(result), result["is_error"]) == (call["id"], ["out"], None)
    assert result["extra"] == {"subagent_trajectory_ref": [{"trajectory_id": "t"}]}
    assert (seen["call"], texts(seen)) == (None, ["seen"])
    assert (report.tokens["input"], report.tokens["cache_read"], report.tokens["output"]) == (70, 30, 9)
    assert report.lost == {}


def test_content_may_have_pictures_and_sound() -> None:
    """Pictures are named by their path, sound is a document, anything else is counted."""
    sound = {"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav"}}
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"media_type": "image/png", "path": "i.png"}},
        sound,
        {"type": "smell"},
    ]

    records, report = one(step("user", parts))

    assert records[1]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "url": "i.png", "extra": {"source": {"media_type": "image/png"}}},
        {"type": "document", "data": sound},
        {"type": "unknown", "data": {"type": "smell"}},
    ]
    assert report.lost == {"unknown-part:smell": 1}


def test_copied_context_isnt_counted_again_and_final_metrics_only_alone() -> None:
    """Tokens of steps that were copied from before are theirs; a total counts where no step has any."""
    metrics = {"prompt_tokens": 5, "completion_tokens": 1}
    final = {"total_prompt_tokens": 70, "total_completion_tokens": 7, "total_cached_tokens": 20}

    _, counted = one(
        step(metrics=metrics), step(metrics=metrics, is_copied_context=True), final_metrics=final
    )
    _, total = one(step(), final_metrics=final)

    assert counted.tokens == {"input": 5, "output": 1, "cache_read": 0, "cache_write": 0}
    assert total.tokens == {"input": 50, "output": 7, "cache_read": 20, "cache_write": 0}


def test_trajectories_of_subagents_are_side_chains() -> None:
    """Each begins with an event that tells its fields, and each of its records follows the one before."""
    inner = trajectory(step("user", "deep"), trajectory_id="t-2", session_id="s-2")
    outer = trajectory(
        step("user", "a"), step("agent", "b"), trajectory_id="t-1", subagent_trajectories=[inner]
    )

    records, report = one(step("agent", "before"), subagent_trajectories=[outer], trajectory_id="t-0")

    sides = [record for record in records if record.get("sidechain")]
    assert kinds(sides) == ["message", "message", "event", "event", "message", "event"]
    assert (sides[0]["name"], sides[0]["data"]["session_id"]) == ("subagent_trajectory", "s-1")
    assert [record["parent"] for record in sides[1:3]] == [sides[0]["id"], sides[1]["id"]]
    assert (sides[4]["name"], sides[4]["data"]["session_id"], texts(sides[5])) == (
        "subagent_trajectory",
        "s-2",
        ["deep"],
    )
    assert "sidechain" not in records[-1]
    assert (report.sessions, report.session_id, report.records["session"]) == (1, "s-1", 1)


def test_subagents_before_the_steps_follow_the_session() -> None:
    """Whatever the order of the fields, the session's record is first and nothing is lost."""
    whole = {
        "subagent_trajectories": [trajectory(step("user", "a"))],
        "steps": [step("agent", "b")],
        "session_id": "s-9",
        "agent": AGENT,
    }

    records, report = read_document(whole, ATIF)

    assert kinds(records) == ["event", "message", "message", "event"]
    assert [record.get("sidechain", False) for record in records] == [False, True, True, False, False]
    assert report.records == {"session": 1, "event": 2, "message": 2}


def test_odd_steps_are_kept() -> None:
    """Unknown sources and shapes are counted, odd fields stay beside the step."""
    records, report = one(
        step("ghost"),
        5,
        step(message=7),
        step(reasoning_content=1, tool_calls=[{"function_name": 3}], model_name=2),
        step(message="", observation="seen"),
        step(message=None, observation={"results": ["bare"], "x": 1}, metrics=4),
    )

    assert kinds(records) == ["unknown", "unknown", "unknown", "message", "message", "message"]
    assert records[4]["extra"]["step"] == {
        "step_id": 1, "reasoning_content": 1, "tool_calls": [{"function_name": 3}], "model_name": 2,
    }  # fmt: skip
    assert records[5]["extra"]["step"]["observation"] == "seen"
    assert records[6]["extra"]["step"] == {
        "step_id": 1,
        "observation": {"x": 1, "results": ["bare"]},
        "metrics": 4,
    }
    assert report.lost == {"unknown-source:ghost": 1, "unknown-type:int": 1, "unknown-source:agent": 1}


def test_trajectories_may_follow_one_another() -> None:
    """A file with a trajectory a line has a session for each."""
    lines = [trajectory(step("user", text), session_id=name) for name, text in (("s-1", "a"), ("s-2", "b"))]

    records, report = read_document(b"\n".join(json.dumps(line).encode() for line in lines), ATIF)

    assert kinds(records) == ["message", "session", "message"]
    assert (records[2]["session_id"], report.sessions, report.session_id) == ("s-2", 2, None)
