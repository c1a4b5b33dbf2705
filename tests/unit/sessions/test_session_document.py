"""A JSON document taken apart while it streams by."""

from __future__ import annotations

import gc
import hashlib
import io
import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.sessions.base import Report
from autocode.jobs.sessions.document import EACH, ROOT, Closed, Layout, Member, Opened, parts_of_document
from autocode.jobs.settings import LEASE_SECONDS

TALKS: Layout = {ROOT: {EACH: "talk", "chat": "chat"}, "talk": {"chat": "chat"}, "chat": {}}
CHAT: Layout = {ROOT: {"chat": "chat"}, "chat": {}}
LIST: Layout = {ROOT: {}}
MAP: Layout = {ROOT: {"map": "map"}, "map": {}}


class Sipped(io.BytesIO):
    """A stream that gives a few bytes at a time, whatever is asked for."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most seven bytes."""
        return super().read(min(7, 7 if size is None or size < 0 else size))


def take(
    data: bytes, layout: Layout, stream: Callable[[bytes], io.BytesIO] = io.BytesIO, **options: Any
) -> tuple[list[Opened | Member | Closed], Report]:
    """Take all of *data* apart, and check that every byte is accounted for."""
    report = Report(tool="t", reader="r", revision=1)
    parts = list(parts_of_document(stream(data), report, layout, **options))
    spans = sorted(
        [(part.found.offset, part.found.length) for part in parts if isinstance(part, Member)]
        + [(span.offset, span.length) for span in report.damaged]
    )
    end = 0
    outside = b""
    for offset, length in spans:
        assert offset >= end
        outside += data[end:offset]
        end = offset + length
    outside += data[end:]
    assert report.padding == len(outside)
    assert report.bytes == len(data)
    for span in report.damaged:
        content = data[span.offset : span.offset + span.length]
        assert span.sha256 == "sha256:" + hashlib.sha256(content).hexdigest()
    return parts, report


def values(parts: list[Opened | Member | Closed], place: str) -> list[Any]:
    """Return the values of a place's members."""
    return [part.found.value for part in parts if isinstance(part, Member) and part.place == place]


def told(data: bytes, report: Report) -> list[tuple[bytes, str]]:
    """Return the damaged bytes, each with its reason."""
    return [(data[span.offset : span.offset + span.length], span.reason) for span in report.damaged]


def test_members_come_one_by_one_with_their_place() -> None:
    """Opened containers are entered, all else is a member with the span of its name and value."""
    data = b'[{"name": "a", "chat": [1, {"b": [2]}], "end": null}, 7]'

    parts, report = take(data, TALKS)

    shown = [
        (type(part).__name__, part.place, getattr(part, "key", None), data[found.offset :][: found.length])
        if (found := getattr(part, "found", None))
        else (type(part).__name__, part.place)
        for part in parts
    ]
    assert shown == [
        ("Opened", "", None, b"["),
        ("Opened", "talk", None, b"{"),
        ("Member", "talk", "name", b'"name": "a"'),
        ("Opened", "chat", "chat", b'"chat": ['),
        ("Member", "chat", None, b"1"),
        ("Member", "chat", None, b'{"b": [2]}'),
        ("Closed", "chat"),
        ("Member", "talk", "end", b'"end": null'),
        ("Closed", "talk"),
        ("Member", "", None, b"7"),
        ("Closed", ""),
    ]
    assert values(parts, "chat") == [1, {"b": [2]}]
    assert (report.lost, report.damaged, report.lines) == ({}, [], 1)


def test_positions_are_those_of_lines() -> None:
    """A member is named after the line that it begins on, further ones on the line are numbered."""
    parts, _ = take(b'{"a": 1,\n "chat": [\n 1, 2,\n {"x":\n 1}]}\n', CHAT)

    positions = [part.found.position for part in parts if not isinstance(part, Closed)]

    assert positions == ["L1", "L1:1", "L2", "L3", "L3:1", "L4"]


@pytest.mark.parametrize(
    ("data", "lost"),
    [
        (b"\xef\xbb\xbf[1]", {"byte-order-mark": 1}),
        (b" \r\n\t[1] \n", {}),
        (b"[1]" + bytes(400), {"nul-byte": 400}),
        (b"[\0\0 1]\n\0", {"nul-byte": 3}),
        (b"[1,]", {}),
        (b"[1", {"unclosed-container": 1}),
        (b"[1,,", {"unclosed-container": 1}),
    ],
)
def test_what_surrounds_a_member_is_padding(data: bytes, lost: dict[str, int]) -> None:
    """White space, NUL bytes, a byte order mark and separators do no harm."""
    parts, report = take(data, LIST)

    assert values(parts, ROOT) == [1]
    assert (report.lost, report.damaged) == (lost, [])


GOOD, LAST = {"id": 1, "t": 'a"\\{['}, {"id": 3, "t": [{"id": 9}]}


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b'{"id": 2, "t": NaN}', "invalid-json"),
        (b'{"id": 2 "t": 1}', "invalid-json"),
        (b'{"id": 2, "t": "cut', "invalid-json"),
        (b'{"id": 2, "t": {"x": 1}', "invalid-json"),
        (b'{"id": 2, "t": [1, 2}', "invalid-json"),
        (b'{"id": 2, "t": "raw\x01"}', "invalid-json"),
        (b'{"id": 2, "t": "\0\0\0\0', "invalid-json"),
        (b'{"id": 2, "t": ' + b"[" * 300 + b"]" * 300 + b"}", "too-deep"),
        (b"{'id': 2}", "invalid-json"),
        (b"nonsense", "invalid-json"),
        (b":", "not-json"),
    ],
)
def test_members_behind_a_broken_one_are_found(indent: int | None, broken: bytes, reason: str) -> None:
    """A broken member is one damaged span; those behind it are whole, however the document is written."""
    template = json.dumps([GOOD, GOOD, 0, LAST, LAST], indent=indent).encode()
    data = template.replace(b" 0,", b" " + broken + b",").replace(b"\n0,", b"\n" + broken + b",")
    if indent is None:
        assert broken in data

    parts, report = take(data, LIST, recognises=lambda _, value: "t" in value)

    assert values(parts, ROOT) == [GOOD, GOOD, LAST, LAST]
    (spoiled, why), *others = told(data, report)
    assert spoiled.startswith(broken)
    assert spoiled[len(broken) :].strip(b" ,\n") == b""
    assert (why, others, dict(report.lost)) == (reason, [], {})


def test_a_truncated_document_gives_what_is_whole() -> None:
    """The rest is one damaged span, and the containers that never end are counted."""
    whole = json.dumps({"name": "n", "chat": [GOOD, GOOD, LAST]}).encode()
    data = whole[: whole.rindex(b'"t"') + 9]

    parts, report = take(data, CHAT, recognises=lambda _, value: "t" in value)

    assert values(parts, "chat") == [GOOD, GOOD]
    assert told(data, report) == [(data[data.rindex(b'{"id": 3') :], "truncated")]
    assert report.lost == {"unclosed-container": 2}
    assert [part.place for part in parts if isinstance(part, Closed)] == ["chat", ""]


def test_damage_in_one_conversation_ends_with_it() -> None:
    """Where the rest of an inner container is broken, the next member of an outer one is found."""
    talk = {"name": "n", "chat": [{"id": 1}]}
    data = json.dumps([talk, talk]).encode().replace(b'{"id": 1}]}', b'{"id": "1]}', 1)

    parts, report = take(data, TALKS, recognises=lambda _, value: "name" in value)

    assert values(parts, "chat") == [{"id": 1}]
    assert [part.place for part in parts if isinstance(part, Closed)] == ["chat", "talk", "chat", "talk", ""]
    assert told(data, report) == [(b'{"id": "1]}, ', "invalid-json")]


def test_a_broken_node_of_a_map_is_left_out_alone() -> None:
    """Members of an object are found behind a broken one as those of a list are."""
    data = b'{"map": {"a": {"id": "a"}, "b": {"id": "b, "c": {"id": "c"}}, "end": 1}'

    parts, report = take(data, MAP)

    assert [part.key for part in parts if isinstance(part, Member)] == ["a", "c", "end"]
    assert told(data, report) == [(b'"b": {"id": "b, ', "invalid-json")]


def test_a_value_inside_a_broken_member_is_no_member() -> None:
    """The reader says what a member is, so an inner object isn't taken for one."""
    data = b'[{"id": 1, "t": 1}, {"id": 2, "calls": [{"id": 3}, {"id": 4}], "t": "cut}, {"id": 5, "t": 2}]'

    parts, report = take(data, LIST, recognises=lambda _, value: "t" in value)

    assert values(parts, ROOT) == [{"id": 1, "t": 1}, {"id": 5, "t": 2}]
    assert report.damaged_total == 1


def test_a_quoted_member_is_no_member() -> None:
    """What looks like a member in a text whose quotes weren't escaped is followed by more of that text."""
    data = b'[{"id": 1, "t": 1}, {"id": 2, "t": "see {"id": 3, "t": 3} there"}, {"id": 4, "t": 4}]'

    parts, report = take(data, LIST)

    assert [value["id"] for value in values(parts, ROOT)] == [1, 4]
    assert report.damaged_total == 1


def test_documents_may_follow_one_another() -> None:
    """What is glued or written a line each is taken apart one after another."""
    parts, report = take(b'{"a": 1}{"a": 2}\n[3]\nend', LIST)

    assert values(parts, ROOT) == [1, 2, 3]
    assert told(b'{"a": 1}{"a": 2}\n[3]\nend', report) == [(b"end", "not-json")]


def test_a_value_that_is_too_long_streams_by() -> None:
    """It is digested and reported, and memory stays far below its size."""
    size = 24 * 1024 * 1024
    data = b'[{"id": 1}, {"id": "' + b"x" * size + b'"}, "' + b"y" * size + b'", {"id": 3}]'
    stream, measured = io.BytesIO(data), Report(tool="t", reader="r", revision=1)
    tracemalloc.start()

    list(parts_of_document(stream, measured, LIST, limit=1024 * 1024))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    parts, report = take(data, LIST, limit=1024 * 1024)

    assert peak < 8 * 1024 * 1024
    assert (report, values(parts, ROOT)) == (measured, [{"id": 1}, {"id": 3}])
    assert [(span.length, span.reason) for span in report.damaged] == [
        (size + 10, "value-too-long"),
        (size + 2, "value-too-long"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'[{"id":' * 10_000,
        b'[{"id": 1}, {"id": "' + b'{"id": [' * 30_000,
        b'[{"id": 1}, {"id": ' + b'{"id": 2}, ' * 30_000,
        b"[" + b'"\\' * 300_000,
        b"{" * 100_000,
        b"[" + b"]" * 100_000,
        b'{"a":' + b" " * 3_000_000,
        b"[" + b"1" * 3_000_000,
        b"x" * 3_000_000,
    ],
    ids=range(10),
)
def test_hostile_documents_take_linear_time(data: bytes) -> None:
    """Nothing nested, unended or repeated makes the splitter look at the same bytes again and again."""
    once, twice = (processor_seconds(part) for part in (data, data + data))

    # twice the bytes take about twice the time; looking at them again and again would take four times as much
    assert twice < 3 * once + 0.2


def processor_seconds(data: bytes) -> float:
    """Return what it takes to split *data*, however busy the machine is with other things."""
    before = time.process_time()
    take(data, LIST)
    return time.process_time() - before


def test_a_long_member_doesnt_stop_other_threads() -> None:
    """While a member of 60 MB is read, no single call keeps another thread waiting for a third of a lease."""
    data = b'[{"t": "' + b'word \\" ' * 7_500_000 + b'"}]'
    gaps: list[float] = []
    done = threading.Event()

    def tick() -> None:
        # the processor's time: how busy the machine is with other things doesn't count
        last = time.process_time()
        while not done.wait(0.01):
            now = time.process_time()
            gaps.append(now - last)
            last = now

    ticker = threading.Thread(target=tick)
    report = Report(tool="t", reader="r", revision=1)
    # what thousands of tests left in this process would be searched for garbage in one go
    gc.collect()
    gc.freeze()
    try:
        ticker.start()
        count = sum(1 for _ in parts_of_document(io.BytesIO(data), report, LIST))
        done.set()
        ticker.join()
    finally:
        gc.unfreeze()

    assert (count, report.damaged_total) == (3, 0)
    assert max(gaps) < LEASE_SECONDS / 3


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text(max_size=3), child, max_size=3),
    max_leaves=8,
)
TREES = st.lists(
    st.fixed_dictionaries({"id": JSON, "chat": st.lists(JSON, max_size=4), "end": JSON}), max_size=4
)


def flat(parts: list[Opened | Member | Closed]) -> Iterator[tuple[str, str | None, str]]:
    """Yield the members in a comparable form."""
    for part in parts:
        if isinstance(part, Member):
            yield part.place, part.key, json.dumps(part.found.value)


@given(talks=TREES, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_every_member_of_a_whole_document_is_found(talks: Any, indent: int | None, ascii_only: bool) -> None:
    """Whatever the values are and however they are written, all come out, and nothing is damaged."""
    data = json.dumps(talks, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")

    parts, report = take(data, TALKS)

    expected = [
        ("chat", None, json.dumps(value)) if key == "chat" else ("talk", key, json.dumps(value))
        for talk in talks
        for key, member in talk.items()
        for value in (member if key == "chat" else [member])
    ]
    assert (list(flat(parts)), report.damaged_total) == (expected, 0)


INSERTED = st.sampled_from([b"", b'"', b"}", b"]", b",{", b"\0", b"[", b"\\"])
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), INSERTED), max_size=3)


@given(talks=TREES, edits=EDITS, indent=st.sampled_from([None, 1]))
def test_no_byte_of_a_broken_document_is_lost(
    talks: Any, edits: list[tuple[float, int, bytes]], indent: int | None
) -> None:
    """However it is broken and however it is delivered, the bytes decide, and all are accounted for."""
    data = json.dumps(talks, indent=indent).encode()
    for place, length, inserted in edits:
        at = int(place * len(data))
        data = data[:at] + inserted + data[at + length :]

    parts, report = take(data, TALKS)
    sipped, again = take(data, TALKS, Sipped)

    assert (sipped, again) == (parts, report)
