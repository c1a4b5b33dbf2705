"""One JSON document of any size, taken apart while it streams by.

A layout says which containers are opened: their members are given one by one, and a value that isn't opened
is held and parsed whole. So memory is bounded by the longest such value, not by the document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from autocode.jobs.sessions.base import Found, Report
from autocode.jobs.sessions.jsonvalue import Refused, loads
from autocode.jobs.sessions.resumption import EACH, MAX_KEYS, OVERLAP, ROOT, Frame, Layout, Resumption
from autocode.jobs.sessions.window import MAX_HELD, STEP, Broken, Region, Window

__all__ = ["EACH", "ROOT", "Closed", "Layout", "Member", "Opened", "parts_of_document"]

_MAX_OPEN: Final = 32
_BOM: Final = b"\xef\xbb\xbf"
_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE, _LIST, _LIST_END = b'":,{}[]'
_KEY: Final = re.compile(rb'\{[ \t\r\n]{0,200}+("[^"\\\x00-\x1f]{1,64}+")')
_DOCUMENT: Final = re.compile(rb"[{\[]")
_GARBAGE: Final = re.compile(rb'[{}\[\]",]')
_INDENT: Final = re.compile(rb"\n[ \t]{0,200}\Z")


class Opened(NamedTuple):
    """A container was entered: what comes before its :class:`Closed` is within it.

    Args:
        place: what the layout calls it.
        key: its name, where it lies in an object.
        is_list: whether it's a list, whatever the layout expects.
        found: where it begins; it has no value.
    """

    place: str
    key: str | None
    is_list: bool
    found: Found


class Member(NamedTuple):
    """A value of an opened container.

    Args:
        place: the container.
        key: its name, where the container is an object.
        found: the value; its span begins with the name.
    """

    place: str
    key: str | None
    found: Found


class Closed(NamedTuple):
    """A container was left."""

    place: str


def parts_of_document(
    stream: BinaryIO,
    report: Report,
    layout: Layout,
    *,
    recognises: Callable[[str, Any], bool] = lambda _place, _value: True,
    limit: int = MAX_HELD,
) -> Iterator[Opened | Member | Closed]:
    """Take the JSON text in *stream* apart, in one pass and linear time.

    What can't be read is reported as damaged spans; the members behind are still found. Every byte is in the
    ``found`` span of a :class:`Member`, in a damaged span, or in ``padding``: white space, separators, a byte
    order mark, NUL bytes between members, the brackets of opened containers and, where they have one, their
    names. Missing or surplus separators are passed over. Containers that never end are counted as
    ``unclosed-container``; behind a document another one may follow.

    The caller must take all, or ``padding`` stays incomplete.

    Args:
        stream: a binary stream, read once.
        report: gets bytes, lines, padding, losses and damaged spans.
        layout: which containers are opened.
        recognises: given a place and a value, says whether the value may be a member of it; asked only where
            a member may begin within a broken one, to tell it from a value inside the broken one. Of a value
            that the layout opens it sees the first keys, and of their values the short strings.
        limit: bytes that a value which isn't opened may have.
    """
    return _Splitter(stream, report, layout, recognises, limit).run()


class _Splitter:
    def __init__(
        self,
        stream: BinaryIO,
        report: Report,
        layout: Layout,
        recognises: Callable[[str, Any], bool],
        limit: int,
    ) -> None:
        self._report = report
        self._layout = layout
        self._recognises = recognises
        self._window = Window(stream, report, limit=limit)
        self._frames: list[Frame] = []
        self._at = report.bytes
        self._line = self._ordinal = 0
        self._mapped = 0

    def run(self) -> Iterator[Opened | Member | Closed]:
        report, window = self._report, self._window
        window.more()
        if self._at == 0 and window.slice(0, len(_BOM)) == _BOM:
            self._at = len(_BOM)
            report.lose("byte-order-mark")
        while True:
            self._at = window.blank(self._at)
            byte = window.byte(self._at)
            if byte < 0:
                break
            if byte == _COMMA:
                self._at += 1
            elif self._frames and byte == (_LIST_END if self._frames[-1].is_list else _CLOSE):
                self._at += 1
                yield self._leave()
            elif self._is_garbage(byte):
                self._pass_garbage()
            else:
                yield from self._member()
        report.lose("unclosed-container", len(self._frames))
        yield from self._leave_to(0)
        report.lines += window.ends_within_line()
        report.padding = report.bytes - report.damaged_bytes - self._mapped

    def _is_garbage(self, byte: int) -> bool:
        if not self._frames:
            return byte not in {_OPEN, _LIST}
        if self._frames[-1].is_list:
            return byte in {_CLOSE, _COLON}
        return byte not in {_QUOTE, _OPEN, _LIST}

    def _leave(self) -> Closed:
        return Closed(self._frames.pop().place)

    def _leave_to(self, depth: int) -> Iterator[Closed]:
        while len(self._frames) > depth:
            yield self._leave()

    def _member(self) -> Iterator[Opened | Member | Closed]:
        window = self._window
        frame = self._frames[-1] if self._frames else None
        start, line = self._at, window.line_of(self._at)
        try:
            key, value = (None, start) if frame is None or frame.is_list else self._name(start)
            place = self._place(frame, key, value)
            if frame is not None:
                self._note(frame, start, value)
            if place is not None:
                is_list = window.byte(value) == _LIST
                self._frames.append(Frame(place, is_list))
                self._at = value + 1
                found = Found(None, start, value + 1 - start, self._position(line))
                yield Opened(place, key, is_list, found)
                return
            self._at = window.follow(value, since=start)
        except Broken as broken:
            yield from self._resume(start, broken.reason)
            return
        parsed = self._parsed(start, value)
        if parsed is not None:
            assert frame is not None
            found = Found(parsed[0], start, self._at - start, self._position(line))
            self._mapped += found.length
            yield Member(frame.place, key, found)

    def _name(self, start: int) -> tuple[str, int]:
        """Return the name of an object's member, and where its value begins."""
        window = self._window
        if window.byte(start) != _QUOTE:
            raise Broken("not-json", start)
        end = window.follow(start)
        if window.shed is not None or end - start > STEP:
            raise Broken("value-too-long", end)
        try:
            key = loads(window.slice(start, end), self._report.lost)
        except ValueError as error:
            raise Broken("invalid-json", end) from error
        colon = window.space(end)
        if window.byte(colon) != _COLON:
            raise Broken("truncated" if window.byte(colon) < 0 else "not-json", colon)
        value = window.space(colon + 1)
        if window.byte(value) < 0:
            raise Broken("truncated", value)
        return str(key), value

    def _place(self, frame: Frame | None, key: str | None, value: int) -> str | None:
        """Return the place that a value is, if it's a container to be opened."""
        if self._window.byte(value) not in {_OPEN, _LIST} or len(self._frames) >= _MAX_OPEN:
            return None
        return ROOT if frame is None else self._layout[frame.place].get(EACH if key is None else key)

    def _note(self, frame: Frame, start: int, value: int) -> None:
        """Remember what the members of a container look like."""
        if frame.indent is None:
            indent = _INDENT.search(self._window.slice(start - OVERLAP, start))
            frame.indent = indent[0] if indent else b""
        if len(frame.keys) < MAX_KEYS and self._window.byte(value) == _OPEN:
            self._window.byte(value + OVERLAP)
            first = _KEY.match(self._window.slice(value, value + OVERLAP))
            if first:
                frame.keys.add(first[1])

    def _parsed(self, start: int, value: int) -> tuple[Any] | None:
        window, report = self._window, self._report
        if window.shed is not None:
            report.damage(window.shed.span(self._at, "value-too-long"))
            return None
        try:
            return (loads(window.slice(value, self._at), report.lost),)
        except ValueError as error:
            reason = error.reason if isinstance(error, Refused) else "invalid-json"
            report.damage(Region(window, start).span(self._at, reason))
            return None

    def _position(self, line: int) -> str:
        self._ordinal = self._ordinal + 1 if line == self._line else 0
        self._line = line
        return f"L{line}:{self._ordinal}" if self._ordinal else f"L{line}"

    def _pass_garbage(self) -> None:
        """Report what is no member and no bracket that fits, up to where one may begin."""
        window, start = self._window, self._at
        region = Region(window, start)
        pattern = _GARBAGE if self._frames else _DOCUMENT
        at = start + 1
        while (match := window.search(pattern, at, at + STEP)) is None:
            at = min(window.end, at + STEP)
            region.take(at)
            if at == window.end and not window.more():
                break
        self._at = at if match is None else window.offset_of(match.start())
        self._report.damage(region.span(self._at, "not-json"))

    def _resume(self, start: int, reason: str) -> Iterator[Closed]:
        """Report what is broken from *start* on, up to where a member of any open container begins."""
        region = self._window.shed or Region(self._window, start)
        # What isn't even a name may be the first member of a container further out.
        first = max(start + (reason != "not-json"), region.done)
        next_ = Resumption(self._window, self._frames, self._layout, self._recognises).find(first, region)
        if next_ is None:
            self._at = self._window.end
            self._report.damage(region.span(self._at, reason))
            return
        self._at, depth = next_
        self._report.damage(region.span(self._at, reason))
        yield from self._leave_to(depth)
