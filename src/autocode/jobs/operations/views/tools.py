"""Tool calls for somebody who reads: one line that says what a call is about, and its input in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson

from autocode.jobs.operations.views.blocks import Call, Part
from autocode.jobs.operations.views.diffs import Hunk, diff_of, patch_of
from autocode.jobs.operations.views.wording import first_line, readable, shortened

__all__ = ["Piece", "Shown", "json_text", "show_call", "text_of"]

_GIST: Final = 160
_TELLING: Final = (
    "command",
    "cmd",
    "file_path",
    "path",
    "notebook_path",
    "pattern",
    "query",
    "url",
    "subject",
    "description",
    "skill",
    "prompt",
    "code",
    "name",
    "id",
)
"""Arguments that say what a call is about, the most telling first."""

_PATCH: Final = "*** Begin Patch"
_LANGUAGES: Final = {"command": "bash", "cmd": "bash", "code": "python"}
_EDITS: Final = frozenset({"old_string", "new_string", "old_str", "new_str", "content", "file_text", "edits"})


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a call's input: ``fields`` are short arguments, one a line; ``diff`` has hunks."""

    kind: Literal["text", "code", "fields", "diff"]
    text: str = ""
    label: str = ""
    language: str = ""
    hunks: list[Hunk] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shown:
    """How a call is shown: its one-line *gist*, and its input."""

    gist: str
    pieces: list[Piece]


def show_call(call: Call, cwd: str | None) -> Shown:
    """Return how to show *call*; paths below *cwd* are shown from there."""
    value = call.input
    if isinstance(value, str):
        return _show_text(value, cwd)
    if not isinstance(value, dict):
        return Shown("", [] if value is None else [Piece("code", json_text(value), language="json")])
    patch = next((each for each in value.values() if isinstance(each, str) and _PATCH in each[:400]), None)
    if patch is not None:
        return _show_text(patch, cwd)
    edits = _edits(value)
    gist = _gist(value, cwd)
    if edits:
        gist = shortened(_from(str(value.get("file_path", value.get("path", ""))), cwd), _GIST)
        added = sum(len(lines) for piece in edits for kind, lines in piece.hunks if kind == "added")
        removed = sum(len(lines) for piece in edits for kind, lines in piece.hunks if kind == "removed")
        gist = f"{gist}  +{added:,} -{removed:,}".strip()
    rest = {name: each for name, each in value.items() if not (edits and name in _EDITS)}
    return Shown(gist, [*_fields(rest), *edits])


def text_of(parts: list[Part]) -> str:
    """Return the text of *parts*, those that are none told in brackets."""
    return "\n".join(part.text if part.kind in {"text", "context"} else f"[{part.kind}]" for part in parts)


def json_text(value: Any) -> str:
    """Return *value* as indented JSON."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def _show_text(text: str, cwd: str | None) -> Shown:
    if _PATCH not in text[:400]:
        return Shown(first_line(text, _GIST), [Piece("text", text)])
    hunks = patch_of(text)
    files = [
        _from(line.partition(": ")[2], cwd)
        for kind, lines in hunks
        for line in lines
        if kind == "place" and line.startswith(("*** Update File: ", "*** Add File: ", "*** Delete File: "))
    ]
    return Shown(shortened(", ".join(files), _GIST), [Piece("diff", hunks=hunks)])


def _gist(value: Mapping[str, Any], cwd: str | None) -> str:
    if isinstance(value.get("todos"), list):
        done = sum(isinstance(each, dict) and each.get("status") == "completed" for each in value["todos"])
        return f"{done} of {len(value['todos'])} done"
    names = [name for name in _TELLING if value.get(name)] or [
        name for name, each in value.items() if isinstance(each, str) and each
    ]
    if not names:
        return shortened(orjson.dumps(value).decode(), _GIST) if value else ""
    told = value[names[0]]
    if isinstance(told, list):
        told = " ".join(str(each) for each in told)
    gist = first_line(_from(str(told), cwd), _GIST)
    where = value.get("path")
    if names[0] == "pattern" or ("pattern" in value and names[0] == "path"):
        gist = str(value.get("pattern")) + (f"  in {_from(str(where), cwd)}" if where else "")
    return shortened(gist, _GIST)


def _from(path: str, cwd: str | None) -> str:
    if not cwd or len(cwd) < 2:
        return path
    return "." if path == cwd else path.removeprefix(cwd.rstrip("/") + "/")


def _edits(value: Mapping[str, Any]) -> list[Piece]:
    edits = value.get("edits")
    each = [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else [value]
    found = []
    for edit in each:
        before = edit.get("old_string", edit.get("old_str"))
        after = edit.get("new_string", edit.get("new_str"))
        if isinstance(before, str) and isinstance(after, str):
            found.append(Piece("diff", hunks=diff_of(readable(before), readable(after))))
    content = value.get("content", value.get("file_text"))
    if not found and isinstance(content, str) and ("file_path" in value or "path" in value):
        found.append(Piece("diff", hunks=diff_of("", readable(content))))
    return found


def _fields(value: Mapping[str, Any]) -> list[Piece]:
    short, long = [], []
    for name, each in value.items():
        if isinstance(each, str):
            if "\n" in each or len(each) > _GIST or name in _LANGUAGES:
                language = _LANGUAGES.get(name, "")
                long.append(Piece("code" if language else "text", each, label=name, language=language))
            else:
                short.append(f"{name}: {each}")
        elif isinstance(each, dict | list):
            long.append(Piece("code", json_text(each), label=name, language="json"))
        else:
            short.append(f"{name}: {orjson.dumps(each).decode()}")
    return [*long, *([Piece("fields", "\n".join(short))] if short else [])]
