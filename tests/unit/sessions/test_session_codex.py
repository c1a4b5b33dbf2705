"""What the reader for Codex rollouts makes of each kind of line."""

from __future__ import annotations

from typing import Any

import pytest

from autocode.jobs.canonical import canonical_json, digest_of
from unit.sessions.session_lines import AT, CODEX, body, item, line, meta, read


def one(value: dict[str, Any]) -> dict[str, Any]:
    """Return the only record of a line."""
    (record,) = body(line(value), CODEX)
    return record


def test_the_session_comes_from_the_meta_line() -> None:
    """The session record has the ids, the place and the versions; the line itself stays an event."""
    git = {"commit_hash": "c0ffee", "branch": "main", "repository_url": "ssh://host/repo"}
    data = line(
        meta(git=git, originator="codex_cli_rs", model_provider="openai", base_instructions={"text": "x"})
    )

    records, report = read(data, CODEX)

    session, event = records
    assert (session["session_id"], session["at"], session["cwd"]) == ("r-1", AT, "/home/dev/project")
    assert (session["git_branch"], session["git_commit"], session["git_remote"]) == (
        "main",
        "c0ffee",
        "ssh://host/repo",
    )
    assert (session["tool_version"], session["client"]) == ("0.104.0", "codex_cli_rs")
    assert (session["model_provider"], session["agent_id"]) == ("openai", None)
    assert (event["type"], event["name"], event["data"]["base_instructions"]) == (
        "event",
        "session_meta",
        {"text": "x"},
    )
    assert (report.session_id, report.tool) == ("r-1", "codex")


@pytest.mark.parametrize(
    ("more", "agent", "parent"),
    [
        ({"forked_from_id": "r-0"}, None, "r-0"),
        ({"source": {"subagent": {"thread_spawn": {"parent_thread_id": "r-0", "depth": 1}}}}, "r-1", "r-0"),
        ({"source": {"subagent": "review"}}, "r-1", None),
        ({"source": "vscode"}, None, None),
    ],
)
def test_forks_and_subagents_name_their_parent(
    more: dict[str, Any], agent: str | None, parent: str | None
) -> None:
    """A fork names the thread that it came from, a spawned agent the thread that spawned it."""
    _, report = read(line(meta(**more)), CODEX)

    assert (report.session_id, report.agent_id, report.parent_session_id) == ("r-1", agent, parent)


def test_the_first_session_meta_names_the_session() -> None:
    """A fork repeats the parent's lines, its meta line too; that one is an event."""
    records, report = read(line(meta()) + line(meta(id="r-0")), CODEX)

    assert report.session_id == "r-1"
    assert [record["type"] for record in records] == ["session", "event", "event"]


def test_a_message() -> None:
    """Texts and images become parts; what has no field of its own is kept."""
    content = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBOR"},
        {"type": "input_image", "image_url": "https://host/i.png", "detail": "high"},
        {"type": "hologram"},
    ]
    data = line(
        item({"type": "message", "id": "msg_1", "role": "developer", "content": content, "phase": "x"})
    )

    records, report = read(data, CODEX)

    assert (records[1]["id"], records[1]["role"], records[1]["extra"]) == (
        "msg_1",
        "developer",
        {"phase": "x"},
    )
    assert records[1]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "media_type": "image/png", "data": "iVBOR"},
        {"type": "image", "url": "https://host/i.png", "extra": {"detail": "high"}},
        {"type": "unknown", "data": {"type": "hologram"}},
    ]
    assert report.lost == {"unknown-part:hologram": 1}


def test_the_second_telling_of_a_message_is_an_event() -> None:
    """What the terminal was told is kept, but not as a second message."""
    said = item({"type": "agent_message", "message": "hi"}, "event_msg")

    assert one(said) | {"source": None} == {
        "seq": 1,
        "id": "L1",
        "type": "event",
        "at": AT,
        "parent": None,
        "source": None,
        "name": "event_msg/agent_message",
        "data": {"type": "agent_message", "message": "hi"},
    }


@pytest.mark.parametrize(
    ("content", "summary", "text", "extra"),
    [
        (None, ["a", "b"], "a\n\nb", {}),
        (["full"], ["a"], "full", {"summary": [{"type": "summary_text", "text": "a"}]}),
        (None, [], "", {}),
    ],
)
def test_reasoning(content: list[str] | None, summary: list[str], text: str, extra: dict[str, Any]) -> None:
    """Thinking is the full text where there is one, else the summary; the encrypted copy is only noted."""
    full = [{"type": "reasoning_text", "text": part} for part in content or ()]
    payload = {
        "type": "reasoning",
        "content": full or None,
        "summary": [{"type": "summary_text", "text": part} for part in summary],
        "encrypted_content": "gAAAA",
    }

    records, report = read(line(item(payload)), CODEX)

    assert (records[1]["type"], records[1]["text"], records[1]["encrypted"]) == ("thinking", text, True)
    assert records[1].get("extra", {}) == extra
    assert report.lost == {"encrypted-thinking": 1}


@pytest.mark.parametrize(
    ("payload", "name", "value"),
    [
        ({"type": "function_call", "name": "shell", "arguments": '{"a":[1]}'}, "shell", {"a": [1]}),
        ({"type": "function_call", "name": "shell", "arguments": '{"a":'}, "shell", '{"a":'),
        ({"type": "function_call", "name": "shell", "arguments": "[1]"}, "shell", "[1]"),
        (
            {"type": "function_call", "name": "shell", "arguments": '{"a":"\\ud800"}'},
            "shell",
            '{"a":"\\ud800"}',
        ),
        (
            {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin"},
            "apply_patch",
            "*** Begin",
        ),
        ({"type": "local_shell_call", "action": {"command": ["ls"]}}, "local_shell", {"command": ["ls"]}),
        ({"type": "web_search_call", "status": "completed"}, "web_search", None),
    ],
)
def test_calls(payload: dict[str, Any], name: str, value: Any) -> None:
    """Arguments are parsed where they are exactly one object, and kept as they are where not."""
    record = one(item(payload))

    assert (record["type"], record["name"], record["input"]) == ("tool_call", name, value)


@pytest.mark.parametrize(
    ("output", "is_error", "content"),
    [
        ("done", None, [{"type": "text", "text": "done"}]),
        ({"content": "bad", "success": False}, True, [{"type": "text", "text": "bad"}]),
        ([{"type": "input_text", "text": "a"}], None, [{"type": "text", "text": "a"}]),
    ],
)
def test_results_point_at_their_calls(output: Any, is_error: bool | None, content: list[Any]) -> None:
    """An output names the record of its call and says whether it failed where the tool says so."""
    call = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c-1"}
    result = {"type": "function_call_output", "call_id": "c-1", "output": output}

    record = body(line(item(call)) + line(item(result)), CODEX)[1]

    assert (record["type"], record["call_id"], record["call"]) == ("tool_result", "c-1", "L1")
    assert (record["is_error"], record["content"]) == (is_error, content)


def test_a_compaction_names_the_copy_that_it_holds() -> None:
    """The second copy of the history isn't told again: its length and digest stand for it."""
    history = [{"type": "message", "role": "user", "content": []}, {"x": 1}]
    data = line(item({"message": "so far", "replacement_history": history}, "compacted"))

    records, report = read(data, CODEX)

    digest = digest_of(b"".join(canonical_json(entry) + b"\n" for entry in history))
    assert [record["type"] for record in records] == ["session", "compaction"]
    assert (records[1]["text"], records[1]["held"]) == ("so far", {"items": 2, "sha256": digest})
    assert report.lost == {"replacement-history": 2}


def test_tokens_are_what_the_running_total_grew_by() -> None:
    """Repeated totals count once, and a total that began anew is added to the one before."""
    totals = [(100, 40, 10), (100, 40, 10), (250, 90, 25), (30, 0, 5)]
    data = line(meta()) + b"".join(
        line(
            item(
                {
                    "type": "token_count",
                    "info": {
                        "total_token_usage": {
                            "input_tokens": a,
                            "cached_input_tokens": b,
                            "output_tokens": c,
                        },
                        "last_token_usage": {"input_tokens": 7, "cached_input_tokens": 2, "output_tokens": 1},
                    },
                },
                "event_msg",
            )
        )
        for a, b, c in totals
    )

    records, report = read(data, CODEX)

    assert report.tokens == {"input": 160 + 30, "output": 30, "cache_read": 90, "cache_write": 0}
    assert records[2]["usage"] == {"input": 5, "output": 1, "cache_read": 2, "cache_write": 0}


def test_models_and_title() -> None:
    """Models come from the turns, the title from the event that names the thread."""
    data = (
        line(item({"model": "gpt-2", "cwd": "/"}, "turn_context"))
        + line(item({"model": "gpt-1"}, "turn_context"))
        + line(item({"type": "thread_name_updated", "thread_name": "A name"}, "event_msg"))
    )

    _, report = read(data, CODEX)

    assert (report.models, report.title) == (["gpt-1", "gpt-2"], "A name")


def test_the_bare_lines_of_the_first_versions() -> None:
    """A rollout without envelopes is read: its first line is the meta line, items stand alone."""
    data = line({"id": "r-1", "timestamp": AT, "instructions": None}) + line(
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    )

    records, report = read(data, CODEX)

    assert [record["type"] for record in records] == ["session", "event", "message"]
    assert report.session_id == "r-1"
    assert report.lost == {}


@pytest.mark.parametrize(
    ("value", "loss"),
    [
        (item({"x": 1}, "brand_new"), "unknown-type:brand_new"),
        (item({"type": "brand_new"}), "unknown-type:response_item/brand_new"),
        (item("text"), "unknown-shape:response_item"),
        (item({"type": "message", "role": [], "content": "x"}), "unknown-type:response_item/message"),
        ({"type": {"a": 1}}, "unknown-type:dict"),
        ({"record_type": "state"}, "unknown-type:NoneType"),
        (7, "unknown-type:int"),
    ],
)
def test_valid_json_of_an_unknown_kind_is_kept_whole(value: Any, loss: str) -> None:
    """Nothing valid is dropped: what isn't understood is kept and counted."""
    records, report = read(line(value), CODEX)

    assert (records[1]["type"], records[1]["data"]) == ("unknown", value)
    assert report.lost == {loss: 1}


def test_other_fields_of_a_line_are_kept() -> None:
    """What a newer version adds beside the payload stays with the record."""
    assert one(item({"model": "m"}, "turn_context", ordinal=3))["line"] == {"ordinal": 3}
