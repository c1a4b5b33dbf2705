"""Sessions of Gemini CLI: one document, or a line for each message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autocode.jobs.sessions.gemini_cli import GeminiReader
from unit.sessions.session_documents import kinds, read_document, texts

GEMINI = GeminiReader()
AT = "2026-01-10T20:00:21.501Z"
HEAD = {"sessionId": "s-1", "projectHash": "p", "startTime": AT, "lastUpdated": "2026-01-10T20:00:32.660Z"}


def said(kind: str = "gemini", content: Any = "", **more: Any) -> dict[str, Any]:
    """Return a message."""
    return {"id": f"m-{kind}", "timestamp": AT, "type": kind, "content": content, **more}


def call(result: Any, **more: Any) -> dict[str, Any]:
    """Return a tool call."""
    return {"id": "c-1", "name": "read_file", "args": {"p": 1}, "result": result, "timestamp": AT, **more}


def answer(response: Any, **more: Any) -> list[dict[str, Any]]:
    """Return the result of a tool call."""
    return [{"functionResponse": {"id": "c-1", "name": "read_file", "response": response, **more}}]


def one(*messages: dict[str, Any], **more: Any) -> Any:
    """Read a session with *messages*."""
    return read_document({**HEAD, "messages": list(messages), **more}, GEMINI, indent=2)


def test_the_session_is_what_the_document_begins_with() -> None:
    """Its id and time are the record's, the rest is kept, and fields behind the messages are an event."""
    records, report = one(said("user", "hi"), summary="Mending", kind="subagent")

    assert records[0] | {"source": None} == {
        "seq": 0, "id": "session", "type": "session", "at": AT, "parent": None, "source": None, "format": 1,
        "tool": "gemini-cli", "reader": "gemini-cli", "reader_revision": 1, "session_id": "s-1",
        "agent_id": None, "parent_session_id": None, "cwd": None, "git_branch": None, "tool_version": None,
        "model_provider": None, "title": None,
        "extra": {"projectHash": "p", "lastUpdated": HEAD["lastUpdated"]},
    }  # fmt: skip
    assert (records[-1]["name"], records[-1]["data"]) == (
        "fields",
        {"summary": "Mending", "kind": "subagent"},
    )
    assert (report.session_id, report.title, report.sessions, report.first_at) == ("s-1", "Mending", 1, AT)


def test_a_subagent_has_an_id_of_its_own() -> None:
    """A session that says so is one of a subagent."""
    records, report = read_document({**HEAD, "kind": "subagent", "messages": []}, GEMINI)

    assert (records[0]["agent_id"], report.agent_id) == ("s-1", "s-1")


def test_a_turn_becomes_thoughts_text_and_calls_with_their_results() -> None:
    """In that order, all from one message; the first record says the model and the tokens."""
    thought = {"subject": "Looking", "description": "At it.", "timestamp": "2026-01-10T20:00:20.000Z"}
    tokens = {"input": 100, "output": 7, "cached": 40, "thoughts": 5, "tool": 3, "total": 115}

    records, report = one(
        said(
            content="Done.",
            thoughts=[thought],
            toolCalls=[call(answer({"output": "text"}), status="success", displayName="ReadFile")],
            model="gemini-3",
            tokens=tokens,
        )
    )

    assert kinds(records) == ["thinking", "message", "tool_call", "tool_result"]
    thinking, message, made, result = records[1:]
    assert [record["id"] for record in records[1:]] == ["m-gemini", "m-gemini.1", "m-gemini.2", "m-gemini.3"]
    assert (thinking["text"], thinking["at"]) == ("Looking\n\nAt it.", "2026-01-10T20:00:20.000Z")
    assert (thinking["model"], thinking["extra"]) == ("gemini-3", {"tokens": tokens})
    assert thinking["usage"] == {"input": 63, "output": 12, "cache_read": 40, "cache_write": 0}
    assert (message["role"], texts(message)) == ("assistant", ["Done."])
    assert (made["call_id"], made["name"], made["input"]) == ("c-1", "read_file", {"p": 1})
    assert made["extra"] == {"displayName": "ReadFile"}
    assert (result["call_id"], result["call"], result["is_error"]) == ("c-1", "m-gemini.2", False)
    assert texts(result) == ["text"]
    assert (report.tokens["input"], report.tokens["output"], report.models) == (63, 12, ["gemini-3"])
    assert report.lost == {}


@pytest.mark.parametrize(
    ("result", "status", "is_error", "content"),
    [
        (answer({"error": "no such file"}), "error", True, [
            {"type": "text", "text": "no such file", "extra": {"functionResponse": {"is_error": True}}},
        ]),
        (answer({"output": {"rows": 1}}), "success", False, [
            {"type": "document", "data": {"output": {"rows": 1}}},
        ]),
        (answer({"output": "x"}, name="other"), "success", False, [
            {"type": "text", "text": "x", "extra": {"functionResponse": {"name": "other"}}},
        ]),
        ("plain", "success", False, [{"type": "text", "text": "plain"}]),
        (None, "cancelled", None, []),
    ],
)  # fmt: skip
def test_results_of_tools(result: Any, status: str, is_error: bool | None, content: list[Any]) -> None:
    """Texts are parts, other answers are kept whole, and the outcome is told."""
    records, report = one(said(toolCalls=[call(result, status=status)]))

    assert kinds(records) == ["tool_call", "tool_result"]
    assert (records[2]["is_error"], records[2]["content"]) == (is_error, content)
    assert report.lost == {}


def test_a_call_that_is_not_over_has_no_result() -> None:
    """What has neither a result nor an outcome keeps its state."""
    records, _ = one(said(toolCalls=[call(None, status="executing")]))

    assert kinds(records) == ["tool_call"]
    assert records[1]["extra"] == {"status": "executing"}


def test_content_may_be_a_text_a_part_or_a_list() -> None:
    """Texts and pictures are told as such, files as documents, and what isn't known is counted and kept."""
    parts = [
        "a", {"text": "b"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        {"inlineData": {"mimeType": "application/pdf", "data": "BB=="}},
        {"fileData": {"fileUri": "gs://x", "mimeType": "image/png"}}, {"text": "t", "thought": True},
        {"odd": 1},
    ]  # fmt: skip

    records, report = one(
        said("user", {"text": "alone"}), said("user", parts, id="m-2", displayContent="a b")
    )

    assert texts(records[1]) == ["alone"]
    assert records[2]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
        {"type": "image", "media_type": "image/png", "data": "AA=="},
        {"type": "document", "data": {"inlineData": {"mimeType": "application/pdf", "data": "BB=="}}},
        {"type": "image", "url": "gs://x", "extra": {"fileData": {"mimeType": "image/png"}}},
        {"type": "text", "text": "t", "extra": {"thought": True}},
        {"type": "unknown", "data": {"odd": 1}},
    ]
    assert records[2]["extra"] == {"displayContent": "a b"}
    assert report.lost == {"unknown-part:odd": 1}


def test_notices_and_unknown_messages_are_kept_whole() -> None:
    """What the program itself says is an event; a message of no known kind is unknown."""
    records, report = one(said("error", "quota"), said("banner", "x"), said(id=7), {"id": "bare"})

    assert kinds(records) == ["event", "unknown", "message", "unknown"]
    assert (records[1]["name"], records[1]["data"]) == ("error", {"content": "quota"})
    assert records[2]["data"]["type"] == "banner"
    assert (records[3]["content"], records[3]["extra"]) == ([], {"id": 7})
    assert report.lost == {"unknown-type:banner": 1, "unusable-id": 1, "unknown-type:NoneType": 1}


def test_odd_shapes_are_kept() -> None:
    """Thoughts, calls and models of an unexpected shape are neither dropped nor fatal."""
    records, report = one(
        said(content="x", thoughts=["bare", {"subject": 1}], toolCalls=[{"args": 1}], model=3),
        said(content="y", id="m-2", thoughts="all", toolCalls=call("r", status="success"), tokens=4),
    )

    assert kinds(records) == ["message", "unknown", "message", "tool_call", "tool_result"]
    assert records[1]["extra"] == {"thoughts": ["bare", {"subject": 1}], "model": 3}
    assert records[3]["extra"] == {"thoughts": "all", "tokens": 4}
    assert report.lost == {"unknown-shape:toolCall": 1}


def test_later_versions_write_a_line_a_message() -> None:
    """A message written twice counts once, with its last tokens; updates are events."""
    lines = [
        {**HEAD, "kind": "main"},
        said("user", "hi"),
        said(content="a", tokens={"input": 5, "output": 1}),
        said(content="ab", tokens={"input": 5, "output": 2}),
        {"$set": {"summary": "Mending"}},
        {"$rewindTo": "m-user"},
    ]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)

    records, report = read_document(data + b'{"id":"m-9","ty', GEMINI)

    assert kinds(records) == ["message", "message", "message", "event", "event", "event"]
    assert [texts(record) for record in records[1:4]] == [["hi"], ["a"], ["ab"]]
    assert records[3]["extra"]["id"] == "m-gemini"
    assert [record["name"] for record in records[4:]] == ["$set", "$rewindTo", "fields"]
    assert (report.sessions, report.session_id, report.title) == (1, "s-1", "Mending")
    assert (report.tokens["input"], report.tokens["output"], report.lines) == (5, 2, 7)
    assert report.lost == {"duplicate-id": 1, "unclosed-container": 1}
    assert [span.reason for span in report.damaged] == ["truncated"]


def test_messages_around_a_broken_one_are_read() -> None:
    """A message that a crash cut, with a call inside, costs that message alone."""
    whole = json.dumps(
        {**HEAD, "messages": [said("user", "a"), said(toolCalls=[call("r")]), said("user", "b", id="z")]}
    )
    data = whole.replace('"result": "r"', '"result": "r').encode()

    records, report = read_document(data, GEMINI)

    assert [texts(record) for record in records[1:]] == [["a"], ["b"]]
    assert [span.reason for span in report.damaged] == ["invalid-json"]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"null", b'{"messages": [1]}', b'{"messages": {"a": {}}}', b"[[1]]"]
)
def test_any_other_document_gives_a_session_and_no_exception(data: bytes) -> None:
    """A reader that is given something else tells an empty session first and keeps what there is."""
    records, _ = read_document(data, GEMINI)

    assert (records[0]["type"], records[0]["session_id"]) == ("session", None)
