"""Bundles written straight from records of the normal form, for what looks at bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autocode.jobs.canonical import canonical_json
from autocode.jobs.store import LocalStore, put_bytes

Records = Sequence[Mapping[str, Any]]


def at(seconds: float) -> str:
    """Return the time *seconds* after 22:00 on a day in February, for less than an hour."""
    whole = int(seconds)
    return f"2026-02-07T22:{whole // 60:02}:{whole % 60:02}.{int(seconds * 1000) % 1000:03}Z"


def session(**fields: Any) -> dict[str, Any]:
    """Return a ``session`` record."""
    usual = {"id": "session", "session_id": "s-1", "cwd": "/home/dev/project", "tool": "claude-code"}
    return record("session", **{**usual, **fields})


def record(kind: str, **fields: Any) -> dict[str, Any]:
    """Return a record of the type *kind*; ``seq`` and ``source`` are set by :func:`bundle`."""
    return {"type": kind, "id": kind, "at": None, "parent": None, **fields}


def said(text: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    """Return a message of one text."""
    return record(
        "message", **{"id": "m", "role": role, "content": [{"type": "text", "text": text}], **fields}
    )


def call(name: str, value: Any, **fields: Any) -> dict[str, Any]:
    """Return a tool call, with the id ``c``."""
    return record("tool_call", **{"id": "c", "call_id": "call-1", "name": name, "input": value, **fields})


def result(text: str, *, error: bool | None = None, **fields: Any) -> dict[str, Any]:
    """Return the result of the call ``c``."""
    content = [{"type": "text", "text": text}]
    return record(
        "tool_result",
        **{"id": "r", "call": "c", "call_id": "call-1", "is_error": error, "content": content, **fields},
    )


def bundle(
    home: Path,
    sources: Mapping[str, Records],
    *,
    part_length: int = 1 << 30,
    report: Mapping[str, Any] | None = None,
    **facts: Any,
) -> tuple[LocalStore, str]:
    """Write a bundle; return its store and digest.

    Args:
        home: where the store lies.
        sources: records by the path below ``data/sessions/``.
        part_length: how many records a part has.
        report: the reading's report of every source.
        facts: of every source, as the manifest has them, such as ``lost``.
    """
    store = LocalStore(home / "store")
    members, described = [], []
    for path, records in sources.items():
        parts = [records[place : place + part_length] for place in range(0, len(records), part_length)]
        stem = f"data/sessions/{path}"
        names = [stem if number == 0 else f"{stem}.part-{number + 1:04}" for number in range(len(parts))]
        seq = 0
        for name, part in zip(names, parts, strict=True):
            lines = []
            for each in part:
                lines.append(canonical_json({"seq": seq, "source": {"offset": 0, "length": 100}, **each}))
                seq += 1
            members.append(_member(store, f"{name}.jsonl", b"".join(line + b"\n" for line in lines)))
        told = {"report": {"title": None, "damaged": [], **(report or {})}, "redaction": {"total": 0}}
        members.append(_member(store, f"{stem}.report.json", canonical_json(told)))
        described.append(_source(stem, names, seq, facts))
    manifest = {
        "format": "autocode-export/1",
        "members": sorted(members, key=lambda member: member["path"]),
        "sources": sorted(described, key=lambda source: source["path"]),
        "unread": [],
        "left_out": {},
        "redaction": {"name": "default", "revision": 1, "digest": "sha256:" + "0" * 64},
        "totals": {"sessions": len(described)},
    }
    return store, put_bytes(store, canonical_json(manifest)).digest


def _member(store: LocalStore, path: str, data: bytes) -> dict[str, Any]:
    info = put_bytes(store, data)
    return {"path": path, "sha256": info.digest, "size": info.size}


def _source(stem: str, names: Sequence[str], records: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    described = {
        "path": stem,
        "sha256": "sha256:" + "1" * 64,
        "size": 1234,
        "reader": "claude-code",
        "revision": 1,
        "sessions": 1,
        "records": records,
        "lost": {},
        "damaged": 0,
        "damaged_bytes": 0,
        "redacted": {},
        **facts,
    }
    return {**described, "parts": list(names)} if len(names) > 1 else described


def every_type() -> list[dict[str, Any]]:
    """Return one session that has every type of record and of part, in an order that makes sense."""
    image = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
    code = "Here:\n\n```python\nprint('hello')\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    return [
        session(at=at(0), git_branch="main", tool_version="2.1.33"),
        record("summary", id="sum", text="What an earlier session was about", leaf=None),
        record("event", id="e1", name="queue-operation", data={"operation": "dequeue"}, at=at(0)),
        said("# Fix the parser\n\nIt breaks on *empty* files.", id="p1", at=at(1)),
        record(
            "thinking", id="t1", text="An empty file has no lines.", signed=True, encrypted=False, at=at(3)
        ),
        record("thinking", id="t2", text="", signed=False, encrypted=True, at=at(3.2)),
        said(code, "assistant", id="a1", at=at(4), model="model-1", message_id="msg", usage={"output": 120}),
        call(
            "Edit",
            {"file_path": "/home/dev/project/p.py", "old_string": "a\nb\n", "new_string": "a\nc\n"},
            at=at(5),
        ),
        result("The file was updated.", at=at(6)),
        call("Bash", {"command": "make test"}, id="c2", call_id="call-2", at=at(7)),
        result("make: *** [test] Error 1", error=True, id="r2", call="c2", call_id="call-2", at=at(9)),
        record(
            "tool_result",
            id="r3",
            call=None,
            call_id="x",
            is_error=None,
            at=at(10),
            content=[
                {"type": "image", "media_type": "image/png", "data": image},
                {"type": "image", "url": "https://images.invalid/one.png"},
                {"type": "document", "data": {"title": "A document"}},
                {"type": "unknown", "data": {"odd": 1}},
            ],
        ),
        record(
            "compaction", id="k", trigger="auto", tokens_before=155031, text="Compacted", held=None, at=at(20)
        ),
        record("unknown", id="u", name="hologram", data={"shape": "cube"}, at=at(21)),
        said("/clear", id="p2", at=at(22)),
    ]
