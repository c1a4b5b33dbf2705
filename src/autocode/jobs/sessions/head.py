"""The beginning of a source: enough of it to know the tool and the session, never all of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Final

from autocode.jobs.sessions.base import Found, Report
from autocode.jobs.sessions.lines import segments
from autocode.jobs.sessions.parts import PART
from autocode.jobs.sessions.recovery import objects
from autocode.jobs.sessions.structure import tokens

__all__ = ["HEAD_BYTES", "any_object", "head_objects", "opened_document", "opened_object", "split_head"]

HEAD_BYTES: Final = 256 * 1024
"""Bytes that :func:`autocode.jobs.sessions.sniff` wants to see; fewer will do where a source has fewer."""

_HEAD_OBJECTS: Final = 64
_HEAD_HELD: Final = 1024 * 1024
_SNIFFED_OBJECTS: Final = 50
_SNIFFED_LINES: Final = 200
_SHOWN_TOKENS: Final = 20_000
_TASTE: Final = 64 * 1024
_CONTROLS: Final = bytes(code for code in range(1, 32) if code not in b"\t\n\r")
_BOM: Final = b"\xef\xbb\xbf"
_QUOTE, _OPEN, _CLOSE, _LIST, _LIST_END = b'"{}[]'


def split_head(
    found: Iterator[Found], completes: Callable[[Any], bool], report: Report
) -> tuple[list[Found], Iterator[Found]]:
    """Return the objects up to the first that *completes* the head, and all objects.

    At most 64 objects or a mebibyte of them are held, so that a second pass is never needed, and none that
    begins past the bytes that the first part has at least. ``report.head_known`` says whether all that
    was there, or more could follow.
    """
    head: list[Found] = []
    size = 0
    for item in found:
        if item.offset >= PART:
            report.head_known = True
            return head, chain(head, [item], found)
        head.append(item)
        size += item.length
        if completes(item.value) or len(head) >= _HEAD_OBJECTS or size >= _HEAD_HELD:
            report.head_known = True
            break
    return head, chain(head, found)


def any_object(head: bytes, recognises: Callable[[dict[str, Any]], bool]) -> bool:
    """Say whether one of the first objects in *head* is recognised, be it cut off at the end."""
    return any(recognises(value) for value in head_objects(head))


def head_objects(head: bytes) -> Iterator[dict[str, Any]]:
    """Yield the first objects in *head*; the last is what can be seen of a line that was cut off."""
    taste = head[:_TASTE]
    if len(taste) - len(taste.translate(None, _CONTROLS)) > _TASTE // 100:
        # a program or a picture: to look for objects in it takes half a second and finds none
        return
    report = Report(tool="", reader="", revision=0)
    lines = (segments(io.BytesIO(line), report) for line in islice(_lines_of_objects(head), _SNIFFED_LINES))
    found = objects(chain.from_iterable(lines), report, lambda _: True)
    for number, item in enumerate(found):
        if number >= _SNIFFED_OBJECTS:
            return
        if isinstance(item.value, dict):
            yield item.value
    rest = head[head.rfind(b"\n") + 1 :]
    yield opened_object(rest.strip(b"\0 \t\r\n\xef\xbb\xbf"))


def _lines_of_objects(head: bytes) -> Iterator[bytes]:
    """Yield the whole lines that may hold an object, one by one: mostly the first tells enough."""
    start = 0
    while end := head.find(b"\n", start) + 1:
        line = head[start:end]
        if b"{" in line:
            yield line
        start = end


def opened_document(head: bytes) -> dict[str, Any]:
    """Return the keys of the object that *head* begins with, or of the first one in the list that it is."""
    text = head.removeprefix(_BOM).lstrip(b"\0 \t\r\n")
    if text[:1] == b"[":
        text = text[1:].lstrip(b" \t\r\n")
    return opened_object(text)


def opened_object(data: bytes) -> dict[str, Any]:
    """Return the keys of the object that begins in *data* and need not end there.

    Values that are short strings are kept, all others are ``True``: enough to recognise a tool by.
    """
    shown: dict[str, Any] = {}
    if data[:1] != b"{":
        return shown
    depth = 0
    key = ""
    for start, end in islice(tokens(data, 0), _SHOWN_TOKENS):
        byte = data[start]
        if byte in {_OPEN, _LIST}:
            depth += 1
        elif byte in {_CLOSE, _LIST_END}:
            depth -= 1
            if not depth:
                break
        elif depth == 1 and byte == _QUOTE:
            text = data[start + 1 : end - 1]
            if data[end : end + 8].lstrip(b" \t\r\n").startswith(b":"):
                key = text[:64].decode("utf-8", "replace")
                shown[key] = True
            elif len(text) <= 64 and key:
                shown[key] = text.decode("utf-8", "replace")
    return shown
