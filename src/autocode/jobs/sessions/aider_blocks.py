"""The lines of an aider history to blocks: what the user typed, what aider printed, what the model answered.

The file has no structure but the habits of the program that appends to it (aider/io.py, ``InputOutput``):
what the user typed begins with ``#### ``, what aider printed with ``> ``, and both end with two spaces. Of a
text of several lines that it prints, the first has ``> `` before it, the last the two spaces behind it, and
those between have neither. The spaces tell a prompt from a heading of the same level in an answer, and output
from a quotation. A session whose first two lines lack them went through an editor that trims lines: there,
prefixes decide.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple, cast

from autocode.jobs.sessions.base import Report
from autocode.jobs.sessions.lines import Segment, segments
from autocode.jobs.sessions.recovery import WHITE_SPACE

__all__ = ["HEADER", "Block", "Blocks"]

HEADER: Final = re.compile(rb"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[ \r]*")
"""The line that begins a session, with local time."""

_FENCE: Final = re.compile(rb" {0,3}(`{3,}|~{3,})(.*)", re.DOTALL)
_TOKENS: Final = re.compile(rb"> Tokens: [0-9.,kM]{1,16} sent, [0-9a-zA-Z., ]{1,80} received\.")
_BOM: Final = b"\xef\xbb\xbf"
_MARK: Final = b"  "
_TYPED: Final = b"#### "
_PRINTED: Final = b"> "
_MANY: Final = 9


class Block(NamedTuple):
    """Neighbouring lines of one kind.

    Args:
        kind: ``started`` (a session), ``typed``, ``printed``, ``answered``, ``text`` (before anything that
            says what it is), or ``cut``: no block, but a place where a part of the source ends.
        text: the lines without what marks them; of ``started`` the time.
        offset: where the first line begins in the source.
        length: bytes up to the end of the last line, without its newline.
        position: the id that the place gives.
        continues: whether it goes on with the last block, which a part's end or damage interrupted.
    """

    kind: str
    text: bytes
    offset: int
    length: int
    position: str
    continues: bool


class _Line(NamedTuple):
    """A line with something on it, and what stands between it and the one before."""

    segment: Segment
    data: bytes
    before: bytes
    spaces: int
    is_after_blank: bool
    is_marked: bool


class _Doubt(NamedTuple):
    """A line that begins a session, unless it is quoted, and what the block was before it."""

    line: _Line
    text: int
    end: int
    inside: int


class Blocks:
    """Reads a source, or a part of it, into blocks; one block at a time is held.

    A block ends where a part of the source does, so that reading in parts gives what reading the whole gives.

    Args:
        report: gets bytes, lines, padding and damage.
        part: bytes after which a part ends with the line.
        facts: what :meth:`facts` gave behind the part before.
    """

    def __init__(self, report: Report, part: int, facts: dict[str, Any] | None = None) -> None:
        facts = facts or {}
        self._report = report
        self._part = part
        self._damaged = report.damaged_total
        self._kind: str = facts.get("kind", "")
        # whether a text of several lines is being printed, and whether the two spaces tell
        self._is_open: bool = facts.get("open", False)
        self._is_exact: bool = facts.get("exact", True)
        self._since_start: int = facts.get("since_start", _MANY)
        self._fence: bytes = facts.get("fence", "").encode()
        self._last_line: int = facts.get("line", 0)
        self._is_after_blank: bool = facts.get("blank", True)
        self._last_begun = (0, 0)
        self._blank = bytearray()
        self._spaces = 0
        self._doubt: _Doubt | None = None
        self._text = bytearray()
        self._start = self._end = self._inside = 0
        self._position = ""
        self._continues = False

    def facts(self) -> dict[str, Any]:
        """Return what must be known to read on behind the end of the part."""
        return {
            "kind": self._kind,
            "open": self._is_open,
            "exact": self._is_exact,
            "since_start": self._since_start,
            "fence": self._fence.decode(),
            "line": self._last_line,
            "blank": self._is_after_blank,
        }

    def read(self, stream: BinaryIO) -> Iterator[Block]:
        """Yield the blocks of *stream*."""
        watched = _Watched(stream, self._report.bytes, self._part)
        for segment in segments(cast("BinaryIO", watched), self._report):
            yield from self._cut(watched.cuts, segment.offset)
            if self._damaged != self._report.damaged_total:
                self._damaged = self._report.damaged_total
                yield from self._flush()
            line = self._line(segment)
            if line is not None:
                yield from self._take(line)
        yield from self._cut(watched.cuts, self._report.bytes)
        yield from self._flush()
        # newlines at the end give no segment, but the next part must know of them
        ended = self._report.lines + (not self._report.open_line)
        self._is_after_blank = self._is_after_blank or ended - self._last_line > 1
        self._last_line = self._report.lines

    def _cut(self, cuts: deque[int], offset: int) -> Iterator[Block]:
        while cuts and cuts[0] <= offset:
            yield from self._flush()
            yield Block("cut", b"", cuts.popleft(), 0, "", continues=False)

    def _line(self, segment: Segment) -> _Line | None:
        """Return the next line, or ``None`` where nothing is on it."""
        if segment.offset == 0 and segment.data.startswith(_BOM):
            self._report.padding += len(_BOM)
            self._report.lose("byte-order-mark")
            segment = Segment(segment.line, len(_BOM), segment.data[len(_BOM) :])
        gap = segment.line - self._last_line
        self._last_line = segment.line
        self._blank += b"\n" * gap
        self._is_after_blank = self._is_after_blank or gap > 1
        data = segment.data.rstrip(b"\r")
        if not data.strip(WHITE_SPACE):
            self._blank += segment.data
            self._spaces += len(segment.data)
            self._is_after_blank = self._is_after_blank or gap > 0
            return None
        line = _Line(
            segment, data, bytes(self._blank), self._spaces, self._is_after_blank, data.endswith(_MARK)
        )
        self._blank.clear()
        self._spaces = 0
        self._is_after_blank = False
        return line

    def _take(self, line: _Line) -> Iterator[Block]:
        doubt, self._doubt = self._doubt, None
        if doubt is not None and line.data.startswith(_PRINTED) and (line.is_marked or not self._is_exact):
            yield from self._begin_session(doubt.line, doubt)
        if line.is_after_blank and HEADER.fullmatch(line.data):
            if not (self._is_open or self._fence):
                yield from self._begin_session(line, None)
                return
            self._doubt = _Doubt(line, len(self._text), self._end, self._inside)
        self._since_start = min(self._since_start + 1, _MANY)
        was_open = self._is_open
        kind, content = self._decide(line)
        is_new = line.is_after_blank and not was_open and kind in {"typed", "printed"}
        goes_on = kind == self._kind and not is_new
        if goes_on and self._inside:
            self._text += line.before
            self._inside += line.spaces
        else:
            yield from self._flush()
            self._report.padding += line.spaces
            self._kind, self._fence = kind, self._fence if goes_on else b""
            self._start, self._position, self._continues = (
                line.segment.offset,
                self._place(line.segment.line),
                goes_on,
            )
        self._text += content
        self._inside += len(line.segment.data)
        self._end = line.segment.offset + len(line.segment.data)
        if kind == "answered":
            self._saw_fence(line.data)

    def _begin_session(self, line: _Line, doubt: _Doubt | None) -> Iterator[Block]:
        """Yield the block before, up to where it was doubted, and the one that begins a session."""
        if doubt is not None:
            del self._text[doubt.text :]
            self._end, self._inside = doubt.end, doubt.inside
        yield from self._flush()
        if doubt is None or doubt.inside:
            self._report.padding += line.spaces
        header = HEADER.fullmatch(line.data)
        assert header is not None
        place = self._place(line.segment.line)
        self._kind, self._fence = "started", b""
        self._is_open, self._is_exact, self._since_start = False, True, 0
        yield Block("started", header[1], line.segment.offset, len(line.segment.data), place, continues=False)

    def _decide(self, line: _Line) -> tuple[str, bytes]:
        """Return the kind of a line and what is on it without the marks."""
        if self._is_exact and self._lost_its_spaces(line):
            self._is_exact = self._is_open = False
        data, kind = line.data, self._kind
        marked = line.is_marked or not self._is_exact
        is_quoted = bool(self._fence) and not (self._is_exact and line.is_after_blank)
        is_quoted |= not self._is_exact and kind == "answered" and not line.is_after_blank
        bare = data.removesuffix(_MARK)
        may_be_typed = self._is_exact or not self._fence
        if data.startswith(_TYPED) and marked and may_be_typed and (line.is_after_blank or kind == "typed"):
            self._is_open = False
            return "typed", bare[len(_TYPED) :]
        # the only text of several lines that is printed right behind an answer
        is_count = line.is_after_blank and _TOKENS.fullmatch(data) is not None
        may_be_printed = (marked and not is_quoted) or is_count or kind not in {"answered", "text"}
        if data.startswith(_PRINTED) and may_be_printed and (line.is_marked or not self._is_open):
            self._is_open = not marked
            return "printed", bare[len(_PRINTED) :]
        if self._is_open or (kind == "printed" and not line.is_after_blank):
            self._is_open = not marked
            return "printed", bare
        return ("text" if kind in {"", "text"} else "answered"), line.segment.data

    def _lost_its_spaces(self, line: _Line) -> bool:
        is_second = self._since_start == 2 and not line.is_after_blank
        return is_second and self._is_open and line.data.startswith(_PRINTED) and not line.is_marked

    def _saw_fence(self, data: bytes) -> None:
        """Follow code fences as CommonMark has them (section 4.5)."""
        match = _FENCE.match(data)
        if match is None:
            return
        fence, rest = match.groups()
        if not self._fence:
            # a backtick behind the fence makes it code within a line
            self._fence = fence if fence[:1] == b"~" or b"`" not in rest else b""
        elif fence.startswith(self._fence) and not rest.strip(WHITE_SPACE):
            self._fence = b""

    def _place(self, line: int) -> str:
        last, ordinal = self._last_begun
        ordinal = ordinal + 1 if last == line else 0
        self._last_begun = (line, ordinal)
        return f"L{line}:{ordinal}" if ordinal else f"L{line}"

    def _flush(self) -> Iterator[Block]:
        """Yield the block that is held; what stands behind it belongs to none."""
        self._report.padding += self._spaces
        self._blank.clear()
        self._spaces = 0
        self._doubt = None
        if not self._inside:
            return
        length = self._end - self._start
        # newlines and NUL bytes inside the block were counted as padding when they passed
        self._report.padding -= length - self._inside
        block = Block(self._kind, bytes(self._text), self._start, length, self._position, self._continues)
        self._text.clear()
        self._inside = 0
        yield block


class _Watched:
    """Passes a stream on and notes where parts of the source end, as :class:`Cutter` cuts them."""

    def __init__(self, stream: BinaryIO, offset: int, part: int) -> None:
        self.cuts: deque[int] = deque()
        self._stream = stream
        self._offset = self._begun = offset
        self._part = part

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        start = 0
        while True:
            wanted = self._begun + self._part - self._offset
            newline = data.find(b"\n", max(start, wanted))
            if newline < 0:
                break
            start = newline + 1
            self._begun = self._offset + start
            self.cuts.append(self._begun)
        self._offset += len(data)
        return data
