"""Conversations of claude.ai, one or many in a file."""

from __future__ import annotations

from typing import Any

import pytest

from autocode.jobs.sessions.claude_ai import ClaudeAiReader
from unit.sessions.session_documents import kinds, read_document, texts

CLAUDE_AI = ClaudeAiReader()
AT = "2025-03-01T10:00:00.123456+00:00"


def said(sender: str = "human", text: str = "hi", content: Any = None, **more: Any) -> dict[str, Any]:
    """Return a message; without *content* it has one block, the text."""
    blocks = [{"type": "text", "text": text}] if content is None else content
    return {
        "uuid": f"m-{sender}",
        "text": text,
        "content": blocks,
        "sender": sender,
        "created_at": AT,
        **more,
    }


def conversation(*messages: Any, **more: Any) -> dict[str, Any]:
    """Return a conversation."""
    return {
        "uuid": "c-1",
        "name": "A name",
        "created_at": AT,
        "account": {"uuid": "a"},
        **more,
        "chat_messages": list(messages),
    }


def one(*messages: Any, **more: Any) -> Any:
    """Read one conversation."""
    return read_document(conversation(*messages, **more), CLAUDE_AI, indent=2)


def test_the_session_is_the_conversation() -> None:
    """Its id, name and time are the record's, the rest is kept, and the model is remembered."""
    records, report = one(said(), model="claude-x", summary="")

    assert (records[0]["session_id"], records[0]["title"]) == ("c-1", "A name")
    assert records[0]["at"] == "2025-03-01T10:00:00.123Z"
    assert records[0]["extra"] == {"account": {"uuid": "a"}, "model": "claude-x", "summary": ""}
    assert (report.session_id, report.title, report.models) == ("c-1", "A name", ["claude-x"])


@pytest.mark.parametrize(("name", "kept"), [("", False), ("x" * 2000, True), (5, True)])
def test_a_name_that_is_no_title(name: Any, kept: bool) -> None:
    """An empty one says nothing; one that is too long, or none, stays as it is."""
    records, report = one(said(), name=name)

    assert (records[0]["title"], report.title, "name" in records[0]["extra"]) == (None, None, kept)


def test_blocks_become_records() -> None:
    """Thinking, calls, results and text stand in their order, with what else a block says."""
    blocks = [
        {"type": "thinking", "thinking": "T", "summaries": [{"summary": "s"}]},
        {"type": "tool_use", "id": "t-1", "name": "search", "input": {"q": 1}, "integration_name": "i"},
        {
            "type": "tool_result",
            "tool_use_id": "t-1",
            "name": "search",
            "content": [{"type": "text", "text": "r"}],
        },
        {"type": "text", "text": "a", "citations": []},
    ]

    records, report = one(said("assistant", "a", blocks, parent_message_uuid="m-human", index=1))

    assert kinds(records) == ["thinking", "tool_call", "tool_result", "message"]
    assert {record["parent"] for record in records[1:]} == {"m-human"}
    assert records[1]["extra"] == {"summaries": [{"summary": "s"}], "index": 1}
    assert (records[2]["input"], records[2]["extra"]) == ({"q": 1}, {"integration_name": "i"})
    assert (records[3]["call"], records[3]["is_error"]) == ("m-assistant.1", False)
    assert records[4]["content"] == [{"type": "text", "text": "a", "extra": {"citations": []}}]
    assert report.lost == {}


def test_the_first_message_follows_none() -> None:
    """The id that stands for nobody isn't a parent."""
    records, _ = one(said(parent_message_uuid="00000000-0000-4000-8000-000000000000"))

    assert (records[1]["parent"], "extra" in records[1]) == (None, False)


@pytest.mark.parametrize(
    ("text", "content", "told", "extra"),
    [
        ("a", [{"type": "text", "text": "a"}], ["a"], None),
        ("a\n\nb", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], ["a", "b"], None),
        ("other", [{"type": "text", "text": "a"}], ["a"], {"text": "other"}),
        ("only", [], ["only"], None),
        ("only", None, ["only"], None),
        ("before", [{"type": "new"}], ["before"], None),
        (5, [{"type": "text", "text": "a"}], ["a"], {"text": 5}),
    ],
)
def test_the_text_beside_the_blocks_is_told_once(
    text: Any, content: Any, told: list[str], extra: Any
) -> None:
    """It repeats the blocks, or stands for them where there are none, or is kept beside them."""
    message = said(text=text) | {"content": content}

    records, _ = one(message)

    assert (texts(records[1]), records[1].get("extra")) == (told, extra)


def test_attachments_and_files_are_parts_of_what_was_said() -> None:
    """Each is a document with all that is known of it, also where nothing else was said."""
    attached = {"file_name": "n.txt", "extracted_content": "inside"}
    thinking = [{"type": "thinking", "thinking": "T"}]

    records, report = one(
        said(attachments=[attached], files=[{"file_uuid": "f"}]),
        said("assistant", "", thinking, attachments=[attached], files=None),
    )

    documents = [{"type": "document", "data": attached}, {"type": "document", "data": {"file_uuid": "f"}}]
    assert records[1]["content"] == [{"type": "text", "text": "hi"}, *documents]
    assert kinds(records) == ["message", "thinking", "message"]
    assert records[3]["content"] == documents[:1]
    assert report.lost == {}


def test_what_isnt_understood_is_kept_whole() -> None:
    """Blocks, senders and messages of another shape are counted."""
    records, report = one(
        said("tool"), said(content={"odd": 1}, uuid="x"), 5, said(content=[{"type": "new"}], text="")
    )

    assert kinds(records) == ["unknown", "unknown", "unknown", "message"]
    assert records[4]["content"] == [{"type": "unknown", "data": {"type": "new"}}]
    assert report.lost == {
        "unknown-shape:tool": 1,
        "unknown-shape:human": 1,
        "unknown-type:int": 1,
        "unknown-part:new": 1,
    }


def test_an_export_has_a_session_for_each_conversation() -> None:
    """Conversations follow one another; identity that stands behind the messages is waited for."""
    first = conversation(said())
    second = {
        "chat_messages": [said(uuid="n-1"), said("assistant", uuid="n-2")],
        "uuid": "c-2",
        "name": "Late",
    }

    records, report = read_document([first, second], CLAUDE_AI)

    sessions = [record for record in records if record["type"] == "session"]
    assert [(each["session_id"], each["title"]) for each in sessions] == [("c-1", "A name"), ("c-2", "Late")]
    assert kinds(records) == ["message", "session", "message", "message", "event"]
    assert records[-1]["data"] == {"uuid": "c-2", "name": "Late"}
    assert (report.sessions, report.session_id, report.title) == (2, None, None)
