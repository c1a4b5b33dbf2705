"""Small transcripts, and what tests ask of a reading."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from autocode.jobs.sessions import Reader, Record, Report
from autocode.jobs.sessions.claude_code import ClaudeCodeReader
from autocode.jobs.sessions.codex import CodexReader

CLAUDE = ClaudeCodeReader()
CODEX = CodexReader()
AT = "2026-02-07T22:04:44.409Z"


def read(data: bytes, reader: Reader = CLAUDE) -> tuple[list[Record], Report]:
    """Read all of *data*."""
    reading = reader.read(io.BytesIO(data))
    return list(reading), reading.report


def read_parts(parts: Sequence[bytes], reader: Reader) -> tuple[list[Record], Report]:
    """Read one part after another, each from the state behind the one before."""
    reading = reader.read(io.BytesIO(parts[0]))
    records = list(reading)
    for part in parts[1:]:
        reading = reader.read(io.BytesIO(part), reading.state())
        records += reading
    return records, reading.report


def body(data: bytes, reader: Reader = CLAUDE) -> list[Record]:
    """Return the records after the session's own."""
    return read(data, reader)[0][1:]


def line(value: Any) -> bytes:
    """Return *value* as a line of JSON."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def user(text: Any = "hello", **more: Any) -> dict[str, Any]:
    """Return a line of Claude Code in which the user says *text*."""
    return {
        "parentUuid": None,
        "isSidechain": False,
        "sessionId": "s-1",
        "cwd": "/home/dev/project",
        "version": "2.1.33",
        "gitBranch": "main",
        "type": "user",
        "message": {"role": "user", "content": text},
        "timestamp": AT,
        **more,
    }


def assistant(content: list[Any], **more: Any) -> dict[str, Any]:
    """Return a line of Claude Code in which the model answers."""
    message = {"role": "assistant", "type": "message", "model": "model-1", "id": "msg_1", "content": content}
    message |= more.pop("message", {})
    return user(type="assistant", requestId="req_1", **more) | {"message": message}


def item(payload: Any, kind: str = "response_item", **more: Any) -> dict[str, Any]:
    """Return a line of a Codex rollout."""
    return {"timestamp": AT, "type": kind, "payload": payload, **more}


def meta(**more: Any) -> dict[str, Any]:
    """Return the first line of a Codex rollout."""
    payload = {"id": "r-1", "timestamp": AT, "cwd": "/home/dev/project", "cli_version": "0.104.0", **more}
    return item(payload, "session_meta")


def accounted(records: list[Record], report: Report) -> int:
    """Return how many bytes lie in a record's or a damaged span or are padding; no spans may overlap."""
    spans = {(record["source"]["offset"], record["source"]["length"]) for record in records}
    spans |= {(span.offset, span.length) for span in report.damaged}
    covered = end = 0
    for offset, length in sorted(span for span in spans if span[1]):
        assert offset >= end
        end = offset + length
        covered += length
    return covered + report.padding
