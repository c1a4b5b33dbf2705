"""Lines, recovery and JSON values: what readers make of bytes before they look at what they mean."""

from __future__ import annotations

import io
import re
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest

from autocode.jobs.canonical import digest_of
from autocode.jobs.sessions import Report, jsonvalue, recovery, structure
from autocode.jobs.sessions.jsonvalue import MAX_DEPTH, loads
from autocode.jobs.sessions.lines import segments
from unit.sessions.session_lines import AT, CLAUDE, accounted, assistant, body, line, read, user


class Drip(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(data)
        self._step = step

    def read(self, _size: int | None = -1, /) -> bytes:
        """Return at most *step* bytes."""
        return super().read(self._step)


class Zeros(io.BytesIO):
    """A file of zeros, as a crash leaves it where room had been reserved."""

    def __init__(self, head: bytes, zeros: int, tail: bytes) -> None:
        super().__init__()
        self._parts = [head, *[bytes(1 << 20)] * (zeros >> 20), tail]

    def read(self, _size: int | None = -1, /) -> bytes:
        """Return the next part."""
        return self._parts.pop(0) if self._parts else b""


START = recovery._START


class Starts:
    """The pattern for the beginning of a record, counting the bytes that it was searched through."""

    def __init__(self) -> None:
        self.searched = 0

    def finditer(self, data: bytes, start: int, end: int) -> Iterator[re.Match[bytes]]:
        """Yield the matches between *start* and *end*."""
        for match in START.finditer(data, start, end):
            self.searched += match.end() - start
            start = match.end()
            yield match
        self.searched += end - start


def report() -> Report:
    """Return an empty report."""
    return Report(tool="t", reader="r", revision=1)


def texts(data: bytes) -> list[str]:
    """Return the first text of each message."""
    return [record["content"][0]["text"] for record in body(data) if record["type"] == "message"]


def test_the_size_of_reads_does_not_matter() -> None:
    """A stream that gives one or seven bytes at a time gives the same records as one that gives all."""
    data = line(user("a")) + b"\0\0" + line(user("b")) + line(user("c"))[:-1] + line(user("d"))[:-4]

    dripped = [CLAUDE.read(Drip(data, step)) for step in (1, 7)]

    assert [list(reading) for reading in dripped] == [read(data)[0]] * 2
    assert dripped[0].report == read(data)[1]


def test_lines_end_at_newlines_alone() -> None:
    """U+2028, U+2029, U+0085, form feeds and vertical tabs stay inside their line."""
    data = '{"type":"user","message":{"role":"user","content":"a\u2028b\u2029c\u0085d"}}\n'.encode()

    assert texts(data) == ["a\u2028b\u2029c\u0085d"]


def test_the_last_line_needs_no_newline() -> None:
    """A last line without a newline is read and counted."""
    records, found = read(line(user("a")) + line(user("b"))[:-1])

    assert (len(records), found.lines, found.padding) == (3, 2, 1)


def test_carriage_returns_blank_lines_and_a_byte_order_mark_are_padding() -> None:
    """CRLF, blank lines and a BOM are counted and change nothing."""
    data = b"\xef\xbb\xbf" + line(user("a"))[:-1] + b"\r\n\r\n  \t\n" + line(user("b"))

    records, found = read(data)

    assert [record["id"] for record in records[1:]] == ["L1", "L4"]
    assert found.lost == {"byte-order-mark": 1}
    assert (found.damaged_total, accounted(records, found)) == (0, len(data))


def test_glued_objects_are_parted() -> None:
    """Each of several objects on a line is a record of its own with an id of its own."""
    first, second = line(user("{a}"))[:-1], line(user('b"}{"'))[:-1]
    data = first + second + b"  " + first + b"\n"

    records, found = read(data)

    assert [record["id"] for record in records[1:]] == ["L1", "L1:1", "L1:2"]
    assert records[2]["source"] == {"offset": len(first), "length": len(second)}
    assert (found.damaged_total, accounted(records, found)) == (0, len(data))


def test_nul_padding_around_and_inside_a_line_is_stripped() -> None:
    """Runs of NUL bytes end a record; what they cut in two is damaged on both sides."""
    whole, cut = line(user("a"))[:-1], line(user("b"))[:-1]
    data = b"\0" * 300 + whole + b"\0\0\n" + cut[:60] + b"\0" + whole + b"\n"

    records, found = read(data)

    assert [record["id"] for record in records[1:]] == ["L1", "L2"]
    assert found.lost == {"nul-byte": 303}
    assert [(span.length, span.reason) for span in found.damaged] == [(60, "truncated")]
    assert accounted(records, found) == len(data)


def test_a_truncated_line_is_a_damaged_span_and_the_rest_goes_on() -> None:
    """The span names offset, length and digest of exactly the bytes that no record stands for."""
    first, cut, last = line(user("a")), line(user("b"))[:70], line(user("c"))

    records, found = read(first + cut + b"\n" + last)

    assert len(records) == 3
    assert found.damaged[0].to_json() == {
        "offset": len(first),
        "length": 70,
        "sha256": digest_of(cut),
        "reason": "truncated",
    }


@pytest.mark.parametrize("cut", [20, 90, 170, 230])
def test_a_record_glued_to_a_truncated_one_is_recovered(cut: int) -> None:
    """Wherever the first write was cut, the record behind it is found, and nothing inside the first."""
    torn = line(assistant([{"type": "text", "text": 'a "quoted" {text}'}]))[:cut]
    data = torn + line(user("whole"))

    records, found = read(data)

    assert [record["type"] for record in records[1:]] == ["message"]
    assert records[1]["content"] == [{"type": "text", "text": "whole"}]
    assert [span.sha256 for span in found.damaged] == [digest_of(torn)]


def test_an_object_inside_a_truncated_line_is_no_record() -> None:
    """A line cut right behind an inner object isn't mistaken for that object."""
    torn = b'{"isSidechain":false,"message":{"type":"text","text":"inner"}\n'

    records, found = read(torn)

    assert (len(records), found.damaged_total) == (1, 1)


def test_a_record_quoted_inside_a_truncated_one_is_no_record() -> None:
    """A progress line that holds another record whole, and was cut behind it, is damage to its end."""
    torn = line({"isSidechain": False, "data": {"message": user("inner"), "more": "x"}})[:-5]

    records, found = read(torn + b"\n")

    assert (len(records), found.damaged_bytes) == (1, len(torn))


def test_garbage_between_objects_is_one_span() -> None:
    """What lies between two objects is reported once, without the white space around it."""
    data = line(user("a"))[:-1] + b" oops } ] {nope} " + line(user("b"))

    records, found = read(data)

    assert len(records) == 3
    assert [(span.length, span.reason) for span in found.damaged] == [(15, "not-json")]
    assert accounted(records, found) == len(data)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"NaN", "invalid-json"),
        (b"-Infinity", "invalid-json"),
        (b"1e999", "invalid-json"),
        (b"1" * 5000, "invalid-json"),
        (b"[" * 5000 + b"]" * 5000, "too-deep"),
        (b'{"a":' * 3000 + b"1" + b"}" * 3000, "too-deep"),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "too-deep"),
        (b'"\x01"', "invalid-json"),
    ],
)
def test_what_no_parser_should_take_is_damage(value: bytes, reason: str) -> None:
    """Numbers beyond a double, NaN and nesting without end spoil their line and no other."""
    data = b'{"type":"user","x":' + value + b"}\n" + line(user("b"))

    records, found = read(data)

    assert [span.reason for span in found.damaged] == [reason]
    assert (len(records), accounted(records, found)) == (2, len(data))


def test_a_line_past_the_limit_is_digested_while_it_streams_by() -> None:
    """A line that is too long isn't held; it becomes a span with its digest."""
    data = b"short\n" + b"x" * 100 + b"\nnext"
    found = report()

    lines = [part.data for part in segments(Drip(data, 7), found, max_line=50)]

    assert lines == [b"short", b"next"]
    assert found.damaged[0].to_json() == {
        "offset": 6,
        "length": 100,
        "sha256": digest_of(b"x" * 100),
        "reason": "line-too-long",
    }


def test_zeros_are_never_held() -> None:
    """A quarter of a gigabyte of zeros costs a few mebibytes, and the records around it survive."""
    stream = Zeros(line(user("a"))[:-1], 256 << 20, line(user("b")))

    tracemalloc.start()
    reading = CLAUDE.read(stream)
    kinds = [record["type"] for record in reading]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert kinds == ["session", "message", "message"]
    assert reading.report.lost == {"nul-byte": 256 << 20}
    assert peak < 16 << 20


@pytest.mark.parametrize(
    "data",
    [
        b"{" * 50_000,
        b'{"' * 50_000,
        b'{"type":' * 20_000,
        b'{"type":"\\"' * 20_000,
        b"{x}" * 30_000,
        b"{x}" * 30_000 + b'{"type":1}',
        b'{"a":1}' * 30_000,
        b'{"type":{"a":1}}x' * 20_000,
        b'"\\"' * 50_000,
    ],
)
def test_recovery_is_linear(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scanner looks at no byte more often than a fixed number of times, however it was meant."""
    real, seen = structure.tokens, Counter[str]()

    def counting(text: bytes, start: int) -> Iterator[tuple[int, int]]:
        for token in real(text, start):
            seen["tokens"] += 1
            yield token

    monkeypatch.setattr("autocode.jobs.sessions.recovery.tokens", counting)
    monkeypatch.setattr("autocode.jobs.sessions.recovery._START", starts := Starts())

    records, found = read(data)

    assert seen["tokens"] <= 10 * len(data) + 100_000
    assert starts.searched <= 10 * len(data) + 1_000_000
    assert found.padding + found.damaged_bytes + sum(r["source"]["length"] for r in records[1:]) == len(data)


def test_a_text_of_millions_of_objects_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are counted before they are made; brackets and commas inside strings do not count."""
    monkeypatch.setattr(jsonvalue, "MAX_VALUES", 15)

    records, found = read(line({"type": "x", "y": [{}] * 9}) + line({"type": "x", "y": "{,[" * 50}))

    assert [span.reason for span in found.damaged] == ["too-many-values"]
    assert [record["type"] for record in records] == ["session", "unknown"]


def test_lone_surrogates_become_replacement_characters() -> None:
    """Lone surrogate escapes are replaced and counted; pairs and escaped backslashes stay."""
    changed: Counter[str] = Counter()

    value = loads(rb'["\udcb2","\ud83d\ude00","\\ud83d","\ud83d\ud83d\ude00","\ud83d","x\\\uD800y"]', changed)

    assert value == ["\ufffd", "\U0001f600", "\\ud83d", "\ufffd\U0001f600", "\ufffd", "x\\\ufffdy"]
    assert changed == {"lone-surrogate": 4}


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    """Invalid UTF-8 is replaced and counted, a replacement character that was there isn't."""
    records, found = read(b'{"type":"user","message":{"role":"user","content":"a\xff\xef\xbf\xbd\xc3"}}\n')

    assert records[1]["content"] == [{"type": "text", "text": "a\ufffd\ufffd\ufffd"}]
    assert found.lost == {"invalid-utf8": 2}


def test_integers_past_64_bits_are_rounded_and_counted() -> None:
    """An integer that doesn't fit becomes the nearest double, as in the tool itself, and is counted."""
    changed: Counter[str] = Counter()

    value = loads(b'[123456789012345678901234567890,18446744073709551615,"12345678901234567890"]', changed)

    assert value == [1.2345678901234568e29, 18446744073709551615, "12345678901234567890"]
    assert changed == {"big-integer": 1}


@pytest.mark.parametrize("offset", range(0, 20, 3))
def test_a_long_integer_is_seen_wherever_it_lies(offset: int) -> None:
    """The search goes through the text a mebibyte at a time and misses none on the border."""
    changed: Counter[str] = Counter()
    pad = b"x" * ((1 << 20) - 14 - offset)

    loads(b'{"a":"' + pad + b'","b":' + b"9" * 25 + b"}", changed)

    assert changed == {"big-integer": 1}


def test_losses_of_a_text_that_cannot_be_parsed_are_not_counted() -> None:
    """A line that stays damaged after mending counts as damage alone."""
    _, found = read(b'{"type":"user","x":"\\ud800",}\n')

    assert (found.lost, found.damaged_total) == ({}, 1)


def test_the_last_of_two_equal_keys_wins_and_nul_characters_stay() -> None:
    """Duplicate keys and escaped NUL characters are valid JSON and come out as JSON has them."""
    data = b'{"type":"user","message":{"role":"user","content":"a","content":"b\\u0000c"},"timestamp":"%b"}\n'

    assert texts(data % AT.encode()) == ["b\0c"]


def test_only_the_first_thousand_damaged_spans_are_listed() -> None:
    """All damage is counted, so that a ruined file can't fill the memory."""
    _, found = read(b"{oops}\n" * 1200)

    assert (len(found.damaged), found.damaged_total, found.damaged_bytes) == (1000, 1200, 7200)
