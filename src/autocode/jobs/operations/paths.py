"""Paths that name files without being places: what is refused, and which two can't lie side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["LONGEST_PATH", "clash", "source_path"]

LONGEST_PATH: Final = 4_096
"""Bytes that a path may have, in UTF-8; a name in it may have 255."""

_LONGEST_NAME: Final = 255
_DRIVE: Final = re.compile(r"[A-Za-z]:")


def source_path(text: str) -> str:
    """Return *text*, the path of a session file below its folder, with ``/``.

    Any name that a tool gives is right, also one with a blank or a hyphen first: nothing is ever written to
    this path, it tells people which file is meant.

    Raises:
        ValueError: it is absolute, leads upward, or isn't a path that every system could show.
    """
    if not text.isprintable() or "\\" in text:
        raise ValueError("holds a backslash or a character that can't be printed")
    if text.startswith("/") or _DRIVE.match(text):
        raise ValueError("is absolute")
    if {"", ".", ".."}.intersection(text.split("/")):
        raise ValueError("has an empty part, or one that is . or ..")
    if len(text.encode()) > LONGEST_PATH or any(
        len(part.encode()) > _LONGEST_NAME for part in text.split("/")
    ):
        raise ValueError(f"is longer than {LONGEST_PATH} bytes, or a name in it than {_LONGEST_NAME}")
    return text


def clash(paths: Iterable[str]) -> tuple[str, str] | None:
    """Return two of *paths* that would be one file, or a file and its folder, where case doesn't count."""
    files: dict[str, str] = {}
    for path in paths:
        folded = path.casefold()
        if folded in files:
            return files[folded], path
        files[folded] = path
    for folded, path in files.items():
        folder = folded
        while folder := folder.rpartition("/")[0]:
            if folder in files:
                return files[folder], path
    return None
