"""Reading in parts: the same records and the same report as reading the whole."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.errors import UsageError
from autocode.jobs.sessions import PART, Cutter, Part, Reader, Report
from autocode.jobs.sessions.identity import Identities
from unit.sessions.session_lines import CLAUDE, CODEX, assistant, item, line, meta, read, read_parts, user
from unit.sessions.test_session_properties import LIKELY, READERS, SOURCES

IDS = ["a", "b", "c", "d", "e", "a.1", "nowhere"]
TURNS = st.builds(
    lambda own, parent, call, message, title: (
        line(
            assistant(
                [
                    {"type": "tool_use", "id": call, "name": "n", "input": {}},
                    {"type": "tool_result", "tool_use_id": call, "content": "r"},
                    {"type": "tool_result", "tool_use_id": "c-1", "content": "r"},
                ],
                uuid=own,
                parentUuid=parent,
                message={"id": message, "usage": {"input_tokens": 3, "output_tokens": len(call)}},
            )
        )
        + line(
            {"type": "custom-title" if title == "c" else "summary", "customTitle": title, "sessionId": "s"}
        )
        + line({"type": "summary", "summary": title, "leafUuid": own})
    ),
    st.sampled_from(IDS),
    st.sampled_from([*IDS, None]),
    st.sampled_from(["c-1", "c-2", "c-33"]),
    st.sampled_from(["m-1", "m-2"]),
    st.sampled_from(["a", "b", "c"]),
)
COUNTS = st.builds(
    lambda name, count, call: (
        line(
            item(
                {"type": "token_count", "info": {"total_token_usage": {"output_tokens": count}}}, "event_msg"
            )
        )
        + line(item({"type": "thread_name_updated", "thread_name": name}, "event_msg"))
        + line(item({"type": "function_call", "name": "f", "arguments": "{}", "call_id": call, "id": name}))
        + line(item({"type": "function_call_output", "output": "o", "call_id": "c-1"}))
    ),
    st.sampled_from(IDS),
    st.integers(0, 9),
    st.sampled_from(["c-1", "c-2"]),
)
HEADS = {"claude-code": line(user("first", uuid="u-0")), "codex": line(meta())}
BODIES = st.lists(st.one_of(SOURCES, TURNS, COUNTS, LIKELY.map(line), st.just(b"\r\n")), max_size=8).map(
    b"".join
)


def cut(data: bytes, first: int, draws: Sequence[float]) -> list[bytes]:
    """Cut *data* behind some of its newlines from *first* on; parts may be empty."""
    places = [at + 1 for at in range(first - 1, len(data)) if data[at : at + 1] == b"\n"]
    chosen = sorted(places[int(draw * (len(places) - 1))] for draw in draws) if places else []
    return [data[start:end] for start, end in zip([0, *chosen], [*chosen, len(data)], strict=True)]


@READERS
@given(body=BODIES, draws=st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_reading_in_parts_is_reading_the_whole(reader: Reader, body: bytes, draws: list[float]) -> None:
    """Whatever follows the head, and wherever it is cut behind newlines, records and report are the same."""
    head = HEADS[reader.name]
    data = head + body

    in_parts = read_parts(cut(data, len(head), draws), reader)

    assert in_parts == read(data, reader)


@READERS
@given(data=SOURCES, draw=st.floats(0, 1))
def test_a_first_part_without_a_head_is_refused_or_enough(reader: Reader, data: bytes, draw: float) -> None:
    """A state is given only where the session's own record can't change any more."""
    parts = cut(data, 1, [draw])

    try:
        in_parts = read_parts(parts, reader)
    except UsageError:
        before, _ = read(parts[0], reader)
        after, _ = read(parts[0] + HEADS[reader.name], reader)
        assert before[0] != after[0]
    else:
        assert in_parts == read(data, reader)


@READERS
@given(body=BODIES)
def test_a_state_is_a_function_of_the_bytes(reader: Reader, body: bytes) -> None:
    """However the bytes before were cut, the state behind them is the same canonical JSON."""
    head = HEADS[reader.name]
    data = head + body + b"\n"
    whole = reader.read(io.BytesIO(data))
    list(whole)
    first = reader.read(io.BytesIO(head))
    list(first)
    second = reader.read(io.BytesIO(body + b"\n"), first.state())
    list(second)

    assert second.state() == whole.state()
    assert canonical_json(json.loads(whole.state())) == whole.state()


@given(
    edges=st.lists(
        st.tuples(st.sampled_from(IDS), st.sampled_from([*IDS, None]), st.booleans()), max_size=14
    ),
    limit=st.sampled_from([3, 100]),
)
def test_loops_and_duplicates_are_found_across_parts(
    edges: list[tuple[str, str | None, bool]], limit: int
) -> None:
    """Ids that are saved and taken up again, at any time, give the same ids and losses."""
    reports = [Report("t", "r", 1), Report("t", "r", 1)]
    kept, saved = (Identities(report, limit=limit) for report in reports)
    given_ids: list[list[str]] = [[], []]

    for number, (own, parent, is_end) in enumerate(edges):
        for ids, into in zip((kept, saved), given_ids, strict=True):
            base = ids.claim(own, f"L{number}", parent)
            into += [base, ids.part(base, f"L{number}", 1)]
        if is_end:
            saved = Identities(reports[1], limit=limit, saved=saved.dump())

    assert given_ids[0] == given_ids[1]
    assert reports[0].lost == reports[1].lost


def test_a_state_of_another_reader_or_revision_is_refused() -> None:
    """A state fits one reader and one revision; anything else is no state."""
    reading = CLAUDE.read(io.BytesIO(HEADS["claude-code"]))
    list(reading)
    state = reading.state()
    older = canonical_json(json.loads(state) | {"revision": 0})

    for given_state in (older, b"{}", b"\xff", b"[]"):
        with pytest.raises(UsageError):
            CLAUDE.read(io.BytesIO(), given_state)
    with pytest.raises(UsageError, match="claude-code revision 2"):
        CODEX.read(io.BytesIO(), state)


def test_a_state_is_given_at_the_end_of_a_line_alone() -> None:
    """Neither before the last record was taken nor within a line is there a state."""
    unread = CLAUDE.read(io.BytesIO(HEADS["claude-code"]))
    torn = CLAUDE.read(io.BytesIO(HEADS["claude-code"] + b"{"))
    list(torn)

    for reading, told in ((unread, "isn't at its end"), (torn, "within line 2")):
        with pytest.raises(UsageError, match=told):
            reading.state()


def test_a_head_is_looked_for_in_the_first_part_alone() -> None:
    """What names the session behind the first part's bytes comes too late, in parts as in the whole."""
    late = b" " * PART + b"\n" + line(meta())

    parts = read_parts([late[: PART + 1], late[PART + 1 :]], CODEX)

    assert parts == read(late, CODEX)
    assert parts[0][0]["session_id"] is None


def test_the_text_in_a_state_can_be_replaced() -> None:
    """All text of the session passes through the given function; the rest is digests and numbers."""
    data = line(user("text-1", uuid="text-2", sessionId="text-3", cwd="text-4")) + line(
        assistant([{"type": "tool_use", "id": "text-5", "name": "n", "input": {}}], uuid="text-6")
    )
    data += line({"type": "summary", "summary": "text-7", "leafUuid": "text-8"})
    data += line({"type": "custom-title", "customTitle": "text-9", "sessionId": "text-3"})
    reading = CLAUDE.read(io.BytesIO(data))
    list(reading)

    def masked(value: Any) -> Any:
        return json.loads(json.dumps(value).replace("text-", "mark-"))

    assert b"text-" in reading.state()
    assert b"text-" not in reading.state(masked)
    again = CLAUDE.read(io.BytesIO(line(user("more"))), reading.state(masked))
    assert [record["type"] for record in again] == ["message"]
    assert again.report.title == "mark-9"


def test_a_state_is_bounded() -> None:
    """Texts that are too long for a title aren't held, and of summaries only so many."""
    data = HEADS["claude-code"] + b"".join(
        line({"type": "summary", "summary": "x" * (number % 1500), "leafUuid": f"l-{number}"})
        for number in range(3000)
    )
    data += line({"type": "custom-title", "customTitle": "x" * 1001, "sessionId": "s-1"})
    reading = CLAUDE.read(io.BytesIO(data))
    list(reading)

    texts = json.loads(reading.state())["texts"]

    assert len(texts["titles"]["summaries"]) == 1000
    assert max(len(text) for text in texts["titles"]["summaries"]) == 1000
    assert texts["titles"]["given"] == {}


@given(data=st.text("\nab", max_size=60), step=st.integers(1, 70), part=st.integers(0, 20))
def test_parts_end_behind_the_first_newline_that_is_far_enough(data: str, step: int, part: int) -> None:
    """Every part but the last is the shortest that is longer than the measure and ends with a newline."""
    source = data.encode()
    cutter = Cutter(part)

    for start in range(0, len(source), step):
        cutter.feed(source[start : start + step])
    parts = cutter.finish()

    position = 0
    for number, found in enumerate(parts, 1):
        content = source[position : position + found.size]
        assert found == Part(len(content), digest_of(content))
        newline = content.find(b"\n", part)
        assert newline == len(content) - 1 or (newline == -1 and number == len(parts))
        position += found.size
    assert position == len(source)
    assert all(found.size for found in parts) or (not source and len(parts) == 1)


@given(data=st.text("\nab", max_size=60), more=st.text("\nab", max_size=60))
def test_growth_changes_the_last_part_alone(data: str, more: str) -> None:
    """All parts but the last are the same after anything was appended."""
    cutters = Cutter(5), Cutter(5)

    cutters[0].feed(data.encode())
    cutters[1].feed((data + more).encode())

    before, after = (cutter.finish() for cutter in cutters)
    assert after[: len(before) - 1] == before[:-1]
