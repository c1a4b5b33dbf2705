"""Small documents, and what tests ask of their readings."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from autocode.jobs.canonical import canonical_json
from autocode.jobs.sessions import Reader, Record, Report

NAMES = rb"messages|mapping|chat_messages|steps|subagent_trajectories"
BETWEEN = re.compile(rb'(?:\xef\xbb\xbf)?(?:[ \t\r\n\0,:{}\[\]]|"(?:' + NAMES + rb')")*')
"""What may lie outside of all spans: separators, brackets, and the names of opened containers."""


def read_document(document: Any, reader: Reader, *, indent: int | None = None) -> tuple[list[Record], Report]:
    """Read a document, given as bytes or as a value, and check that each byte of it is accounted for."""
    data = document if isinstance(document, bytes) else json.dumps(document, indent=indent).encode()
    reading = reader.read(io.BytesIO(data))
    records, report = list(reading), reading.report
    spans = {(record["source"]["offset"], record["source"]["length"]) for record in records}
    spans |= {(span.offset, span.length) for span in report.damaged}
    outside, end = b"", 0
    for offset, length in sorted(span for span in spans if span[1]):
        assert offset >= end, f"two spans stand for the bytes from {offset} to {end}"
        outside += data[end:offset]
        end = offset + length
    outside += data[end:]
    assert BETWEEN.fullmatch(outside), outside
    assert (report.padding, report.bytes, report.complete) == (len(outside), len(data), True)
    assert [record["seq"] for record in records] == list(range(len(records)))
    assert len({record["id"] for record in records}) == len(records)
    canonical_json([*records, report.to_json()])
    return records, report


def kinds(records: list[Record]) -> list[str]:
    """Return the types of the records behind the session's own."""
    return [record["type"] for record in records[1:]]


def texts(record: Record) -> list[str]:
    """Return the texts of a message or a result."""
    return [part["text"] for part in record["content"] if part["type"] == "text"]


def everywhere(value: Any) -> set[str]:
    """Return every text and number in a value but the empty text, written as JSON."""
    if isinstance(value, dict):
        return set().union(*(everywhere(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(everywhere(item) for item in value))
    return set() if value is None or value == "" else {json.dumps(value)}
