"""Broken sessions of every tool: no reader raises, loses a byte unseen, or takes more than its share.

``AUTOCODE_FUZZ`` says how many broken sessions each reader gets from each property; usually they are few.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tracemalloc
from itertools import accumulate, pairwise
from types import FrameType
from typing import Any, BinaryIO, cast

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.errors import UsageError
from autocode.jobs.sessions import (
    READERS,
    Cutter,
    Reader,
    Record,
    Report,
    document,
    lines,
    resumption,
    sniff,
    window,
)
from autocode.jobs.sessions.aider import AiderReader
from autocode.jobs.sessions.structure import tokens
from unit.sessions.breaking import broken, seeds
from unit.sessions.session_lines import read

USUAL = 60
EXAMPLES = int(os.environ.get("AUTOCODE_FUZZ", str(USUAL)))
EVERY = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
FUZZ = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
PADDING = set(b" \t\r\n\0")
FRAME = PADDING | set(b"{}[],:")
NAMES = re.compile(rb'"[A-Za-z_]{1,40}"')
ID_BYTES = 150
BOM = b"\xef\xbb\xbf"


class Pieces(io.RawIOBase):
    """A stream that gives a few bytes at a time, and counts them."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._data = data
        self._sizes = sizes
        self._at = self._turn = 0
        self.passed = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next few bytes."""
        wanted = self._sizes[self._turn % len(self._sizes)]
        self._turn += 1
        data = self._data[self._at : self._at + (wanted if size < 0 else min(wanted, size))]
        self._at += len(data)
        self.passed += len(data)
        return data


def gaps(data: bytes, records: list[Record], report: Report) -> bytes:
    """Return the bytes that no record and no damaged span stands for; fails where two stand for one."""
    spans = {(record["source"]["offset"], record["source"]["length"]) for record in records}
    spans |= {(span.offset, span.length) for span in report.damaged}
    left, end = [], 0
    for offset, length in sorted(span for span in spans if span[1]):
        assert offset >= end, f"two spans stand for the bytes from {offset} to {end}"
        left.append(data[end:offset])
        end = offset + length
    assert end <= len(data)
    return b"".join([*left, data[end:]])


@EVERY
def test_every_reader_has_sessions_to_break(reader: Reader) -> None:
    """The project's own builders, or the real samples, give each reader something to read whole."""
    found = [read(data, reader) for data in seeds()[reader.name]]

    assert max(len(records) for records, _ in found) > 3
    # one of the builders plants half a line, and the ends of long samples are left out
    assert max(report.damaged_total for _, report in found) <= 1


@EVERY
@FUZZ
@given(draw=st.data())
def test_a_broken_session_is_read_to_its_last_byte(reader: Reader, draw: st.DataObject) -> None:
    """Nothing raises; each byte is a record's, damaged, or padding; records are numbered and unique."""
    data = draw.draw(broken(reader))

    records, report = read(data, reader)

    left = gaps(data, records, report)
    bare = left.removeprefix(BOM) if data.startswith(BOM) else left
    assert set(bare if reader.in_parts else NAMES.sub(b"", bare)) <= (PADDING if reader.in_parts else FRAME)
    assert (report.padding, report.bytes, report.complete) == (len(left), len(data), True)
    assert report.damaged_bytes == sum(span.length for span in report.damaged)
    assert all(s.sha256 == digest_of(data[s.offset : s.offset + s.length]) for s in report.damaged)
    assert [record["seq"] for record in records] == list(range(len(records)))
    assert len({record["id"] for record in records}) == len(records)
    assert records[0]["type"] == "session"
    assert report.to_json()["sessions"] == sum(record["type"] == "session" for record in records)
    canonical_json(report.to_json())
    for record in records:
        assert orjson.loads(canonical_json(record)) == orjson.loads(orjson.dumps(record)) == record


@EVERY
@FUZZ
@given(draw=st.data())
def test_a_field_of_no_meaning_is_kept_or_declared(reader: Reader, draw: st.DataObject) -> None:
    """Put into any object, it is in the records, or changes what they tell, or the losses."""
    data = draw.draw(st.sampled_from(seeds()[reader.name]))
    places = [end for start, end in tokens(data, 0) if data[start] == ord("{")]
    if not places or sniff(data[: places[0]]) is reader:
        return
    at = draw.draw(st.sampled_from(places))
    is_empty = data[at:].lstrip().startswith(b"}")
    marked = data[:at] + b'"zz-name": "zz-value"' + (b"" if is_empty else b", ") + data[at:]

    records, report = read(marked, reader)

    if "zz-value" not in str([record for record in records if record["type"] != "session"]):
        assert known(records, report) != known(*read(data, reader))


def known(records: list[Record], report: Report) -> tuple[Any, ...]:
    """Return what is told of a session, digests of copies too, wherever it stands."""
    told = [{key: value for key, value in record.items() if key != "source"} for record in records]
    return told, report.lost, report.damaged_bytes


@EVERY
@FUZZ
@given(draw=st.data(), sizes=st.lists(st.integers(1, 97), min_size=1, max_size=4))
def test_how_a_broken_session_arrives_changes_nothing(
    reader: Reader, draw: st.DataObject, sizes: list[int]
) -> None:
    """In odd pieces it gives the records and the report of one piece; each byte is asked for once."""
    data = draw.draw(broken(reader))
    stream = Pieces(data, sizes)
    reading = reader.read(cast("BinaryIO", stream))

    records = list(reading)

    assert (records, reading.report) == read(data, reader)
    assert stream.passed == len(data)


def in_parts(reader: Reader, parts: list[bytes]) -> tuple[list[Record], Report]:
    """Read parts, each from the state before; those that end before the session is known are joined."""
    state: bytes | None = None
    records: list[Record] = []
    held = b""
    for part in parts[:-1]:
        held += part
        reading = reader.read(io.BytesIO(held), state)
        found = list(reading)
        try:
            state = reading.state()
        except UsageError:
            continue
        held = b""
        records += found
    reading = reader.read(io.BytesIO(held + parts[-1]), state)
    records += reading
    return records, reading.report


@pytest.mark.parametrize(
    "reader", [reader for reader in READERS if reader.in_parts], ids=lambda reader: reader.name
)
@FUZZ
@given(draw=st.data(), size=st.integers(1, 3000))
def test_a_broken_session_in_parts(reader: Reader, draw: st.DataObject, size: int) -> None:
    """Cut where parts of any size end, it gives the records and the report of the whole."""
    data = draw.draw(broken(reader))
    if isinstance(reader, AiderReader):
        reader = AiderReader(size)
    cutter = Cutter(size)
    cutter.feed(data)
    ends = accumulate(part.size for part in cutter.finish())
    parts = [data[start:end] for start, end in pairwise([0, *ends])]

    assert in_parts(reader, parts) == read(data, reader)


class Counted:
    """Counts the calls of functions, C's too."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note one event."""
        self.calls += 1


def work(reader: Reader, data: bytes) -> float:
    """Return how many calls it takes to read a byte of *data*."""
    counted = Counted()
    reading = reader.read(io.BytesIO(data))
    sys.setprofile(counted)
    try:
        for _ in reading:
            pass
    finally:
        sys.setprofile(None)
    return counted.calls / len(data)


HOSTILE = [
    b"{", b"[", b'"', b"\\", b'{"', b'{"a":', b"[{", b"}", b"{}", b"[]", b",", b"\0 ", b"\n", b"1", b'\\"',
    b'{"type"', b'{"type":"user","message":{', b"{\n", b"[\n", b'"\n', b"{}\n", b"\\ud800", b"\xff", b"> x\n",
    b"```\n", b"#### y  \n\n", b"# aider chat started at 2026-01-05 10:00:00\n\n", b"a\n\n", b"{},", b"[],",
    b'"",', b'"a":1,', b"<details>", b"<!--", b"_**", b"[[],", b"1,",
]  # fmt: skip
"""Texts at which, over and over, a careless reader works quadratically."""


@EVERY
def test_work_grows_with_the_bytes(reader: Reader) -> None:
    """Twice the bytes take about as many calls a byte: sessions, and hostile texts behind a beginning."""
    session = seeds()[reader.name][0]
    cases = [(b"", session, 2 * len(session))]
    for number, text in enumerate(HOSTILE):
        begun = session[: min(600, len(session) // 2)]
        # looking for a record inside a broken one may cost a constant, which must not be seen here
        size = 8_000 if text.startswith(b'{"type"') else 1_500
        heads = [b"", begun] if EXAMPLES > USUAL else [[b"", begun][number % 2]]
        cases += [(head, text, size) for head in heads]

    for head, text, size in cases:
        once, twice = (work(reader, head + text * (n // len(text))) for n in (size, 2 * size))

        assert twice <= 1.3 * once + 0.5, f"{twice} calls a byte, {once} for half of it: {text!r}"


class Lines(io.RawIOBase):
    """A stream of one text over and over, made while it is read, in pieces that hardly count."""

    def __init__(self, head: bytes, text: bytes, times: int) -> None:
        self._left = times
        self._text = text
        self._held = head

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        size = min(size, 16_384)
        while len(self._held) < size and self._left:
            self._held += self._text
            self._left -= 1
        data, self._held = self._held[:size], self._held[size:]
        return data


def peak(reader: Reader, head: bytes, text: bytes, size: int) -> int:
    """Return how many bytes are held at once while a stream of *size* bytes is read, but for ids."""
    reading = reader.read(cast("BinaryIO", Lines(head, text, size // len(text))))
    tracemalloc.start()
    try:
        records = sum(1 for _ in reading)
        return tracemalloc.get_traced_memory()[1] - records * ID_BYTES
    finally:
        tracemalloc.stop()


def endless(session: bytes) -> tuple[bytes, bytes]:
    """Return a beginning and what may be repeated behind it: lines, or a document's longest list."""
    try:
        document = orjson.loads(session)
    except ValueError:
        return b"", session
    inner = document if isinstance(document, list) else max(filter(is_list, document.values()), key=len)
    whole, items = orjson.dumps(document), orjson.dumps(inner)
    return whole[: whole.index(items) + 1], items[1:-1] + b","


def is_list(value: object) -> bool:
    """Say whether *value* is a list."""
    return isinstance(value, list)


@EVERY
def test_memory_does_not_grow_with_the_session(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the session takes no more memory; that readers look at a mebibyte at once doesn't count."""
    monkeypatch.setattr(lines, "_CHUNK", 32_768)
    for module in (window, document, resumption):
        monkeypatch.setattr(module, "STEP", 32_768)
    head, text = endless(seeds()[reader.name][0])

    once, fourfold = (peak(reader, head, text, size) for size in (150_000, 600_000))

    assert fourfold <= 1.2 * once
