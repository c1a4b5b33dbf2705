"""The strings of a JSON value, encoded for the gate in pieces of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import orjson

from autocode.jobs.errors import RedactionFailed
from autocode.jobs.redaction.policy import REACH

__all__ = ["SCALARS", "pieces_of"]

SCALARS: Final = frozenset({int, float, bool, type(None)})
"""Types of JSON values that hold no text."""

_SLICE: Final = 1 << 20
_BATCH: Final = 1 << 18
_LONG: Final = 1 << 16
# What decides a match lies within REACH of its start; a look-behind and a key need a little more.
_OVERLAP: Final = 2 * REACH


def pieces_of(value: Any) -> Iterator[bytes]:
    """Yield JSON in which every string of *value* occurs, each key beside its value; without recursion.

    A long string is cut into slices of a mebibyte that overlap by more than a pattern needs.

    Raises:
        RedactionFailed: the value isn't made of JSON values.
    """
    batch: list[bytes] = []
    size = 0
    stack: list[Any] = [[value]]
    while stack:
        node = stack.pop()
        strings, long = _sorted_out(node, stack)
        if strings:
            batch.append(_encoded(strings))
            size += len(batch[-1])
        for text in long:
            for start in range(0, len(text), _SLICE):
                yield _encoded(text[start : start + _SLICE + _OVERLAP])
        if size >= _BATCH:
            yield b"\n".join(batch)
            batch, size = [], 0
    if batch:
        yield b"\n".join(batch)


def _sorted_out(node: Any, stack: list[Any]) -> tuple[Any, list[str]]:
    """Return the strings directly in *node* in its own form, and the long ones; push its containers."""
    long: list[str] = []
    keyed = node.__class__ is dict
    strings: Any = {} if keyed else []
    for key, child in node.items() if keyed else enumerate(node):
        kind = child.__class__
        shown = ""
        if kind is str:
            shown = child if len(child) <= _LONG else child[:_OVERLAP]
            if len(child) > _LONG:
                long.append(child)
        elif kind is dict or kind is list:
            stack.append(child)
        elif kind not in SCALARS:
            raise RedactionFailed(f"a value of type {kind.__name__} is no JSON value", cause=kind.__name__)
        if not keyed:
            strings.append(shown)
        elif key.__class__ is str:
            strings[key] = shown
        else:
            raise RedactionFailed("an object key is no string", cause="TypeError")
    return strings, long


def _encoded(strings: Any) -> bytes:
    try:
        return orjson.dumps(strings)
    except orjson.JSONEncodeError:
        # lone surrogates, which UTF-8 can't hold; escapes can
        return json.dumps(strings, separators=(",", ":")).encode("ascii")
