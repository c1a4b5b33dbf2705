"""OpenHands: actions and observations to messages, calls and results."""

from __future__ import annotations

import json
import os
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.sessions import HEAD_BYTES, Record, Report, sniff
from autocode.jobs.sessions.openhands import OpenHandsReader
from autocode.jobs.testing.sample_story import story
from autocode.jobs.testing.sample_texts import openhands_events, openhands_output
from unit.sessions.session_lines import accounted, read

OPENHANDS = OpenHandsReader()
TALE = list(islice(story(random.Random(3), "/src"), 2))
AT = "2025-02-01T00:14:10.787622"


def run(data: bytes) -> tuple[list[Record], Report]:
    """Read bytes, each accounted for."""
    records, report = read(data, OPENHANDS)
    assert accounted(records, report) == len(data)
    return records, report


def told(*events: dict[str, Any]) -> list[Record]:
    """Return the records of events, after the session's own."""
    return run(json.dumps(events).encode())[0][1:]


def event(number: int, source: str = "agent", **more: Any) -> dict[str, Any]:
    """Return an event."""
    return {"id": number, "timestamp": AT, "source": source, "message": "", **more}


def called(call_id: str, *calls: str, content: Any = "Look.", response_id: str = "r-1") -> dict[str, Any]:
    """Return what an event has of the model's response that made the call *call_id*, one of *calls*."""
    made = [
        {
            "id": name,
            "type": "function",
            "function": {"name": "bash", "arguments": f'{{"command": "{name}"}}'},
        }
        for name in calls or (call_id,)
    ]
    return {
        "function_name": "bash",
        "tool_call_id": call_id,
        "model_response": {
            "id": response_id,
            "model": "m-1",
            "choices": [{"message": {"role": "assistant", "content": content, "tool_calls": made}}],
            "usage": {
                "prompt_tokens": 50,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 20},
            },
        },
        "total_calls_in_response": len(made),
    }


def test_messages_of_both_sides() -> None:
    """What is displayed of a message, and whose it is, isn't told twice; images follow the text."""
    asked, answered = told(
        event(
            0, "user", message="hi", action="message", args={"content": "hi", "image_urls": ["https://x/y"]}
        ),
        event(1, message="ho", action="message", args={"content": "ho", "wait_for_response": True}),
    )

    assert (asked["id"], asked["role"], asked["at"], asked["raw_at"]) == ("0", "user", None, AT)
    assert asked["content"] == [{"type": "text", "text": "hi"}, {"type": "image", "url": "https://x/y"}]
    assert "extra" not in asked
    assert (answered["role"], answered["extra"]) == ("assistant", {"args": {"wait_for_response": True}})


def test_a_called_function_and_what_came_of_it() -> None:
    """The model's text comes first, with model and tokens; the call has the model's arguments."""
    metadata = called("c-1")
    args = {"command": "c-1", "thought": "Look.", "hidden": False}
    said, call, result = told(
        event(3, message="Running", action="run", args=args, tool_call_metadata=metadata),
        event(4, observation="run", content="a.py", cause=3, tool_call_metadata=metadata,
              extras={"metadata": {"exit_code": 2}}),
    )  # fmt: skip

    assert (said["id"], said["content"]) == ("3", [{"type": "text", "text": "Look."}])
    assert said["usage"] == {"input": 30, "output": 4, "cache_read": 20, "cache_write": 0}
    assert (said["model"], said["message_id"]) == ("m-1", "r-1")
    assert (call["id"], call["call_id"], call["name"]) == ("3.1", "c-1", "bash")
    assert call["input"] == {"command": "c-1"}
    assert call["extra"]["args"] == {"command": "c-1", "hidden": False}
    assert call["extra"]["tool_call_metadata"]["model_response"]["choices"] == [{}]
    assert (result["call"], result["call_id"], result["parent"]) == ("3.1", "c-1", "3")
    assert (result["is_error"], result["content"]) == (True, [{"type": "text", "text": "a.py"}])
    assert result["extra"]["tool_call_metadata"] == {"total_calls_in_response": 1}


def test_a_response_counts_once() -> None:
    """Several calls of one response, and the observations, repeat it; its text and tokens are told once."""
    both = [called(name, "c-1", "c-2") for name in ("c-1", "c-2")]
    actions = [event(i, action="run", args={}, tool_call_metadata=both[i]) for i in range(2)]

    records, report = run(json.dumps([*actions, event(2, observation="run", content="", cause=0,
                                                      tool_call_metadata=both[0])]).encode())  # fmt: skip

    assert [r["type"] for r in records[1:]] == ["message", "tool_call", "tool_call", "tool_result"]
    assert [r["input"] for r in records if r["type"] == "tool_call"] == [
        {"command": "c-1"},
        {"command": "c-2"},
    ]
    assert (report.tokens["output"], report.lost["repeated-response"]) == (4, 2)


def test_an_observation_that_repeats_another_response_keeps_it() -> None:
    """Only an equal copy is left out."""
    result = told(
        event(0, action="run", args={}, tool_call_metadata=called("c-1")),
        event(1, observation="run", content="", tool_call_metadata=called("c-1", response_id="r-2")),
    )[-1]

    assert result["extra"]["tool_call_metadata"]["model_response"]["id"] == "r-2"


def test_an_action_without_a_called_function_is_a_call_by_its_cause() -> None:
    """Older versions read actions from the model's text: the observation's cause links them."""
    said, call, result, error = told(
        event(7, action="run", args={"command": "ls", "thought": "Look."}),
        event(8, observation="run", content="a", cause=7, extras={"exit_code": 0}),
        event(9, "environment", observation="error", content="no", cause=7),
    )

    assert said["content"][0]["text"] == "Look."
    assert (call["name"], call["call_id"], call["input"]) == ("run", None, {"command": "ls"})
    assert [(r["call"], r["is_error"]) for r in (result, error)] == [("7.1", False), ("7.1", True)]


def test_other_events_are_kept_whole() -> None:
    """States, recalls and observations without a call are events; a condensation is a compaction."""
    state, recall, system, condensed = told(
        event(0, "environment", observation="agent_state_changed", content="", extras={"agent_state": "x"}),
        event(1, "user", action="recall", args={"query": "q"}),
        event(2, action="system", args={"content": "You are …", "tools": []}),
        event(3, action="condensation", args={"summary": "So far.", "forgotten_event_ids": [1]}),
    )

    assert (state["name"], state["data"]["extras"]) == (
        "observation/agent_state_changed",
        {"agent_state": "x"},
    )
    assert (recall["name"], recall["data"]["args"]) == ("action/recall", {"query": "q"})
    assert (system["role"], system["extra"]) == (
        "system",
        {"message": "", "source": "agent", "args": {"tools": []}},
    )
    assert (condensed["type"], condensed["text"]) == ("compaction", "So far.")


def test_an_evaluation_has_a_session_on_each_line() -> None:
    """Each begins with its instance; events count from 0 in all of them, so ids come from positions."""
    data = openhands_output(random.Random(1), [TALE[:1], TALE[1:]])

    records, report = run(data)

    sessions = [r for r in records if r["type"] == "session"]
    assert [r["session_id"] for r in sessions] == ["ada__parser-0", "ada__parser-1"]
    assert (report.sessions, report.session_id) == (2, None)
    assert report.records["tool_call"] == report.records["tool_result"] == 6
    results = [r for r in records if r["type"] == "tool_result"]
    assert all(r["call"] == records[r["seq"] - 1]["id"] for r in results)
    assert [r["name"] for r in records if r["type"] == "event"][:4] == [
        "instance_id", "test_result", "instruction", "metadata",
    ]  # fmt: skip
    assert "duplicate-id" not in report.lost


def test_metrics_count_where_events_do_not() -> None:
    """The totals of an evaluation stand in for tokens only where no response told any."""
    total = {"prompt_tokens": 100, "completion_tokens": 7, "cache_read_tokens": 30, "cache_write_tokens": 20}
    metrics = {"accumulated_cost": 0.5, "accumulated_token_usage": total}
    line = {
        "instance_id": "i",
        "metadata": {},
        "history": [event(0, action="run", args={})],
        "metrics": metrics,
    }
    counted = line | {"history": [event(0, action="run", args={}, tool_call_metadata=called("c"))]}

    assert run(json.dumps(line).encode())[1].tokens == {
        "input": 50, "output": 7, "cache_read": 30, "cache_write": 20,
    }  # fmt: skip
    records, report = run(json.dumps(counted).encode())
    assert report.tokens == {"input": 30, "output": 4, "cache_read": 20, "cache_write": 0}
    assert (records[-1]["cost_usd"], "usage" in records[-1]) == (0.5, False)


def test_pairs_of_the_first_evaluations_are_read() -> None:
    """A history of pairs gives the records of both, which share a span."""
    pair = [event(0, action="run", args={"command": "ls"}), event(1, observation="run", content="a", cause=0)]

    records, _ = run(json.dumps({"instance_id": "i", "history": [pair], "test_result": {}}).encode())

    call, result = records[2:4]
    assert (call["type"], result["type"], result["call"]) == ("tool_call", "tool_result", call["id"])
    assert call["source"] == result["source"]
    assert result["extra"]["id"] == 1


def test_what_is_not_known_is_kept_whole() -> None:
    """Values that are no events, and events of no known form, are unknown records, each counted."""
    records, report = run(json.dumps([event(0, "user", action="message", args={"content": "x"}), 5,
                                      event(1, action=["odd"])]).encode())  # fmt: skip

    assert [r["data"] for r in records if r["type"] == "unknown"] == [5, event(1, action=["odd"])]
    assert report.lost == {"absurd-time": 2, "unknown-type:int": 1, "unknown-shape:list": 1}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([event(0, action="message")], "openhands"),
        ([event(0, observation="run")], "openhands"),
        ({"instance_id": "i", "history": [event(0, action="run")]}, "openhands"),
        ({"instance_id": "i", "test_result": {}, "metadata": {}}, "openhands"),
        ({"instance_id": "i", "model_patch": "p"}, None),
        ([{"source": "s", "target": "t"}], None),
        ({"instance_id": "i", "history": [1]}, None),
    ],
)
def test_conversations_are_known_by_their_events(document: Any, expected: str | None) -> None:
    """A list of events, or an instance with its run; predictions and other lists are none."""
    found = sniff(json.dumps(document).encode())

    assert (found.name if found else None) == expected


def test_a_sample_conversation_is_read_as_it_was_written() -> None:
    """Each prompt, thought, call, result and reply of the builder's story comes back."""
    records, report = run(json.dumps(openhands_events(random.Random(1), TALE), indent=2).encode())

    exchanges = len(TALE)
    assert report.records == {
        "session": 1, "message": exchanges * 5, "tool_call": exchanges * 3, "tool_result": exchanges * 3,
        "event": exchanges,
    }  # fmt: skip
    assert set(report.lost) == {"absurd-time", "repeated-response"}
    assert [r["is_error"] for r in records if r["type"] == "tool_result"] == [
        call.failed for exchange in TALE for call in exchange.calls
    ]


@pytest.mark.needs_samples
@pytest.mark.parametrize(
    ("name", "counts", "tokens", "lost"),
    [
        ("basic", (3, 2, 1), (10, 1312, 3482, 4640), {"absurd-time": 4, "repeated-response": 1}),
        ("basic_interactions", (5, 1, 0), (169, 10, 2304, 0), {"absurd-time": 6}),
    ],
)
def test_real_conversations(
    name: str, counts: tuple[int, ...], tokens: tuple[int, ...], lost: dict[str, int]
) -> None:
    """Counted by hand: messages, calls, results; input, output, read from and written to a cache."""
    data = (Path(os.environ.get("AUTOCODE_SAMPLES", "")) / "openhands" / f"{name}.json").read_bytes()

    records, report = run(data)

    found = sniff(data[:HEAD_BYTES])
    assert found is not None
    assert found.name == "openhands"
    assert tuple(report.records[kind] for kind in ("message", "tool_call", "tool_result")) == counts
    assert tuple(report.tokens[kind] for kind in ("input", "output", "cache_read", "cache_write")) == tokens
    assert (report.lost, report.damaged_total, len(records)) == (lost, 0, 1 + sum(counts))
