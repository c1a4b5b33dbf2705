"""What the reader for Claude Code makes of each kind of line."""

from __future__ import annotations

from typing import Any

import pytest

from unit.sessions.session_lines import AT, assistant, body, line, read, user


def one(value: dict[str, Any]) -> dict[str, Any]:
    """Return the only record of a line."""
    (record,) = body(line(value))
    return record


def test_the_session_comes_first_and_says_what_the_head_knows() -> None:
    """The first record describes the session although the first lines don't name it."""
    snapshot = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False}
    data = line(snapshot) + line(user("hi", slug="calm-river", userType="external"))

    records, report = read(data)

    assert records[0] == {
        "seq": 0,
        "id": "session",
        "type": "session",
        "at": AT,
        "parent": None,
        "source": {"offset": 0, "length": 0},
        "format": 1,
        "tool": "claude-code",
        "reader": "claude-code",
        "reader_revision": 2,
        "session_id": "s-1",
        "agent_id": None,
        "parent_session_id": None,
        "cwd": "/home/dev/project",
        "git_branch": "main",
        "tool_version": "2.1.33",
        "user_type": "external",
        "slug": "calm-river",
        "model_provider": None,
    }
    assert (report.session_id, report.agent_id, report.complete) == ("s-1", None, True)


def test_a_source_without_records_still_has_a_session() -> None:
    """An empty source gives a session record that knows nothing, and a complete report."""
    records, report = read(b"")

    assert [record["type"] for record in records] == ["session"]
    assert (records[0]["session_id"], report.lines, report.complete) == (None, 0, True)


def test_a_subagent_names_itself_and_its_parent() -> None:
    """A side chain with an agent id is a subagent of the session that it names."""
    records, report = read(line(user("go", isSidechain=True, agentId="a21e2f5")))

    assert (report.session_id, report.agent_id, report.parent_session_id) == ("s-1", "a21e2f5", "s-1")
    assert records[1]["sidechain"] is True


def test_a_resumed_session_keeps_the_id_that_is_written_last() -> None:
    """Old versions copied the lines of the resumed session; the running one writes its own id."""
    _, report = read(line(user("a")) + line(user("b", sessionId="s-2")) + line(user("c", sessionId="s-2")))

    assert (report.session_id, report.parent_session_id) == ("s-2", "s-1")


def test_a_user_message() -> None:
    """Text becomes a message; fields that only this line has are kept, the session's aren't repeated."""
    record = one(user("hello", uuid="u-1", parentUuid="u-0", permissionMode="plan", todos=[]))

    assert record == {
        "seq": 1,
        "id": "u-1",
        "type": "message",
        "at": AT,
        "parent": "u-0",
        "source": record["source"],
        "role": "user",
        "content": [{"type": "text", "text": "hello"}],
        "extra": {"permissionMode": "plan", "todos": []},
    }


def test_an_answer_is_parted_by_its_blocks() -> None:
    """Thinking, texts and calls become records in order; what is said once stands on the first."""
    usage = {
        "input_tokens": 4,
        "output_tokens": 7,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 6,
        "service_tier": "standard",
    }
    blocks = [
        {"type": "thinking", "thinking": "hmm", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
        {"type": "text", "text": "one"},
        {"type": "text", "text": "two", "citations": ["c"]},
        {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}, "caller": {}},
    ]
    data = line(assistant(blocks, uuid="u-1", message={"usage": usage, "stop_reason": "tool_use"}))

    records, report = read(data)

    assert [(r["type"], r["id"]) for r in records[1:]] == [
        ("thinking", "u-1"),
        ("thinking", "u-1.1"),
        ("message", "u-1.2"),
        ("tool_call", "u-1.3"),
    ]
    thinking, hidden, message, call = records[1:]
    counts = {"input": 4, "output": 7, "cache_read": 5, "cache_write": 6}
    assert (thinking["text"], thinking["signed"], thinking["encrypted"]) == ("hmm", True, False)
    assert (thinking["model"], thinking["message_id"], thinking["request_id"]) == (
        "model-1",
        "msg_1",
        "req_1",
    )
    assert (thinking["stop_reason"], thinking["usage"]) == ("tool_use", counts)
    assert thinking["extra"] == {"message": {"usage": {"service_tier": "standard"}}}
    assert (hidden["text"], hidden["encrypted"], "usage" in hidden) == ("", True, False)
    assert message["content"][1] == {"type": "text", "text": "two", "extra": {"citations": ["c"]}}
    assert (call["call_id"], call["name"], call["input"]) == ("toolu_1", "Bash", {"command": "ls"})
    assert call["extra"] == {"caller": {}}
    assert report.lost == {"thinking-signature": 1, "encrypted-thinking": 1}
    assert b"c2lnbmVk" not in str(records).encode()
    assert (report.tokens, report.models) == (counts, ["model-1"])


def test_a_result_points_at_its_call() -> None:
    """A tool's answer names the record that asked for it, and keeps texts, images and the tool's account."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR"}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "is_error": True,
        "content": [{"type": "text", "text": "no"}, image, {"type": "tool_reference", "tool_name": "x"}],
    }
    lost = {"type": "tool_result", "tool_use_id": "toolu_9", "content": "gone"}
    answers = user([result, lost], toolUseResult={"stdout": "no"})
    data = line(assistant([call], uuid="u-1")) + line(answers)

    records, report = read(data)

    first, second = records[2:]
    assert (first["call_id"], first["call"], first["is_error"]) == ("toolu_1", "u-1", True)
    assert first["content"] == [
        {"type": "text", "text": "no"},
        {"type": "image", "media_type": "image/png", "data": "iVBOR"},
        {"type": "unknown", "data": {"type": "tool_reference", "tool_name": "x"}},
    ]
    assert first["extra"] == {"toolUseResult": {"stdout": "no"}}
    assert (second["id"], second["call"], second["is_error"]) == ("L2.1", None, False)
    assert report.lost == {"unknown-part:tool_reference": 1}


def test_an_empty_answer_is_a_message() -> None:
    """A message without any block isn't dropped."""
    assert one(assistant([]))["content"] == []


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"type": "progress", "data": {"type": "hook_progress", "hook": "x"}}, "progress/hook_progress"),
        ({"type": "system", "subtype": "turn_duration", "durationMs": 5}, "system/turn_duration"),
        ({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}, "file-history-snapshot"),
        ({"type": "queue-operation", "operation": "enqueue", "content": "/x"}, "queue-operation"),
        ({"type": "attachment", "attachment": {"type": "file"}}, "attachment"),
    ],
)
def test_other_lines_are_events_with_all_they_hold(value: dict[str, Any], name: str) -> None:
    """Progress, hooks, snapshots and the like are kept whole under ``data``."""
    record = one(value)

    assert (record["type"], record["name"]) == ("event", name)
    assert record["data"] == {key: item for key, item in value.items() if key != "type"}


def test_compaction() -> None:
    """A compact boundary says what set it off and how much there was; the chain goes on in ``extra``."""
    record = one(
        user(
            type="system",
            subtype="compact_boundary",
            content="Conversation compacted",
            logicalParentUuid="u-9",
            compactMetadata={"trigger": "auto", "preTokens": 155031},
        )
    )

    assert (record["type"], record["trigger"], record["tokens_before"]) == ("compaction", "auto", 155031)
    assert record["text"] == "Conversation compacted"
    assert record["extra"]["logicalParentUuid"] == "u-9"


def test_a_summary_is_the_title_only_of_its_own_session() -> None:
    """Of several summaries the last one about a message of this session is the title."""
    data = (
        line({"type": "summary", "summary": "Mine", "leafUuid": "u-1"})
        + line({"type": "summary", "summary": "Somebody else's", "leafUuid": "u-8"})
        + line(user("a", uuid="u-1"))
    )

    records, report = read(data)

    assert [record["text"] for record in records[1:3]] == ["Mine", "Somebody else's"]
    assert (records[1]["leaf"], report.title) == ("u-1", "Mine")


def test_a_custom_title_wins() -> None:
    """The title that a user gave beats the one that a model gave."""
    data = line(user("a")) + b"".join(
        line({"type": kind, key: title, "sessionId": "s-1"})
        for kind, key, title in (("custom-title", "customTitle", "Own"), ("ai-title", "aiTitle", "Made"))
    )

    assert read(data)[1].title == "Own"


@pytest.mark.parametrize(
    ("value", "loss"),
    [
        ({"type": "brand-new", "x": [1]}, "unknown-type:brand-new"),
        ({"x": 1}, "unknown-type:NoneType"),
        ({"type": ["user"]}, "unknown-type:list"),
        ({"type": "user", "message": "text"}, "unknown-shape:user"),
        ({"type": "user", "message": {"role": {}, "content": "x"}}, "unknown-shape:user"),
        ({"type": "assistant", "message": {"content": 5}}, "unknown-shape:assistant"),
        ([1, 2], "unknown-type:list"),
        ("text", "unknown-type:str"),
        (None, "unknown-type:NoneType"),
    ],
)
def test_valid_json_of_an_unknown_kind_is_kept_whole(value: Any, loss: str) -> None:
    """Nothing valid is dropped: what isn't understood is kept and counted."""
    records, report = read(line(value))

    assert (records[1]["type"], records[1]["data"]) == ("unknown", value)
    assert report.lost == {loss: 1}


def test_streamed_duplicates_are_kept_and_counted_once() -> None:
    """Each record of a streamed message stays; the totals take the last one's counts."""
    lines = [
        assistant(
            [{"type": "text", "text": str(n)}], message={"usage": {"input_tokens": 9, "output_tokens": n}}
        )
        for n in (1, 4, 6)
    ]

    records, report = read(b"".join(map(line, lines)))

    assert [record["usage"]["output"] for record in records[1:]] == [1, 4, 6]
    assert (report.tokens["input"], report.tokens["output"]) == (9, 6)


def test_a_second_record_with_an_id_keeps_it_beside_its_own() -> None:
    """The tool's id stays in ``extra`` when it was already used."""
    first, second = body(line(user("a", uuid="u-1")) * 2)

    assert (first["id"], second["id"], second["extra"]) == ("u-1", "L2", {"uuid": "u-1"})


def test_an_absurd_time_is_no_time() -> None:
    """A time that can't be meant is null, counted, kept as it was, and outside the session's range."""
    records, report = read(line(user("a")) + line(user("b", timestamp="1970-01-01T00:00:00.000Z")))

    assert (records[2]["at"], records[2]["raw_at"]) == (None, "1970-01-01T00:00:00.000Z")
    assert (report.first_at, report.last_at, report.lost) == (AT, AT, {"absurd-time": 1})


def test_times_out_of_order_keep_the_order_of_the_file() -> None:
    """Records follow the file; the report has the earliest and the latest time."""
    early, late = "2026-01-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z"

    records, report = read(line(user("a", timestamp=late)) + line(user("b", timestamp=early)))

    assert [record["at"] for record in records[1:]] == [late, early]
    assert (report.first_at, report.last_at) == (early, late)


def test_a_report_is_plain_json_without_order() -> None:
    """The report's JSON has sorted counters and no trace of when or where it was made."""
    _, report = read(
        line(assistant([{"type": "text", "text": "x"}])) + line({"type": "zzz"}) + line({"type": "aaa"})
    )

    found = report.to_json()

    assert list(found["lost"]) == ["unknown-type:aaa", "unknown-type:zzz"]
    assert found["records"] == {"message": 1, "session": 1, "unknown": 2}
    assert (found["lines"], found["damaged"], found["format"], found["sessions"]) == (3, [], 1, 1)


def test_names_in_a_report_are_bounded() -> None:
    """A file of a thousand unknown types can't blow up the report."""
    _, report = read(b"".join(line({"type": f"kind-{n}"}) for n in range(1000)))

    assert len(report.lost) == 201
    assert sum(report.lost.values()) == 1000
    assert max(map(len, report.lost)) <= 64 + len("unknown-type:")


def test_fields_of_a_block_and_of_its_line_are_kept_together() -> None:
    """What a block has beyond its type's fields isn't replaced by what its line has, even under one name."""
    block = {"type": "tool_use", "id": "t", "name": "n", "input": {}, "caller": {"type": "direct"}}

    beside = body(line(assistant([block], isMeta=True)))[0]
    named_alike = body(line(assistant([block], caller="someone")))[0]

    assert beside["extra"] == {"caller": {"type": "direct"}, "isMeta": True}
    assert named_alike["extra"] == {"caller": "someone", "block": {"caller": {"type": "direct"}}}


def test_a_text_that_is_no_record_does_not_name_its_loss() -> None:
    """The report counts it by the kind of value; what was said is in the record alone."""
    records, report = read(b'"a text of the session"\n' + line(user()))

    assert records[1]["data"] == "a text of the session"
    assert report.lost == {"unknown-type:str": 1}


def test_a_name_in_the_report_is_whole_or_not_there() -> None:
    """A secret in a type's place stays as it was written, so that redaction can see it, or isn't named."""
    short, long = 'password="Zhunter2Z9q"', "x" * 65

    _, report = read(line(user()) + line({"type": short}) + line({"type": long}))

    assert {"unknown-type:" + short, "unknown-type:odd"} <= report.lost.keys()
