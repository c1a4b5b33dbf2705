"""Real transcripts: counted independently, line by line, with the standard library."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.sessions import HEAD_BYTES, Cutter, kind_of, sniff
from unit.sessions.session_documents import read_document, texts
from unit.sessions.session_lines import accounted, read, read_parts

SAMPLES = os.environ.get("AUTOCODE_SAMPLES")
FOLDERS = {"claude-code": "claude-code", "growth": "claude-code", "codex": "codex"}
EXPECTED_LOSSES = {"thinking-signature", "encrypted-thinking", "duplicate-id", "replacement-history"}
READERS_OF = FOLDERS | {
    name: name for name in ("aider", "atif", "chatgpt", "claude-ai", "gemini-cli", "openhands", "swe-agent")
}


def files(*folders: str) -> list[Path]:
    """Return the sample files in *folders*; none where no samples are given."""
    if SAMPLES is None:
        return []
    return sorted(
        path for folder in folders for path in (Path(SAMPLES) / folder).rglob("*") if path.is_file()
    )


def values(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects of a transcript, one after another, however they are glued."""
    decoder = json.JSONDecoder()
    for part in data.decode().split("\n"):
        rest = part.strip()
        while rest:
            value, end = decoder.raw_decode(rest)
            yield value
            rest = rest[end:].strip()


def claude_counts(data: bytes) -> Counter[str]:
    """Count what the records of a Claude Code transcript should be."""
    counts = Counter({"session": 1})
    for value in values(data):
        if value["type"] not in {"user", "assistant"}:
            boundary = value.get("subtype") == "compact_boundary"
            counts["compaction" if boundary else "summary" if value["type"] == "summary" else "event"] += 1
            continue
        content = value["message"]["content"]
        previous = ""
        for block in [{"type": "text"}] if isinstance(content, str) else content:
            names = {"tool_use": "tool_call", "tool_result": "tool_result", "thinking": "thinking"}
            kind = names.get(block["type"], "message")
            counts[kind] += not (kind == previous == "message")
            previous = kind
    return counts


def codex_counts(data: bytes) -> Counter[str]:
    """Count what the records of a rollout should be."""
    counts = Counter({"session": 1})
    for value in values(data):
        kind = value["payload"].get("type", "") if value["type"] == "response_item" else ""
        if kind.endswith("_output"):
            counts["tool_result"] += 1
        elif kind.endswith("_call"):
            counts["tool_call"] += 1
        else:
            counts[{"message": "message", "reasoning": "thinking"}.get(kind, "event")] += 1
    return counts


@pytest.mark.parametrize("path", files(*FOLDERS), ids=lambda path: path.name[:36])
def test_a_real_transcript_is_read_without_surprise(path: Path) -> None:
    """Nothing is unknown or damaged, every byte is accounted for, and the counts are the independent ones."""
    data = path.read_bytes()
    reader = sniff(data[:HEAD_BYTES])
    assert reader is not None

    records, report = read(data, reader)

    assert reader.name == FOLDERS[path.relative_to(SAMPLES or "").parts[0]]
    assert set(report.lost) <= EXPECTED_LOSSES
    assert (report.damaged_total, accounted(records, report)) == (0, len(data))
    assert report.records == (claude_counts if reader.name == "claude-code" else codex_counts)(data)
    assert report.lines == len(data.rstrip(b"\n").split(b"\n"))


@pytest.mark.parametrize("path", files("claude-code", "growth"), ids=lambda path: path.name[:36])
def test_tokens_of_a_real_transcript(path: Path) -> None:
    """The totals are those of the last record of each message."""
    last = {}
    for value in values(path.read_bytes()):
        if value["type"] == "assistant":
            last[value["message"]["id"], value.get("requestId")] = value["message"]["usage"]

    _, report = read(path.read_bytes())

    assert report.tokens["output"] == sum(usage["output_tokens"] for usage in last.values())
    assert report.tokens["cache_read"] == sum(usage["cache_read_input_tokens"] for usage in last.values())


@pytest.mark.parametrize("path", files("codex"), ids=lambda path: path.name[:36])
def test_tokens_of_a_real_rollout(path: Path) -> None:
    """The totals are those of the last running total."""
    counts = [value["payload"]["info"] for value in values(path.read_bytes()) if value["payload"].get("info")]
    total = counts[-1]["total_token_usage"]
    reader = sniff(path.read_bytes())
    assert reader is not None

    _, report = read(path.read_bytes(), reader)

    assert report.tokens["output"] == total["output_tokens"]
    assert report.tokens["input"] + report.tokens["cache_read"] == total["input_tokens"]


@pytest.mark.parametrize("path", files(*READERS_OF), ids=lambda path: path.name[:36])
def test_every_real_transcript_has_the_reader_of_its_tool(path: Path) -> None:
    """It is told from the first bytes, and reads all of them; nothing is damaged."""
    data = path.read_bytes()
    reader = sniff(data[:HEAD_BYTES])
    assert reader is not None

    records, report = read(data, reader)

    assert reader.name == kind_of(data[:HEAD_BYTES]) == READERS_OF[path.relative_to(SAMPLES or "").parts[0]]
    assert (report.damaged_total, accounted(records, report)) == (0, len(data))


@pytest.mark.parametrize("path", [path for path in files("claude-code") if path.name[:8] in {
    "130d7b7e", "3a782158", "86cc3044",
}], ids=lambda path: path.name[:8])  # fmt: skip
def test_glued_lines_of_real_transcripts_are_parted(path: Path) -> None:
    """The one glued line of each of these gives two records with neighbouring spans."""
    records, _ = read(path.read_bytes())

    glued = [record for record in records if ":1" in record["id"]]

    assert len(glued) == 1
    before = records[glued[0]["seq"] - 1]["source"]
    assert glued[0]["source"]["offset"] == before["offset"] + before["length"]


@pytest.mark.parametrize("path", files(*FOLDERS), ids=lambda path: path.name[:36])
def test_a_real_transcript_in_parts(path: Path) -> None:
    """Cut every 64 KiB, a real transcript gives what it gives whole."""
    data = path.read_bytes()
    reader = sniff(data[:HEAD_BYTES])
    assert reader is not None
    cutter = Cutter(64 * 1024)
    cutter.feed(data)
    ends = list(accumulate(part.size for part in cutter.finish()))
    parts = [data[start:end] for start, end in pairwise([0, *ends])]

    assert read_parts(parts, reader) == read(data, reader)


DOCUMENTS = {
    # counted with jq: .messages[] by type, [.messages[].toolCalls[]?], thoughts; tokens added up by hand
    "session-fa4593e0-f7e1-4dd1-b656-da95fb4d60fa.json": (
        "gemini-cli",
        {"session": 1, "message": 3, "thinking": 4, "tool_call": 1, "tool_result": 1},
        {},
        {"input": 12059 + 12117 - 11835, "output": 17 + 75 + 16 + 45, "cache_read": 11835},
    ),
    "session-faff42ab-6ea5-4f78-b8c4-f7dd6272af08.json": (
        "gemini-cli",
        {"session": 1, "message": 4, "thinking": 6, "tool_call": 2, "tool_result": 2},
        {},
        {
            "input": 12874 + 11998 + 12018 + 12075 - (11868 + 11769 + 11693),
            "output": (18 + 31) + (12 + 105) + (21 + 82) + (19 + 14),
            "cache_read": 11868 + 11769 + 11693,
        },
    ),
    # 7 conversations of 6 nodes each, the first without a message; each ends with fields behind the nodes
    "conversations.json": ("chatgpt", {"session": 7, "message": 35, "event": 14}, {}, {}),
    # three messages; block types were replaced by the publisher, and times lost the digits of their zones
    "sample-00.json": (
        "claude-ai",
        {"session": 1, "message": 3},
        {"absurd-time": 3, "unknown-part": 8},
        {},
    ),
    # who said the first five steps was replaced by the publisher; the sixth has four calls with their results
    "trajectory.json": (
        "atif",
        {"session": 1, "unknown": 5, "tool_call": 4, "tool_result": 4, "event": 1},
        {"absurd-time": 13, "unknown-source": 5},
        {"input": 8983, "output": 7},
    ),
}


@pytest.mark.parametrize(
    "path", files("gemini-cli", "chatgpt", "claude-ai", "atif"), ids=lambda path: path.name[:36]
)
def test_a_real_document(path: Path) -> None:
    """Records, losses and tokens are those that were counted by hand, and every byte is accounted for."""
    name, records, lost, tokens = DOCUMENTS[path.name]
    data = path.read_bytes()
    reader = sniff(data[:HEAD_BYTES])
    assert reader is not None

    _, report = read_document(data, reader)

    losses: Counter[str] = Counter()
    for loss, count in report.lost.items():
        losses[loss.partition(":")[0]] += count
    assert (reader.name, report.records, losses) == (name, records, lost)
    assert {kind: count for kind, count in report.tokens.items() if count} == tokens
    assert report.damaged_total == 0


@pytest.mark.parametrize("path", files("gemini-cli", "chatgpt"), ids=lambda path: path.name[:36])
def test_what_was_said_in_a_real_document(path: Path) -> None:
    """Every text that a user or an assistant said is told once, in order."""
    document = json.loads(path.read_bytes())
    reader = sniff(path.read_bytes()[:HEAD_BYTES])
    assert reader is not None
    if reader.name == "gemini-cli":
        said = [message["content"] for message in document["messages"]]
    else:
        messages = [node["message"] for talk in document for node in talk["mapping"].values()]
        said = ["".join(message["content"]["parts"]) for message in messages if message]

    records, _ = read_document(path.read_bytes(), reader)

    told = ["".join(texts(record)) for record in records if record["type"] == "message"]
    assert told == [text for text in said if text]
