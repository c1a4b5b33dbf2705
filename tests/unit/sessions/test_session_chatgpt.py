"""Conversations of ChatGPT: trees, told along the path that is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autocode.jobs.sessions import chatgpt
from autocode.jobs.sessions.chatgpt import ChatGptReader
from unit.sessions.session_documents import kinds, read_document, texts

CHATGPT = ChatGptReader()
NODE = tuple[str, str | None, dict[str, Any] | None]


def message(role: str, content: Any, *, recipient: str = "all", **more: Any) -> dict[str, Any]:
    """Return a message; a text is one of type ``text``."""
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    author: dict[str, Any] = {"role": role, "name": None, "metadata": {}}
    return {
        "author": author,
        "content": content,
        "create_time": 1686792382.1049,
        "recipient": recipient,
        **more,
    }


def conversation(*nodes: NODE, current: Any = "", **more: Any) -> dict[str, Any]:
    """Return a conversation of nodes, each given as id, parent and message; the last one is the current."""
    children: dict[str | None, list[str]] = {}
    for name, parent, _ in nodes:
        children.setdefault(parent, []).append(name)
    mapping = {
        name: {"id": name, "message": said, "parent": parent, "children": children.get(name, [])}
        for name, parent, said in nodes
    }
    return {
        "title": "A title",
        "create_time": 1686792382.104189,
        "update_time": 1686792390.0,
        "mapping": mapping,
        "current_node": nodes[-1][0] if current == "" else current,
        "conversation_id": "c-1",
        "id": "c-1",
        **more,
    }


def one(*nodes: NODE, **more: Any) -> Any:
    """Read one conversation."""
    return read_document(conversation(*nodes, **more), CHATGPT)


def test_the_session_knows_what_stands_behind_the_nodes() -> None:
    """Id, title and time are the record's, wherever they stand; what isn't shown elsewhere is kept."""
    records, report = one(("a", None, message("user", "hi")), gizmo_id="g")

    assert (records[0]["session_id"], records[0]["title"], records[0]["at"]) == (
        "c-1", "A title", "2023-06-15T01:26:22.104Z",
    )  # fmt: skip
    assert records[0]["extra"] == {"update_time": 1686792390.0}
    assert records[-1]["name"] == "fields"
    assert records[-1]["data"] == {
        "current_node": "a",
        "conversation_id": "c-1",
        "id": "c-1",
        "gizmo_id": "g",
    }
    assert (report.session_id, report.title) == ("c-1", "A title")


def test_the_path_to_the_current_node_comes_first_and_branches_are_side_chains() -> None:
    """The order is root to current node; then what was generated or asked before, each with its parent."""
    records, report = one(
        ("root", None, None),
        ("old", "ask", message("assistant", "first answer")),
        ("more", "old", message("user", "and then?")),
        ("ask", "root", message("user", "question")),
        ("new", "ask", message("assistant", "second answer")),
    )

    told = [(record["id"], record["parent"], record.get("sidechain", False)) for record in records[1:-1]]
    assert told == [
        ("root", None, False),
        ("ask", "root", False),
        ("new", "ask", False),
        ("old", "ask", True),
        ("more", "old", True),
    ]
    assert kinds(records) == ["event", "message", "message", "message", "message", "event"]
    assert (records[1]["name"], records[1]["data"]) == ("node", {})
    assert "node" not in str(records[2].get("extra"))
    assert report.lost == {}


@pytest.mark.parametrize("current", [None, "gone", 7])
def test_without_a_current_node_the_last_leaf_is_it(current: Any) -> None:
    """Some exports don't name it, or name one that isn't there."""
    records, _ = one(
        ("a", None, message("user", "q")),
        ("b", "a", message("assistant", "1")),
        ("c", "a", message("assistant", "2")),
        current=current,
    )

    assert [(record["id"], "sidechain" in record) for record in records[1:4]] == [
        ("a", False), ("c", False), ("b", True),
    ]  # fmt: skip


def test_parents_in_a_circle_and_nodes_that_are_none_do_no_harm() -> None:
    """The walk ends, the circle is counted, and what isn't a node is kept."""
    whole = conversation(("a", "b", message("user", "q")), ("b", "a", message("assistant", "x")))
    whole["mapping"] |= {"odd": 3, "empty": {"id": "empty", "parent": "b"}, "bare": {"message": "text"}}

    records, report = read_document(whole, CHATGPT)

    assert [record["id"] for record in records[1:3]] == ["a", "b"]
    assert kinds(records) == ["message", "message", "unknown", "unknown", "unknown", "event"]
    assert report.lost == {"cyclic-parent": 1, "unknown-shape:node": 2, "unknown-type:message": 1}


def test_what_is_said_to_a_tool_is_a_call_and_what_it_says_the_result() -> None:
    """A call has no id of its own: its answer is linked by the tree, whatever kind either is."""
    code = {"content_type": "code", "language": "unknown", "text": '{"q": "x"}'}
    shown = {"content_type": "tether_browsing_display", "result": "found", "summary": "s", "assets": None}
    error = {"content_type": "system_error", "name": "E", "text": "failed"}
    printed = {"content_type": "execution_output", "text": "4"}

    records, report = one(
        ("a", None, message("assistant", code, recipient="browser")),
        ("b", "a", message("tool", shown, author={"role": "tool", "name": "browser", "metadata": {}})),
        ("c", "b", message("assistant", "2 + 2", recipient="python")),
        ("d", "c", message("tool", printed)),
        ("e", "d", message("tool", error)),
        ("f", "e", message("assistant", {"content_type": "code", "language": "py", "text": "4"})),
    )

    assert kinds(records)[:-1] == [
        "tool_call",
        "tool_result",
        "tool_call",
        "tool_result",
        "tool_result",
        "message",
    ]
    call, result, plain, output, failed, message_ = records[1:7]
    assert (call["name"], call["input"], call["call_id"]) == ("browser", {"q": "x"}, None)
    assert call["extra"] == {"content": {"language": "unknown"}, "content_type": "code"}
    assert (result["call"], texts(result), result["is_error"]) == ("a", ["found"], None)
    assert result["extra"]["author"] == {"name": "browser"}
    assert result["extra"]["content"] == {"summary": "s"}
    assert (plain["input"], output["call"], texts(output)) == ("2 + 2", "c", ["4"])
    assert (failed["call"], failed["is_error"]) == (None, True)
    assert (message_["role"], texts(message_)) == ("assistant", ["4"])
    assert report.lost == {}


def test_thoughts_contexts_and_recaps() -> None:
    """Thoughts are thinking; what the program tells the model is an event."""
    thoughts = [{"summary": "S", "content": "C", "finished": True}, {"summary": "", "content": "D"}, 5]
    context = {"content_type": "user_editable_context", "user_profile": "p", "user_instructions": "i"}
    thought = message("assistant", {"content_type": "thoughts", "thoughts": thoughts})

    records, report = one(
        ("a", None, message("user", context)),
        ("b", "a", thought | {"metadata": {"model_slug": "o3"}}),
        ("c", "b", message("assistant", {"content_type": "reasoning_recap", "content": "Thought for 5s"})),
        ("d", "c", message("assistant", {"content_type": "thoughts", "thoughts": []})),
    )

    assert kinds(records)[:-1] == ["event", "thinking", "thinking", "unknown", "event", "thinking"]
    assert records[1]["data"] == {**context, "role": "user"}
    assert [record["text"] for record in records[2:4]] == ["S\n\nC", "D"]
    assert (records[2]["model"], records[2]["extra"]["finished"], report.models) == ("o3", True, ["o3"])
    assert records[5]["data"]["content"] == "Thought for 5s"
    assert report.lost == {"unknown-shape:thought": 1}


def test_parts_of_a_multimodal_message() -> None:
    """Pictures are named, dictated text is text, and what isn't known is kept."""
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://f", "width": 3}
    spoken = {"content_type": "audio_transcription", "text": "said", "direction": "in"}
    sound = {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://a"}
    parts = [picture, "", "typed", spoken, sound, {"content_type": "hologram"}, 5]

    records, report = one(("a", None, message("user", {"content_type": "multimodal_text", "parts": parts})))

    assert records[1]["content"] == [
        {"type": "image", "url": "file-service://f", "extra": {"width": 3}},
        {"type": "text", "text": "typed"},
        {"type": "text", "text": "said", "extra": {"content_type": "audio_transcription", "direction": "in"}},
        {"type": "document", "data": sound},
        {"type": "unknown", "data": {"content_type": "hologram"}},
        {"type": "unknown", "data": 5},
    ]
    assert report.lost == {"unknown-part:hologram": 1, "unknown-part:int": 1}


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        (message("user", {"content_type": "new_thing", "x": 1}), "unknown-type:new_thing"),
        (message("user", {"content_type": "text", "parts": "no list"}), "unknown-type:text"),
        (message("robot", "x"), "unknown-type:text"),
        ({"content": {"content_type": "text", "parts": []}}, "unknown-type:text"),
        ({"author": 1, "content": None}, "unknown-type:message"),
    ],
)
def test_messages_that_arent_understood_are_kept_whole(said: dict[str, Any], lost: str) -> None:
    """They are unknown and counted, with their place in the tree."""
    records, report = one(("a", "zero", said))

    assert (records[1]["type"], records[1]["id"], records[1]["parent"]) == ("unknown", "a", "zero")
    assert records[1]["data"]["message"] == said
    assert report.lost == {lost: 1}


def test_all_that_is_said_of_a_message_is_kept() -> None:
    """Hidden flags, status, weights, times and odd children stay beside it."""
    metadata = {"is_visually_hidden_from_conversation": True, "attachments": [{"name": "n"}]}
    said = message("system", "", metadata=metadata, status="done", weight=0.0, update_time=1.5, id="other")
    whole = conversation(("a", None, said), ("b", "a", message("user", "x", id="b", create_time=1e300)))
    whole["mapping"]["a"] |= {"children": ["nobody"], "new": 1}

    records, report = read_document(whole, CHATGPT)

    assert records[1]["extra"] == {
        "node": {"new": 1, "children": ["nobody"]},
        "metadata": metadata,
        "status": "done",
        "weight": 0.0,
        "update_time": 1.5,
        "id": "other",
    }
    assert records[1]["content"] == []
    assert (records[2]["at"], records[2]["raw_at"], "extra" in records[2]) == (None, 1e300, False)
    assert report.lost == {"absurd-time": 1}


def test_an_export_has_a_session_for_each_conversation() -> None:
    """Each begins with its record; a root that all have by one name is told apart."""
    nodes: tuple[NODE, ...] = (("root", None, None), ("x", "root", message("user", "hi")))
    first, second = conversation(*nodes), conversation(*nodes, conversation_id="c-2", id="c-2", title="Other")
    second["mapping"]["y"] = {**second["mapping"].pop("x"), "id": "y"}
    second["current_node"] = "y"

    records, report = read_document([first, second, 5], CHATGPT)

    sessions = [record for record in records if record["type"] == "session"]
    assert [(each["session_id"], each["title"]) for each in sessions] == [
        ("c-1", "A title"),
        ("c-2", "Other"),
    ]
    assert (report.sessions, report.session_id, report.title) == (2, None, None)
    last = next(record for record in records if record["id"] == "y")
    root = records[sessions[1]["seq"] + 1]
    assert (root["extra"]["id"], last["parent"]) == ("root", root["id"])
    assert records[-1]["data"] == 5
    assert report.lost == {"duplicate-id": 1, "unknown-type:int": 1}


def test_a_conversation_too_long_to_wait_for_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the branches aren't known when nodes are told, that is counted for each."""
    monkeypatch.setattr(chatgpt._Conversations, "held", 1500)
    nodes: list[NODE] = [(f"n{n}", f"n{n - 1}" if n else None, message("user", "x" * 300)) for n in range(9)]

    records, report = one(*nodes)

    assert [record["id"] for record in records[1:10]] == [f"n{n}" for n in range(9)]
    assert not [record for record in records if "sidechain" in record]
    assert report.lost == {"branch-unknown": 9}
    # which children a node has isn't known either, so they are kept as they are
    assert records[1]["extra"]["node"] == {"children": ["n1"]}


def test_a_broken_node_costs_itself() -> None:
    """The nodes around it and the next conversation are read."""
    nodes: tuple[NODE, ...] = (
        ("a", None, message("user", "1")),
        ("b", "a", message("user", "2")),
        ("c", "b", message("user", "3")),
    )
    other = conversation(("d", None, message("user", "4")), conversation_id="c-2")
    data = json.dumps([conversation(*nodes), other]).replace('["2"]', '["2]').encode()

    records, report = read_document(data, CHATGPT)

    assert [texts(record)[0] for record in records if record["type"] == "message"] == ["3", "1", "4"]
    assert (report.damaged_total, report.sessions) == (1, 2)
