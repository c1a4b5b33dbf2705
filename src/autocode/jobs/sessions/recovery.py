"""Segments to JSON values: what was glued is parted, what is broken is reported, nothing is skipped unseen.

Everything here is linear in the length of the segment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from autocode.jobs.canonical import digest_of
from autocode.jobs.sessions.base import Found, Report, Span
from autocode.jobs.sessions.jsonvalue import MAX_DEPTH, Refused, loads
from autocode.jobs.sessions.lines import Segment
from autocode.jobs.sessions.structure import tokens

__all__ = ["WHITE_SPACE", "objects"]

WHITE_SPACE: Final = b" \t\r\n"
"""What JSON calls white space (RFC 8259, section 2); form feeds and U+2028 are not."""

_BOM: Final = b"\xef\xbb\xbf"
_START: Final = re.compile(
    rb'\{"(?:type|timestamp|parentUuid|logicalParentUuid|isSidechain|sessionId|uuid|message|payload)"'
)
_QUOTE, _OPEN, _CLOSE, _BRACKET = b'"{}['


class _Piece(NamedTuple):
    start: int
    end: int
    value: Any
    damage: str | None


def objects(
    parts: Iterable[Segment], report: Report, recognises: Callable[[dict[str, Any]], bool]
) -> Iterator[Found]:
    """Yield the JSON values of *parts* in order of their position.

    Args:
        parts: segments in order.
        report: gets padding, losses and damaged spans.
        recognises: says whether an object is a record of the tool; asked only where a record may begin in
            the middle of a broken one, to tell it from an object inside the broken one.
    """
    line = ordinal = 0
    for part in parts:
        if part.line != line:
            line, ordinal = part.line, 0
        data, offset = part.data, part.offset
        if data[0] == _OPEN and data[-1] == _CLOSE:
            # one object that fills its line, as nearly all of them do
            try:
                value = loads(data, report.lost)
            except ValueError:
                pass
            else:
                yield Found(value, offset, len(data), f"L{line}:{ordinal}" if ordinal else f"L{line}")
                ordinal += 1
                continue
        if offset == 0 and data.startswith(_BOM):
            data, offset = data[len(_BOM) :], len(_BOM)
            report.padding += len(_BOM)
            report.lose("byte-order-mark")
        for piece in _pieces(data, report.lost, recognises):
            if piece.damage is not None:
                _damage(report, data, offset, piece)
                continue
            position = f"L{line}:{ordinal}" if ordinal else f"L{line}"
            ordinal += 1
            yield Found(piece.value, offset + piece.start, piece.end - piece.start, position)
        report.padding += _outside(data)


def _outside(data: bytes) -> int:
    """Count the white space around the segment; that between its pieces is counted with the damage."""
    return len(data) - len(data.strip(WHITE_SPACE))


def _pieces(
    data: bytes, losses: Counter[str], recognises: Callable[[dict[str, Any]], bool]
) -> Iterator[_Piece]:
    body = data.strip(WHITE_SPACE)
    if not body:
        return
    lead = len(data) - len(data.lstrip(WHITE_SPACE))
    try:
        value = loads(body, losses)
    except ValueError:
        yield from _joined(_Carver(data, lead, lead + len(body), losses, recognises).run())
    else:
        yield _Piece(lead, lead + len(body), value, None)


def _joined(pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """Join neighbouring damage, under the first one's reason."""
    broken: _Piece | None = None
    for piece in pieces:
        if piece.damage is not None:
            broken = broken or piece
            broken = broken._replace(end=piece.end, damage=broken.damage or piece.damage)
            continue
        if broken is not None:
            yield broken
            broken = None
        yield piece
    if broken is not None:
        yield broken


def _damage(report: Report, data: bytes, offset: int, piece: _Piece) -> None:
    spoiled = data[piece.start : piece.end]
    body = spoiled.strip(WHITE_SPACE)
    report.padding += len(spoiled) - len(body)
    if body:
        start = offset + piece.start + len(spoiled) - len(spoiled.lstrip(WHITE_SPACE))
        report.damage(Span(start, len(body), digest_of(body), piece.damage or "not-json"))


class _Carver:
    """Cuts one segment, which isn't one JSON text, into objects and damage that cover it without a gap."""

    def __init__(
        self,
        data: bytes,
        start: int,
        end: int,
        losses: Counter[str],
        recognises: Callable[[dict[str, Any]], bool],
    ) -> None:
        self._data = data
        self._position = start
        self._end = end
        self._losses = losses
        self._recognises = recognises
        # Looking for a record inside a broken one may fail at each brace; the budget keeps that linear.
        self._budget = 2 * (end - start) + 262_144

    def run(self) -> Iterator[_Piece]:
        while self._position < self._end:
            start = self._data.find(b"{", self._position, self._end)
            if start != self._position:
                yield self._between(start if start >= 0 else self._end)
                continue
            end, deepest = self._close(start)
            reason = "truncated"
            if end:
                try:
                    value = loads(self._data[start:end], self._losses)
                except Refused as refusal:
                    reason = refusal.reason
                except ValueError:
                    reason = "too-deep" if deepest > MAX_DEPTH else "invalid-json"
                else:
                    self._position = end
                    yield _Piece(start, end, value, None)
                    continue
            yield self._broken(self._next_record(start, end or self._end) or end or self._end, reason)

    def _between(self, end: int) -> _Piece:
        """White space between two objects has no reason of its own: it isn't damage."""
        is_blank = not self._data[self._position : end].strip(WHITE_SPACE)
        return self._broken(end, "" if is_blank else "not-json")

    def _broken(self, end: int, reason: str) -> _Piece:
        piece = _Piece(self._position, end, None, reason)
        self._position = end
        return piece

    def _close(self, start: int) -> tuple[int, int]:
        """Return where the object at *start* ends, or 0, and how deep it nests."""
        data, depth, brackets, deepest = self._data, 0, 0, 0
        for at, _ in tokens(data, start):
            byte = data[at]
            if byte == _OPEN:
                depth += 1
            elif byte == _CLOSE:
                depth -= 1
                if not depth:
                    return at + 1, deepest
            elif byte == _BRACKET:
                brackets += 1
            elif byte != _QUOTE:
                brackets -= 1
            deepest = max(deepest, depth + brackets)
        return 0, deepest

    def _next_record(self, start: int, stop: int) -> int:
        """Return where a whole record of the tool begins between *start* and *stop*, or 0."""
        looked_at = start
        if self._budget <= 0:
            return 0
        for match in _START.finditer(self._data, start + 1, self._end):
            begin = match.start()
            self._budget -= begin - looked_at
            looked_at = begin
            if begin >= stop or self._budget <= 0:
                return 0
            end, _ = self._close(begin)
            self._budget -= (end or self._end) - begin
            if end and self._is_followed_by_object_or_end(end):
                try:
                    value = loads(self._data[begin:end], Counter())
                except ValueError:
                    continue
                if self._recognises(value):
                    return begin
        self._budget -= self._end - looked_at
        return 0

    def _is_followed_by_object_or_end(self, position: int) -> bool:
        rest = self._data[position : min(position + 64, self._end)].lstrip(WHITE_SPACE)
        return not rest or rest[0] == _OPEN
