"""Bytes to lines: a splitter that holds one line at most, whatever the source looks like."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from autocode.jobs.sessions.base import Report, Span

__all__ = ["MAX_LINE", "Segment", "segments"]

MAX_LINE: Final = 128 * 1024 * 1024
"""Bytes of a line that are held; a longer one is digested while it streams by and reported as damaged."""

_CHUNK: Final = 1024 * 1024
_NULS: Final = re.compile(rb"\0+")


class Segment(NamedTuple):
    """A line, or the part of a line between two runs of NUL bytes.

    A raw NUL byte can't occur in JSON text (RFC 8259, section 7), so a run of them, which a crash leaves
    where a file system had reserved room, ends a segment just as a newline does.
    """

    line: int
    offset: int
    data: bytes


def segments(stream: BinaryIO, report: Report, *, max_line: int = MAX_LINE) -> Iterator[Segment]:
    r"""Yield the segments of *stream* that aren't empty, in order.

    Lines end at ``\n`` alone; the last one needs none. Newlines and NUL bytes are counted as padding.

    Args:
        stream: a binary stream, read once, a mebibyte at a time.
        report: gets bytes, lines, padding, and a damaged span for each segment that is too long; one that
            has some already is continued behind them, at the beginning of a line.
        max_line: bytes that a segment may have.
    """
    splitter = _Splitter(report, max_line)
    while chunk := stream.read(_CHUNK):
        report.bytes += len(chunk)
        yield from splitter.feed(chunk)
    yield from splitter.end()


class _Splitter:
    def __init__(self, report: Report, max_line: int) -> None:
        self._report = report
        self._max_line = max_line
        self._line = report.lines + 1
        self._line_is_empty = True
        self._offset = report.bytes
        self._held: list[bytes] = []
        self._size = 0
        self._hash: Any = None

    def feed(self, chunk: bytes) -> Iterator[Segment]:
        if b"\0" not in chunk:
            yield from self._text(chunk)
            return
        position = 0
        for run in _NULS.finditer(chunk):
            yield from self._text(chunk[position : run.start()])
            yield from self._finish()
            position = run.end()
            self._line_is_empty = False
            self._pad(position - run.start())
            self._report.lose("nul-byte", position - run.start())
        yield from self._text(chunk[position:])

    def end(self) -> Iterator[Segment]:
        yield from self._finish()
        self._report.lines = self._line - self._line_is_empty
        self._report.open_line = not self._line_is_empty

    def _text(self, text: bytes) -> Iterator[Segment]:
        first, *pieces = text.split(b"\n")
        self._hold(first)
        if not pieces:
            return
        yield from self._finish()
        self._end_line()
        last = pieces.pop()
        for piece in pieces:
            size = len(piece)
            if size > self._max_line:
                self._hold(piece)
                yield from self._finish()
            elif size:
                # a whole line, as nearly all of them are: nothing has to be held
                yield Segment(self._line, self._offset, piece)
                self._offset += size
            self._end_line()
        self._hold(last)

    def _end_line(self) -> None:
        self._pad(1)
        self._line += 1
        self._line_is_empty = True

    def _pad(self, length: int) -> None:
        self._offset += length
        self._report.padding += length

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._line_is_empty = False
        self._size += len(piece)
        if self._hash is None and self._size > self._max_line:
            self._hash = hashlib.sha256(b"".join(self._held))
            self._held.clear()
        if self._hash is None:
            self._held.append(piece)
        else:
            self._hash.update(piece)

    def _finish(self) -> Iterator[Segment]:
        if not self._size:
            return
        offset, size = self._offset, self._size
        self._offset += size
        self._size = 0
        if self._hash is not None:
            digest, self._hash = "sha256:" + self._hash.hexdigest(), None
            self._report.damage(Span(offset, size, digest, "line-too-long"))
            return
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        yield Segment(self._line, offset, data)
