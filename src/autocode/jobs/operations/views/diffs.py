"""Edits as diffs: what a tool was told to change, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import groupby
from typing import Final, Literal

__all__ = ["Change", "Hunk", "diff_of", "patch_of"]

Change = Literal["same", "removed", "added", "place"]
"""``place`` is a line that says where in which file what follows lies."""

Hunk = tuple[Change, list[str]]
"""Lines in a row of one kind, without marks and without line ends."""

_COMPARED: Final = 600
"""Lines a side that are compared; difflib takes quadratic time, and a longer edit is a rewrite anyway."""

_PATCH_PLACES: Final = ("*** ", "@@", "diff --git", "--- ", "+++ ", "index ")


def diff_of(before: str, after: str) -> list[Hunk]:
    """Return what turns *before* into *after*; all of both, one after the other, where they are long."""
    old, new = _lines(before), _lines(after)
    if len(old) > _COMPARED or len(new) > _COMPARED:
        return [hunk for hunk in ((_REMOVED, old), (_ADDED, new)) if hunk[1]]
    hunks: list[Hunk] = []
    for kind, old_from, old_to, new_from, new_to in difflib.SequenceMatcher(a=old, b=new).get_opcodes():
        if kind == "equal":
            hunks.append(("same", old[old_from:old_to]))
            continue
        hunks += [("removed", old[old_from:old_to])] if old_to > old_from else []
        hunks += [("added", new[new_from:new_to])] if new_to > new_from else []
    return hunks


_REMOVED: Final[Change] = "removed"
_ADDED: Final[Change] = "added"


def patch_of(text: str) -> list[Hunk]:
    """Return the hunks of a patch as ``apply_patch`` and ``diff -u`` write them."""
    return [
        (kind, [line for _, line in lines]) for kind, lines in groupby(_marked(text), lambda each: each[0])
    ]


def _marked(text: str) -> Iterator[tuple[Change, str]]:
    for line in _lines(text):
        if line.startswith(_PATCH_PLACES):
            yield "place", line
        elif line.startswith("+"):
            yield "added", line[1:]
        elif line.startswith("-"):
            yield "removed", line[1:]
        else:
            yield "same", line.removeprefix(" ")


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    # a text that ends its last line has no empty line behind it
    return lines[:-1] if lines[-1] == "" else lines
