"""The part of a stream that a reader of JSON text looks at: filled at its end, released at its beginning."""

from __future__ import annotations

import hashlib
import re
from typing import BinaryIO, Final

from autocode.jobs.sessions.base import Report, Span

__all__ = ["MAX_HELD", "STEP", "Broken", "Region", "Window"]

STEP: Final = 1024 * 1024
"""Bytes that are read at once, and that a regular expression, which holds the interpreter lock, sees."""

MAX_HELD: Final = 128 * 1024 * 1024
"""Bytes of one value that are held; a longer one is digested while it streams by and reported as damaged."""

# Whole strings, and what may stand outside of strings except brackets; NaN and infinity are the parser's.
_FLAT: Final = re.compile(
    rb'(?:[ \t\r\n,:0-9.+\-eEtrufalsnNIity]++|"(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+")*+'
)
_STRING: Final = re.compile(rb'(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+')
_SCALAR: Final = re.compile(rb"[0-9.+\-a-zA-Z]*+")
_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_BLANK: Final = re.compile(rb"[ \t\r\n\0]*+")
_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _LIST, _LIST_END = b'"\\{}[]'
_CLOSERS: Final = {_OPEN: _CLOSE, _LIST: _LIST_END}
_CONTROLS: Final = 0x20
_KEPT: Final = 4096


class Broken(ValueError):
    """What begins where it was followed from is no JSON value.

    Args:
        reason: why, as a damaged span says it.
        offset: where that was seen.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


class Region:
    """Bytes that no record stands for, digested while they pass.

    Args:
        window: where they pass.
        start: offset of the first one.
    """

    def __init__(self, window: Window, start: int) -> None:
        self._window = window
        self._start = self.done = start
        self._digest = hashlib.sha256()

    def take(self, offset: int) -> None:
        """Digest the bytes up to *offset* and release them."""
        while self.done < offset:
            step = min(offset, self.done + STEP)
            self._digest.update(self._window.slice(self.done, step))
            self.done = step
        self._window.release(offset)

    def span(self, end: int, reason: str) -> Span:
        """Return the span up to *end*."""
        self.take(end)
        return Span(self._start, end - self._start, "sha256:" + self._digest.hexdigest(), reason)


class Window:
    """Bytes of a stream from a position that only moves on; all offsets are those of the stream.

    Args:
        stream: a binary stream, read once, a mebibyte at a time.
        report: gets the number of bytes and of newlines.
        limit: bytes of one value that are held.
    """

    def __init__(self, stream: BinaryIO, report: Report, *, limit: int = MAX_HELD) -> None:
        self._stream = stream
        self._report = report
        self._limit = limit
        self._data = bytearray()
        self._base = self._counted = report.bytes
        self._line = report.lines + 1
        self._start = self._base
        self._is_tried = False
        self._last = b"\n"
        self.shed: Region | None = None
        """The beginning of the value that was followed last, where it became too long to be held."""

    @property
    def end(self) -> int:
        """The offset behind the last byte that was read."""
        return self._base + len(self._data)

    def more(self) -> bool:
        """Read on; say whether there was anything left."""
        chunk = self._stream.read(STEP)
        self._report.bytes += len(chunk)
        self._report.lines += chunk.count(b"\n")
        self._last = chunk[-1:] or self._last
        self._data += chunk
        return bool(chunk)

    def ends_within_line(self) -> bool:
        """Say whether the last line that was read so far lacks its newline."""
        return self._last != b"\n"

    def byte(self, offset: int) -> int:
        """Return the byte at *offset*, or -1 at the end of the stream."""
        while offset >= self.end:
            if not self.more():
                return -1
        return self._data[offset - self._base]

    def slice(self, start: int, end: int) -> bytes:
        """Return a copy of the bytes from *start* to *end*, as far as they are there."""
        with memoryview(self._data) as view:
            return bytes(view[max(0, start - self._base) : max(0, end - self._base)])

    def search(self, pattern: re.Pattern[bytes], start: int, end: int) -> re.Match[bytes] | None:
        """Return where *pattern* matches first between two offsets; see :meth:`offset_of`."""
        return pattern.search(self._data, max(0, start - self._base), end - self._base)

    def offset_of(self, position: int) -> int:
        """Return the offset of a position in a match."""
        return self._base + position

    def line_of(self, offset: int) -> int:
        """Return the number of the line that *offset* is on; call it with offsets that grow."""
        if offset > self._counted:
            self._line += self._data.count(b"\n", self._counted - self._base, offset - self._base)
            self._counted = offset
        return self._line

    def release(self, offset: int) -> None:
        """Forget the bytes before *offset* but the last 4 KiB, once they are many."""
        offset -= _KEPT
        if offset - self._base >= STEP:
            self.line_of(offset)
            del self._data[: offset - self._base]
            self._base = offset

    def blank(self, offset: int) -> int:
        """Return where white space and NUL bytes end that begin at *offset*; what lies before is released."""
        while True:
            end = self._match(_BLANK, offset)
            if end > offset:
                self._report.lose("nul-byte", self._data.count(b"\0", offset - self._base, end - self._base))
                offset = end
            self.release(offset)
            if offset < self.end or not self.more():
                return offset

    def space(self, offset: int) -> int:
        """Return where white space ends that begins at *offset*; more than a mebibyte of it isn't passed."""
        while True:
            end = self._match(_SPACE, offset)
            if end < self.end or end - offset >= STEP or not self.more():
                return end

    def follow(self, value: int, *, since: int | None = None, is_tried: bool = False) -> int:
        """Return where the value ends that begins at *value*.

        Brackets, strings, and the characters outside of them are checked; numbers, words and separators
        aren't. Afterwards :attr:`shed` says whether the value became too long.

        Args:
            value: offset of its first byte.
            since: where that begins what must be held with it, such as its name.
            is_tried: the caller may go back to *since*, so nothing is released; too long is broken.

        Raises:
            Broken: it can't be JSON, or doesn't end.
        """
        self._start = value if since is None else since
        self._is_tried, self.shed = is_tried, None
        byte = self._need(value)
        if byte == _QUOTE:
            return self._string(value)
        if byte in _CLOSERS:
            return self._container(value)
        return self._scalar(value)

    def _string(self, offset: int) -> int:
        offset += 1
        while True:
            offset = self._match(_STRING, offset)
            byte = self._need(offset)
            if byte == _QUOTE:
                return offset + 1
            if byte < _CONTROLS or (byte == _BACKSLASH and self._need(offset + 1) < _CONTROLS):
                raise Broken("invalid-json", offset)

    def _scalar(self, value: int) -> int:
        offset = value
        while True:
            before, offset = offset, self._match(_SCALAR, offset)
            if offset == before and (offset < self.end or not self.more()):
                break
            self._hold(offset)
        if offset == value:
            raise Broken("not-json", offset)
        return offset

    def _container(self, offset: int) -> int:
        opened = bytearray()
        while True:
            before, offset = offset, self._match(_FLAT, offset)
            if offset == self.end:
                self._need(offset)
                continue
            byte = self._data[offset - self._base]
            if byte == _QUOTE:
                offset = self._string(offset)
                continue
            if byte in _CLOSERS:
                if opened and not self._may_open(opened[-1], offset):
                    raise Broken("invalid-json", offset)
                opened.append(byte)
            elif byte in {_CLOSE, _LIST_END}:
                if _CLOSERS[opened.pop()] != byte:
                    raise Broken("invalid-json", offset)
                if not opened:
                    return offset + 1
            elif offset == before:
                raise Broken("invalid-json", offset)
            else:
                continue
            offset += 1

    def _may_open(self, inside: int, offset: int) -> bool:
        """Say whether a bracket may open at *offset*: behind a colon in an object, a comma in a list."""
        at = offset - self._base
        before = self._data[max(0, at - _KEPT) : at].rstrip(b" \t\r\n")[-1:]
        return not before or before in (b":" if inside == _OPEN else b",[")

    def _need(self, offset: int) -> int:
        """Return the byte at *offset*; the value that is followed doesn't end before it."""
        if offset >= self.end:
            self._hold(offset)
            if not self.more():
                raise Broken("truncated", offset)
        return self._data[offset - self._base]

    def _hold(self, offset: int) -> None:
        """Release the beginning of the value that is followed, where it's too long up to *offset*."""
        if offset - self._start <= self._limit:
            return
        if self._is_tried:
            raise Broken("value-too-long", offset)
        self.shed = self.shed or Region(self, self._start)
        self.shed.take(max(self._start, offset - _KEPT))

    def _match(self, pattern: re.Pattern[bytes], offset: int) -> int:
        at = offset - self._base
        match = pattern.match(self._data, at, at + STEP)
        assert match is not None
        return self._base + match.end()
