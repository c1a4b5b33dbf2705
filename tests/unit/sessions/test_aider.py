"""aider's chat history: who said what, told by prefixes and by two spaces at the end of a line."""

from __future__ import annotations

import io
import os
import random
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.sessions import HEAD_BYTES, Cutter, Record, sniff
from autocode.jobs.sessions.aider import AiderReader
from autocode.jobs.testing.sample_story import story
from autocode.jobs.testing.sample_texts import aider_history
from unit.sessions.session_lines import accounted, read, read_parts

AIDER = AiderReader()
STARTED = "# aider chat started at 2026-01-05 10:00:00\n\n"
ANNOUNCED = "> aider  \n> Aider v0.86.1  \n> Main model: m-1 with diff edit format, 8k think tokens  \n"
FENCE = "```"
CACHED = (
    "Tokens: 12k sent, 4.0k cache write, 7.5k cache hit, 1.1k received.\nCost: $0.0312 message, $1.1 session."
)


def told(text: str) -> list[tuple[str, str]]:
    """Return who says what in *text*."""
    return [(speaker(record), words(record)) for record in read(text.encode(), AIDER)[0]]


def speaker(record: Record) -> str:
    """Return a message's role, or the type of any other record."""
    return str(record.get("role") or record["type"])


def words(record: Record) -> str:
    """Return the text of a record, or the time of a session."""
    content: list[Any] = record.get("content", [record.get("data", {"text": record.get("raw_at", "")})])
    text: str = content[0]["text"]
    return text


def test_a_session_is_told_by_prefixes() -> None:
    """A header begins a session; prompts, output and answers follow, without the marks."""
    text = (
        STARTED + ANNOUNCED + "\n#### Mend it,  \n####   \n#### please  \n\nDone.\n\n\nReally.\n\n> Bye  \n"
    )

    assert told(text) == [
        ("session", "2026-01-05 10:00:00"),
        ("event", "aider\nAider v0.86.1\nMain model: m-1 with diff edit format, 8k think tokens"),
        ("user", "Mend it,\n\nplease"),
        ("assistant", "Done.\n\n\nReally."),
        ("event", "Bye"),
    ]


def test_a_session_has_local_time_and_the_version_that_follows() -> None:
    """Without a zone the time is no time: ``at`` is null, and what stood there is kept."""
    records, report = read((STARTED + ANNOUNCED).encode(), AIDER)

    assert {key: records[0][key] for key in ("at", "raw_at", "tool_version", "source", "session_id")} == {
        "at": None,
        "raw_at": "2026-01-05 10:00:00",
        "tool_version": "0.86.1",
        "source": {"offset": 0, "length": 43},
        "session_id": None,
    }
    assert (report.first_at, report.models) == (None, ["m-1"])


def test_a_history_has_many_sessions_and_may_begin_within_one() -> None:
    """What stands before the first header is a session without a beginning; blank lines alone are none."""
    text = "rest of an answer\n\n#### more  \n\nYes.\n\n" + STARTED + "\n" + STARTED + ANNOUNCED

    records, report = read(text.encode(), AIDER)

    assert [(r["type"], r["id"]) for r in records] == [
        ("session", "session"), ("unknown", "L1"), ("message", "L3"), ("message", "L5"),
        ("session", "L7"), ("session", "L10"), ("event", "L12"),
    ]  # fmt: skip
    assert (report.sessions, report.session_id, report.lost) == (3, None, {"unknown-type:text": 1})
    assert [record["type"] for record in read(("\n\n" + STARTED).encode(), AIDER)[0]] == ["session"]


def test_headings_and_quotations_in_an_answer_are_its_text() -> None:
    """Without the two spaces they aren't aider's; with them, but within a fence, neither."""
    answer = (
        f"#### Step 1\n\n> quoted\n\n{FENCE}md\n# aider chat started at 2026-01-01 00:00:00\n> x  \n{FENCE}"
    )

    assert told(f"{STARTED}> aider  \n\n#### go  \n\n{answer}\n\n> Bye  \n")[3:] == [
        ("assistant", answer),
        ("event", "Bye"),
    ]


def test_a_header_in_a_fence_counts_when_output_follows() -> None:
    """An answer that was cut off leaves its fence open; what aider announces ends it all the same."""
    cut = f"So:\n{FENCE}\ncode\n\n"
    quoted = f"So:\n{FENCE}\n\n# aider chat started at 2026-01-01 00:00:00\n\ncode\n{FENCE}\n"

    assert [who for who, _ in told(STARTED + "> a  \n\n" + cut + STARTED + ANNOUNCED)] == [
        "session", "event", "assistant", "session", "event",
    ]  # fmt: skip
    assert [who for who, _ in told(STARTED + "> a  \n\n" + quoted + "\n> b  \n")] == [
        "session", "event", "assistant", "event",
    ]  # fmt: skip


def test_output_of_several_lines_ends_at_the_two_spaces() -> None:
    """Only its first line has a prefix; blank lines, quotations and headings between belong to it."""
    output = "=== FAILURES ===\n\n>       assert a == b\n#### 1\nE  no\n\n1 failed"

    assert told(f"{STARTED}> aider  \n\n#### /test  \n> {output}  \n\nI see.\n")[2:] == [
        ("user", "/test"),
        ("event", output),
        ("assistant", "I see."),
    ]


def test_output_goes_on_in_the_next_line_without_a_prefix() -> None:
    """A line that ended with two spaces of its own was not the last; an answer has a blank line before it."""
    assert told(f"{STARTED}> aider  \n> a  \nb  \nc\nd  \n\nAnswer\n")[1:] == [
        ("event", "aider\na\nb\nc\nd"),
        ("assistant", "Answer"),
    ]


def test_a_history_whose_lines_were_trimmed_is_told_by_prefixes_alone() -> None:
    """Two lines of output without the spaces mean an editor took them away, until the next header."""
    trimmed = (STARTED + ANNOUNCED + "\n#### Mend  \n#### it  \n\nOk\n> quoted\n\n> Bye  \n").replace(
        "  \n", "\n"
    )

    assert told(trimmed + "\n" + STARTED + "> aider  \n\n#### go  \n\n#### One\n")[1:] == [
        ("event", "aider\nAider v0.86.1\nMain model: m-1 with diff edit format, 8k think tokens"),
        ("user", "Mend\nit"),
        ("assistant", "Ok\n> quoted"),
        ("event", "Bye"),
        ("session", "2026-01-05 10:00:00"),
        ("event", "aider"),
        ("user", "go"),
        ("assistant", "#### One"),
    ]


def test_lines_of_windows_are_read_alike() -> None:
    """A carriage return before the newline belongs to the line's end."""
    text = STARTED + ANNOUNCED + "\n#### Mend it  \n\nDone.\n\n> Bye  \n"

    assert [who for who, _ in told(text.replace("\n", "\r\n"))] == [who for who, _ in told(text)]
    assert told(text.replace("\n", "\r\n"))[2] == ("user", "Mend it")


@pytest.mark.parametrize(
    ("line", "usage", "cost", "lost"),
    [
        ("Tokens: 3.2k sent, 271 received. Cost: $0.01 message, $0.05 session.", (3200, 271, 0, 0), 0.01, 1),
        ("Tokens: 5,244 sent, 604 received. Cost: $0.02 request, $0.02 session.", (5244, 604, 0, 0), 0.02, 0),
        ("Tokens: 14 sent, 9 received.", (14, 9, 0, 0), None, 0),
        (CACHED, (500, 1100, 7500, 4000), 0.0312, 1),
        ("Tokens: 1k sent, 8k cache hit, 1 received.", (0, 1, 8000, 0), None, 1),
    ],
)
def test_tokens_and_cost_are_what_aider_printed(
    line: str, usage: tuple[int, ...], cost: float | None, lost: int
) -> None:
    """The counts of an answer stand on the output behind it; rounded ones are said to be."""
    records, report = read(f"{STARTED}> aider  \n\n#### go  \n\nOk\n\n> {line}  \n".encode(), AIDER)

    names = ("input", "output", "cache_read", "cache_write")
    assert records[-1]["usage"] == report.tokens == dict(zip(names, usage, strict=True))
    assert records[-1].get("cost_usd") == cost
    assert report.lost["rounded-count"] == lost


def test_an_answer_names_the_model_that_was_announced_last() -> None:
    """A change of the model within a session counts from there on, and none outlives its session."""
    changed = f"{STARTED}{ANNOUNCED}\nOne\n\n> Model: m-2 with whole edit format  \n\nTwo\n\n"
    text = f"{changed}{STARTED}> aider  \n\nThree\n"

    answers = [r.get("model") for r in read(text.encode(), AIDER)[0] if r.get("role") == "assistant"]

    assert answers == ["m-1", "m-2", None]


def test_damage_is_said_and_the_rest_is_read() -> None:
    """Bytes that aren't UTF-8 are replaced, NUL bytes and a mark at the beginning left out, all counted."""
    data = b"\xef\xbb\xbf" + (STARTED + "> aider  \n\n#### go  \n\n").encode() + b"a\xffb\0\0c\n\0\nd\n"

    records, report = read(data, AIDER)

    assert words(records[-1]) == "a\ufffdbc\n\nd"
    assert report.lost == {"byte-order-mark": 1, "invalid-utf8": 1, "nul-byte": 3}
    assert accounted(records, report) == len(data)


def test_a_block_ends_with_its_part_and_goes_on() -> None:
    """So memory has a bound, and each part gives its own records; the next one says that it continues."""
    data = (STARTED + "> aider  \n\n#### go  \n\n" + f"{FENCE}\n" + "code\n" * 9 + f"{FENCE}\nend\n").encode()
    reader = AiderReader(part=85)

    records, _ = read(data, reader)

    cutter = Cutter(85)
    cutter.feed(data)
    ends = accumulate(part.size for part in cutter.finish())
    assert read_parts([data[a:b] for a, b in pairwise([0, *ends])], reader)[0] == records
    assert [words(r).count("code") for r in records[3:]] == [3, 6]
    assert [r.get("extra") for r in records[3:]] == [None, {"continues": True}]


@pytest.mark.parametrize(
    ("head", "is_aider"),
    [
        (STARTED, True),
        ("-*- mode: text -*-\n> x  \n\n" + STARTED, True),
        (STARTED.replace("\n", "\r\n") + "> a  \r\n", True),
        ("About the file:\n\n# aider chat started at 2026-01-05 10:00:00\nis its first line", False),
        ("x# aider chat started at 2026-01-05 10:00:00\n\n> a\n", False),
        ("# aider chat started at noon\n\n> a\n", False),
        ('{"a": "\n# aider chat started at 2026-01-05 10:00:00\n\n> a\n"}', False),
        ("", False),
    ],
)
def test_a_history_is_known_by_a_line_that_begins_a_session(head: str, *, is_aider: bool) -> None:
    """Anywhere in the head, on a line of its own, with nothing but a session behind it."""
    assert AIDER.matches(head.encode()) is is_aider


def test_a_sample_history_is_read_as_it_was_written() -> None:
    """The builder's sessions, prompts, answers and tool runs come back."""
    tales = [list(islice(story(random.Random(seed), "/src"), 3)) for seed in range(2)]

    records, report = read(aider_history(random.Random(1), tales), AIDER)

    assert sniff(aider_history(random.Random(1), tales)[:HEAD_BYTES]) is not None
    asked = [exchange.prompt for tale in tales for exchange in tale]
    prompts = [words(record) for record in records if record.get("role") == "user"]
    assert [prompt for prompt in prompts if not prompt.startswith("/run")] == asked
    assert report.records == {"session": 2, "event": 2 * (1 + 3 * 2), "message": 2 * 3 * 3}
    assert report.lost["rounded-count"] + report.lost["unknown-type:text"] <= 6


@pytest.mark.needs_samples
def test_the_real_history() -> None:
    """Sessions, prompts, tokens and cost are those that a search for lines finds."""
    data = (Path(os.environ["AUTOCODE_SAMPLES"]) / "aider" / ".aider.chat.history.md").read_bytes()

    reading = AIDER.read(io.BytesIO(data))
    records = list(reading)
    report = reading.report

    assert report.records == {"session": 296, "message": 629, "event": 647, "unknown": 1}
    assert [speaker(record) for record in records].count("user") == 443
    assert report.tokens == {"input": 1_638_017, "output": 69_417, "cache_read": 0, "cache_write": 0}
    assert round(sum(record.get("cost_usd", 0) for record in records), 5) == 6.10122
    assert (report.lost, report.damaged_total, len(report.models)) == ({"unknown-type:text": 1}, 0, 19)
    assert accounted(records, report) == len(data)
