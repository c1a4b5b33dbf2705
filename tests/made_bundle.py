"""Bundles made by hand from records, and small sessions with everything that the tables tell of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from autocode.jobs.canonical import canonical_json
from autocode.jobs.operations.export.bundle import write_manifest
from autocode.jobs.operations.export.payload import BundleInputs
from autocode.jobs.store import LocalStore
from export_context import StoreContext, export

Record = dict[str, Any]


def at(minute: int, second: float = 0) -> str:
    """Return a time of 2026-02-07 in the normal form."""
    return f"2026-02-07T22:{minute:02d}:{second:06.3f}Z"


def record(seq: int, kind: str, **fields: Any) -> Record:
    """Return a record with the common fields."""
    source = {"offset": 100 * seq, "length": 100}
    return {
        "seq": seq,
        "id": f"r{seq}",
        "type": kind,
        "at": at(seq),
        "parent": None,
        "source": source,
        **fields,
    }


def session(seq: int, **fields: Any) -> Record:
    """Return a session record."""
    said: Record = {"tool": "aider", "reader": "aider", "reader_revision": 1, "format": 1, "cwd": None}
    said |= dict.fromkeys(("session_id", "agent_id", "parent_session_id", "git_branch", "tool_version"))
    return record(seq, "session", **{**said, "model_provider": None, **fields})


def bundle_of(
    folder: Path, *parts: Iterable[Record | bytes], title: str | None = None, **report: Any
) -> tuple[LocalStore, str]:
    """Write a bundle with one source that holds these records, in as many parts as are given."""
    context = StoreContext(folder, LocalStore(folder / "store"))
    described = []
    count = 0
    for part in parts:
        lines = [each if isinstance(each, bytes) else canonical_json(each) + b"\n" for each in part]
        count += len(lines)
        normal = context.put(lines, "x")
        named = {"digest": normal.digest, "size": normal.size}
        described.append(
            {"source": {"sha256": normal.digest, "size": normal.size}, "raw": None, "normal": named}
        )
    known = {"tool": "aider", "reader": "aider", "revision": 1, "session_id": "s", "agent_id": None}
    entry: dict[str, Any] = {
        "report": {**known, "title": title, "records": {"any": count}, "lost": {}, "damaged": [], **report},
        "redaction": None,
    }
    if len(described) == 1:
        entry |= described[0]
    else:
        entry |= {"source": described[0]["source"], "parts": described}
    written = context.put([canonical_json(entry)], "x")
    inputs = BundleInputs(entries=(written.digest,), unread=(), left_out={}, policy=None)
    return context.store, write_manifest(context, inputs).digest


class Claude:
    """Writes the lines of a Claude Code session, a second apart."""

    def __init__(self, session_id: str, project: str, day: str = "2026-02-07") -> None:
        self._common = {"sessionId": session_id, "cwd": project, "isSidechain": False}
        self._day = day
        self._lines: list[dict[str, Any]] = []
        self._calls = 0
        self._second = 0.0

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._second += seconds

    def user(self, text: str) -> None:
        """Say something."""
        self._add("user", {"role": "user", "content": text})

    def answer(self, text: str, *, model: str = "opus", tokens: Sequence[int] = (10, 5, 100, 20)) -> None:
        """Let the model say something, in a stream that tells the counts twice."""
        for output in (1, tokens[1]):
            content = [{"type": "text", "text": text}]
            self._model(content, model, (tokens[0], output, *tokens[2:]))

    def call(
        self, tool: str, given: Any, result: str | None, *, seconds: float = 1, error: bool = False
    ) -> None:
        """Let the model call a tool, and give it the result."""
        self._calls += 1
        call_id = f"{self._common['sessionId']}-{self._calls}"
        self._model([{"type": "tool_use", "id": call_id, "name": tool, "input": given}], "opus", (1, 1, 0, 0))
        if result is not None:
            self.wait(seconds - 1)
            block = {"type": "tool_result", "tool_use_id": call_id, "content": result, "is_error": error}
            self._add("user", {"role": "user", "content": [block]})

    def write(self, path: Path) -> None:
        """Write the session."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in self._lines), "utf-8")

    def _model(self, content: list[dict[str, Any]], model: str, tokens: Sequence[int]) -> None:
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        message = {"role": "assistant", "type": "message", "id": f"m{self._id(content)}", "model": model}
        usage = dict(zip(names, tokens, strict=True))
        self._add("assistant", {**message, "content": content, "usage": usage})

    def _id(self, content: list[dict[str, Any]]) -> str:
        return str(content[0].get("id") or content[0]["text"])

    def _add(self, kind: str, message: dict[str, Any]) -> None:
        minute, second = divmod(self._second, 60)
        self._second += 1
        number = len(self._lines)
        line = {"type": kind, "message": message, "uuid": f"u{number}", **self._common}
        line["parentUuid"] = f"u{number - 1}" if number else None
        line["timestamp"] = f"{self._day}T10:{int(minute):02d}:{second:06.3f}Z"
        self._lines.append(line)


def example_export(folder: Path, home: Path) -> tuple[LocalStore, str]:
    """Export two small sessions: two projects, two days, two models, four tools, an error, a secret."""
    one = Claude("s-1", "/home/ada/parser")
    one.user("Why does the parser fail?")
    one.answer("I look at it.", tokens=(40, 30, 1000, 200))
    one.call(
        "Read", {"file_path": "parser.py"}, "def parse(text):\n    return text.split()", seconds=0.25 + 1
    )
    one.call("Bash", {"command": "pytest -q\nmake lint"}, "1 failed", seconds=12.5, error=True)
    one.call("Edit", {"file_path": "parser.py", "old_string": "split()", "new_string": "lines()"}, "done")
    one.call("Bash", {"command": "pytest -q"}, "3 passed", seconds=8)
    one.answer("It works.", tokens=(20, 60, 1500, 0))
    two = Claude("s-2", "/home/ada/site", "2026-02-08")
    two.user("My token is ghp_" + "a1B2c3D4e5F6" * 3 + ", publish the site.")
    two.answer("I publish it.", model="haiku", tokens=(15, 25, 0, 500))
    two.call("Bash", {"command": "make publish"}, "published", seconds=30)
    two.call("WebFetch", {"url": "https://example.org"}, None)
    one.write(folder / "one.jsonl")
    two.write(folder / "two.jsonl")
    return export(folder, home)
