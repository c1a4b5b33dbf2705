"""SWE-agent and mini-SWE-agent: the history is the session, steps and facts are events."""

from __future__ import annotations

import json
import os
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.sessions import HEAD_BYTES, Record, Report, sniff
from autocode.jobs.sessions.swe_agent import MiniSweAgentReader, SweAgentReader
from autocode.jobs.testing.sample_story import story
from autocode.jobs.testing.sample_texts import mini_swe_agent_run, swe_agent_run
from unit.sessions.session_lines import accounted, read

SWE = SweAgentReader()
MINI = MiniSweAgentReader()
CALL = {"function": {"name": "bash", "arguments": '{"command": "ls"}'}, "id": "c-1", "type": "function"}
TALE = list(islice(story(random.Random(3), "/src"), 2))


def run(reader: SweAgentReader | MiniSweAgentReader, document: Any) -> tuple[list[Record], Report]:
    """Read a document, with every byte accounted for."""
    data = json.dumps(document, indent=1).encode()
    records, report = read(data, reader)
    assert accounted(records, report) == len(data)
    return records, report


def told(*entries: dict[str, Any]) -> list[Record]:
    """Return the records of a history, after the session's own."""
    return run(SWE, {"history": list(entries)})[0][1:]


def entry(role: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return an entry of a history."""
    return {"role": role, "content": content, **more}


def test_a_called_function_and_its_result() -> None:
    """The arguments are read from their string, and the result finds its call."""
    first, call, result = told(
        entry("assistant", "Look.", thought="Look.", action="ls", tool_calls=[CALL], message_type="action"),
        entry("tool", "a.py", tool_call_ids=["c-1"], message_type="observation"),
    )

    assert (first["role"], first["content"]) == ("assistant", [{"type": "text", "text": "Look."}])
    assert first["extra"] == {"action": "ls", "message_type": "action"}
    assert (call["call_id"], call["name"], call["input"]) == ("c-1", "bash", {"command": "ls"})
    assert call["source"] == first["source"]
    assert (result["type"], result["call_id"], result["call"]) == ("tool_result", "c-1", call["id"])
    assert (result["content"], result["is_error"]) == ([{"type": "text", "text": "a.py"}], None)


def test_a_command_in_the_text_is_a_call_too() -> None:
    """Without function calling the action is the call, and what the user says next is its result."""
    records = told(
        entry("system", "You are a programmer."),
        entry("user", "Mend it.", message_type="observation"),
        entry("assistant", "Look.\n```\nls\n```", thought="Look.\n", action="ls\n"),
        entry("user", "a.py"),
        entry("user", "And?"),
    )

    assert [r["type"] for r in records] == [
        "message", "message", "message", "tool_call", "tool_result", "message",
    ]  # fmt: skip
    assert (records[3]["call_id"], records[3]["name"], records[3]["input"]) == (None, "action", "ls\n")
    assert (records[4]["call_id"], records[4]["call"]) == (None, records[3]["id"])
    assert records[2]["extra"] == {"thought": "Look.\n"}


def test_what_an_answer_consists_of() -> None:
    """Thinking stands alone, an empty text beside calls is no message, calls of unknown shape stay whole."""
    thinking = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    records = told(
        entry("assistant", "", thinking_blocks=thinking, tool_calls=[CALL, CALL | {"id": "c-2"}]),
        entry("assistant", "", tool_calls=[{"name": "odd"}]),
        entry("user", [{"type": "text", "text": "see", "cache_control": {}},
                       {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
    )  # fmt: skip

    assert [r["type"] for r in records] == ["thinking", "tool_call", "tool_call", "message", "message"]
    assert (records[0]["text"], records[0]["signed"]) == ("Hm.", True)
    assert records[3]["extra"] == {"tool_calls": [{"name": "odd"}]}
    assert records[4]["content"] == [
        {"type": "text", "text": "see", "extra": {"cache_control": {}}},
        {"type": "image", "media_type": "image/png", "data": "AAAA"},
    ]


def test_a_demonstration_says_so() -> None:
    """Entries that were put before the run are marked as the tool marks them."""
    assert told(entry("user", "Like this.", is_demo=True))[0]["extra"] == {"is_demo": True}


def test_steps_are_events_and_their_copies_of_the_history_digests() -> None:
    """A step is kept whole, but for the conversation up to it, which the history tells."""
    step = {"action": "ls", "observation": "a", "state": '{"working_dir": "/testbed"}', "query": [1, 2]}
    records, report = run(SWE, {"environment": "main", "trajectory": [step], "history": []})

    held = records[2]["data"].pop("query")["held"]
    assert [(r["type"], r.get("name")) for r in records] == [
        ("session", None), ("event", "environment"), ("event", "step"),
    ]  # fmt: skip
    assert records[2]["data"] == {key: step[key] for key in ("action", "observation", "state")}
    assert (held["items"], report.lost) == (2, {"repeated-history": 2})
    assert records[0]["cwd"] == "/testbed"


def test_the_facts_of_a_run_have_its_tokens_cost_and_model() -> None:
    """``info`` counts tokens once for the run; the configuration names the model."""
    stats = {"instance_cost": 0.5, "tokens_sent": 100, "tokens_received": 7, "api_calls": 2}
    config = '{"agent": {"model": {"name": "gpt-4o"}}}'
    info = {"exit_status": "submitted", "model_stats": stats}

    records, report = run(SWE, {"history": [], "info": info, "replay_config": config})

    assert (records[1]["data"], records[1]["cost_usd"]) == (info, 0.5)
    assert (
        records[1]["usage"] == report.tokens == {"input": 100, "output": 7, "cache_read": 0, "cache_write": 0}
    )
    assert (report.models, records[2]["data"]) == (["gpt-4o"], {"replay_config": config})


def test_what_is_not_known_is_kept_whole() -> None:
    """A field, an entry and a step of no known form are unknown records, each counted."""
    odd: dict[str, Any] = {
        "history": [entry("oracle", "x"), 5],
        "trajectory": ["step"],
        "extra": [1],
        "info": 7,
    }

    records, report = run(SWE, odd)

    assert [r["data"] for r in records if r["type"] == "unknown"] == [entry("oracle", "x"), 5, "step", [1]]
    assert records[-1]["data"] == {"info": 7}
    assert report.lost == {
        "unknown-type:dict": 1, "unknown-type:int": 1, "unknown-type:str": 1, "unknown-type:extra": 1,
    }  # fmt: skip


def test_attempts_of_one_run_are_one_session() -> None:
    """An agent that tries several times writes a history for each attempt."""
    attempt = {
        "trajectory": [{"action": "a", "observation": "o"}],
        "history": [entry("user", "x")],
        "info": {},
    }

    report = run(SWE, {"environment": "main", "attempts": [attempt, attempt]})[1]

    assert report.records == {"session": 1, "event": 5, "message": 2}


def test_a_command_is_answered_within_its_history() -> None:
    """The first entry of the next attempt is a prompt, though the last one ended with a command."""
    attempt = {"history": [entry("user", "x"), entry("assistant", "y", action="submit")]}

    records, _ = run(SWE, {"environment": "main", "attempts": [attempt, attempt]})

    assert [r["type"] for r in records[2:]] == ["message", "message", "tool_call"] * 2


def test_a_broken_entry_costs_itself() -> None:
    """Damage is a span; what comes behind is read."""
    data = json.dumps({"history": [entry("user", "a"), entry("user", "b"), entry("user", "c")]}).encode()
    data = data.replace(b'"b"', b'"b')

    records, report = read(data, SWE)

    assert [r["content"][0]["text"] for r in records[1:]] == ["a", "c"]
    assert report.damaged_total == 1
    assert accounted(records, report) == len(data)


def test_mini_swe_agent_has_times_tokens_and_models_on_its_answers() -> None:
    """Seconds since 1970 become times; what a response repeats of its answer isn't kept twice."""
    said = entry("assistant", "Look.", tool_calls=[CALL])
    response = {
        "id": "r-1", "model": "m-1", "choices": [{"finish_reason": "stop", "message": said | {"x": 1}}],
        "usage": {"prompt_tokens": 90, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60},
                  "cache_creation_input_tokens": 20},
    }  # fmt: skip
    said |= {"extra": {"response": response, "timestamp": 1_767_600_000.25}}
    answer = entry("tool", "a.py", tool_call_id="c-1", timestamp=1e99)

    records, report = run(MINI, {"info": {"mini_version": "2.0.0"}, "messages": [said, answer]})

    message, call, result = records[2:]
    assert (message["at"], message["model"], message["message_id"]) == (
        "2026-01-05T08:00:00.250Z",
        "m-1",
        "r-1",
    )
    assert (
        message["usage"] == report.tokens == {"input": 10, "output": 5, "cache_read": 60, "cache_write": 20}
    )
    assert message["extra"]["extra"]["response"]["choices"] == [
        {"finish_reason": "stop", "message": {"x": 1}}
    ]
    assert (result["call"], result["at"], result["raw_at"]) == (call["id"], None, 1e99)
    assert (records[0]["tool_version"], report.lost) == ("2.0.0", {"absurd-time": 1})


def test_a_bare_list_of_messages_is_a_run_of_mini_swe_agent() -> None:
    """Its first versions wrote nothing else; the last entry may be how the run ended."""
    records, report = run(MINI, [entry("system", "s"), entry("user", "u"), entry("exit", "Submitted")])

    assert [r["type"] for r in records] == ["session", "message", "message", "event"]
    assert (records[3]["name"], report.lost) == ("exit", {})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"history": [entry("user", "x")]}, "swe-agent"),
        ({"environment": "e", "trajectory": [{"action": "a", "observation": "o"}]}, "swe-agent"),
        ({"environment": "e", "attempts": []}, "swe-agent"),
        ({"history": ["ls", "cd"]}, None),
        ({"history": [{"url": "u"}], "trajectory": 1}, None),
        ([entry("user", "x")], "mini-swe-agent"),
        ({"info": {}, "messages": [entry("user", "x")]}, "mini-swe-agent"),
        ({"messages": [entry("user", "x")]}, None),
        ([{"role": "admin"}], None),
        ([], None),
    ],
)
def test_runs_are_known_by_their_lists(document: Any, expected: str | None) -> None:
    """A list of entries or steps under the tool's names; a list of anything else is none."""
    found = sniff(json.dumps(document).encode())

    assert (found.name if found else None) == expected


def test_sample_runs_are_read_as_they_were_written() -> None:
    """Each call of the builders' stories is a call with its result, with functions and without."""
    calls = [call for exchange in TALE for call in exchange.calls]

    for document, reader in (
        (swe_agent_run(random.Random(1), TALE), SWE),
        (swe_agent_run(random.Random(1), TALE, functions=False), SWE),
        (mini_swe_agent_run(random.Random(1), TALE), MINI),
    ):
        records, report = run(reader, document)
        results = [r for r in records if r["type"] == "tool_result"]
        assert report.records["tool_call"] == len(results) == len(calls)
        assert all(r["call"] == records[r["seq"] - 1]["id"] for r in results)
        assert not any(name.startswith("unknown") for name in report.lost)


REAL = {
    "BabyEncryption": (17, 15, 14, 18, 0, 0, []),
    "katy": (20, 18, 17, 20, 0, 0, []),
    "function_calling_simple": (7, 5, 5, 0, 0, 0, []),
    "6e44b9__sweagenttestrepo-1c2844": (6, 4, 4, 8, 7141, 243, ["gpt-4o"]),
    "warmup": (9, 7, 6, 9, 0, 0, []),
    "default_sys-env_": (14, 12, 11, 14, 0, 0, []),
    "function_calling": (13, 11, 11, 14, 0, 0, ["gpt-4o"]),
    "xml_sys-env_wind": (13, 11, 10, 14, 0, 0, ["gpt-4o"]),
}
"""Messages, tool calls, results, events, tokens sent and received, and models of the real runs."""


@pytest.mark.needs_samples
@pytest.mark.parametrize("name", REAL)
def test_real_runs(name: str) -> None:
    """Counted by hand over ``history``, ``trajectory`` and ``info``; nothing is lost or damaged."""
    folder = Path(os.environ.get("AUTOCODE_SAMPLES", "")) / "swe-agent"
    paths = [p for p in folder.rglob("*.traj") if p.stem == name or p.parent.name.endswith("__" + name)]
    data = paths[0].read_bytes()

    records, report = read(data, SWE)

    found = sniff(data[:HEAD_BYTES])
    assert found is not None
    assert (found.name, len(paths)) == ("swe-agent", 1)
    counts = [report.records[kind] for kind in ("message", "tool_call", "tool_result", "event")]
    assert (*counts, report.tokens["input"], report.tokens["output"], report.models) == REAL[name]
    assert (report.lost, report.damaged_total, report.sessions) == ({}, 0, 1)
    assert accounted(records, report) == len(data)
    assert all(record["call"] for record in records if record["type"] == "tool_result")
