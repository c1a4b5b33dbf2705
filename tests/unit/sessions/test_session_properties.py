"""What holds for every source, be it made by a tool, by a crash or by an enemy."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.sessions import Reader, kind_of, sniff
from unit.sessions.session_lines import CLAUDE, CODEX, accounted, assistant, item, line, meta, read, user

TYPES = {
    "session", "message", "thinking", "tool_call", "tool_result", "summary", "compaction", "event", "unknown",
}  # fmt: skip
COMMON = {"seq", "id", "type", "at", "parent", "source"}

WHOLE = st.sampled_from([
    line(user("a")),
    line(user("b", uuid="u-1", parentUuid="u-2")),
    line(user('{"type":"user"}', uuid="u-2", parentUuid="u-1")),
    line(assistant([{"type": "text", "text": '\\"}{'}, {"type": "tool_use", "name": "n"}], uuid="u-3")),
    line({"type": "summary", "summary": "s", "leafUuid": "u-1"}),
    line(meta()),
    line(item({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"})),
    line(item({"type": "message", "role": "user", "content": "x"})),
    b'{"type":"user","message":{"role":"user","content":"\\ud800"}}\n',
])  # fmt: skip
TORN = st.builds(lambda whole, cut: whole[: int(cut * len(whole))], WHOLE, st.floats(0, 1))
SCRAP = st.sampled_from(
    [b"{", b"}", b'"', b"\\", b"[", b"]", b"\0", b"\0\0\0", b"\n", b" ", b"\r\n", b"\xff", b",1"]
)
SOURCES = st.lists(st.one_of(WHOLE, TORN, SCRAP, st.binary(max_size=8)), max_size=12).map(b"".join)
READERS = pytest.mark.parametrize("reader", [CLAUDE, CODEX], ids=["claude-code", "codex"])

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "type", "uuid", "parentUuid", "timestamp", "sessionId", "message", "content", "role", "usage", "model",
    "id", "payload", "summary", "leafUuid", "subtype", "data", "call_id", "arguments", "output", "name",
    "input", "tool_use_id", "source", "replacement_history", "info", "isSidechain", "git", "text",
    "compactMetadata",
]  # fmt: skip
KINDS = [
    "user", "assistant", "system", "progress", "summary", "compact_boundary", "text", "image", "thinking",
    "tool_use", "tool_result", "document", "session_meta", "response_item", "event_msg", "compacted",
    "turn_context", "message", "reasoning", "function_call", "function_call_output", "token_count",
    "input_text", "input_image", "custom-title", "base64",
]  # fmt: skip
LIKELY = st.recursive(
    VALUES | st.sampled_from(KINDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS), inner | st.sampled_from(KINDS), max_size=8)
    ),
    max_leaves=20,
)


@READERS
@given(data=SOURCES | st.binary(max_size=200))
def test_every_byte_is_accounted_for(reader: Reader, data: bytes) -> None:
    """Each byte lies in one record's span or one damaged span, or is padding; digests fit; nothing raises."""
    records, report = read(data, reader)

    assert accounted(records, report) == report.bytes == len(data)
    assert report.damaged_bytes == sum(span.length for span in report.damaged)
    assert report.complete
    for span in report.damaged:
        assert span.sha256 == digest_of(data[span.offset : span.offset + span.length])


@READERS
@given(data=SOURCES | st.lists(LIKELY.map(line), max_size=4).map(b"".join))
def test_records_keep_the_form(reader: Reader, data: bytes) -> None:
    """Records are numbered, have unique ids and the common fields, can be encoded, and are counted."""
    records, report = read(data, reader)

    assert [record["seq"] for record in records] == list(range(len(records)))
    assert len({record["id"] for record in records}) == len(records)
    assert all(record.keys() >= COMMON and record["type"] in TYPES for record in records)
    assert sum(report.records.values()) == len(records)
    canonical_json(report.to_json())
    for record in records:
        assert orjson.loads(orjson.dumps(record)) == record
        canonical_json(record)


@READERS
@given(data=SOURCES, more=SOURCES)
def test_what_is_appended_changes_no_earlier_record(reader: Reader, data: bytes, more: bytes) -> None:
    """After a newline, records stay as they are when the file grows; the session's own once it is known."""
    data += b"\n"
    before, _ = read(data, reader)
    after, _ = read(data + more, reader)

    assert after[1 : len(before)] == before[1:]
    if before[0]["session_id"] is not None and before[0]["cwd"] is not None:
        assert after[0] == before[0]


@READERS
@given(data=SOURCES)
def test_reading_is_a_function_of_the_bytes(reader: Reader, data: bytes) -> None:
    """The same bytes give the same records and the same report."""
    first, second = read(data, reader), read(data, reader)

    assert first == second


@given(data=SOURCES | st.binary(max_size=200) | LIKELY.map(line))
def test_sniffing_never_raises(data: bytes) -> None:
    """Any bytes have a kind, and a reader or none."""
    reader = sniff(data)

    assert reader is None or kind_of(data) == reader.name
    assert kind_of(data)


@given(value=st.dictionaries(st.sampled_from(KEYS), LIKELY, max_size=8))
def test_no_string_of_a_claude_code_line_is_dropped_unseen(value: dict[str, Any]) -> None:
    """Every text in a line is in its records, unless the report counts a loss."""
    marked = value | {"type": "user", "marker": "here", "message": {"role": "user", "content": "there"}}

    records, _ = read(line(marked))

    assert "here" in str(records)
    assert "there" in str(records)
