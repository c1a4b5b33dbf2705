"""What every reader shares: the report of a reading, the protocol, and the making of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

__all__ = [
    "FORMAT",
    "MAX_SPANS",
    "Found",
    "Reader",
    "Reading",
    "Record",
    "Recorder",
    "Report",
    "Span",
    "is_kept",
    "label",
    "word",
]

FORMAT: Final = 1
"""Version of the normal form; it grows when a consumer of the last version would misread the new one."""

MAX_SPANS: Final = 1000
"""Damaged spans listed one by one; the rest is counted, so that a ruined file can't fill the memory."""

_MAX_NAMES: Final = 200
_LONGEST_NAME: Final = 64
_KEPT: Final = frozenset({
    "absurd-time", "branch-unknown", "cyclic-parent", "duplicate-id", "id-limit", "unclosed-container",
    "unusable-id",
})  # fmt: skip

Record = dict[str, Any]


def word(value: object) -> str:
    """Return *value* where it's a string, else the empty string, so that it can be looked up in a set."""
    return value if isinstance(value, str) else ""


def label(name: object) -> str:
    """Return *name* for a report: as it stands, or ``odd`` where it is long or holds odd characters.

    Never a piece of it, and nothing of it replaced: redaction has to see a secret as it was written.
    """
    text = name if isinstance(name, str) else type(name).__name__
    return text if len(text) <= _LONGEST_NAME and text.isprintable() else "odd"


def is_kept(name: str) -> bool:
    """Say whether what ``lost`` counts as *name* is odd but still there, whole or beside its record."""
    return name in _KEPT or name.startswith("unknown-")


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of the source that no record stands for.

    Args:
        offset: position of the first byte in the source.
        length: number of bytes.
        sha256: digest of exactly these bytes, in its written form.
        reason: ``truncated``, ``invalid-json``, ``too-deep``, ``too-many-values``, ``not-json`` or
            ``line-too-long``.
    """

    offset: int
    length: int
    sha256: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the span as a JSON object."""
        return {"offset": self.offset, "length": self.length, "sha256": self.sha256, "reason": self.reason}


@dataclass(slots=True)
class Report:
    """What a reading found, changed, dropped and could not read.

    Every byte of the source is accounted for: it lies in the ``source`` span of a record, in a damaged
    span, or is counted in ``padding`` (white space, newlines, NUL bytes, a byte order mark).
    The report depends on the bytes and the reader's revision alone: no clock, no path, no host.

    A source may hold several sessions, each from its own ``session`` record on. ``session_id``, ``agent_id``,
    ``parent_session_id`` and ``title`` are those of the one session; ``None`` where there are several.
    """

    tool: str
    reader: str
    revision: int
    session_id: str | None = None
    agent_id: str | None = None
    parent_session_id: str | None = None
    title: str | None = None
    lines: int = 0
    bytes: int = 0
    padding: int = 0
    records: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    damaged: list[Span] = field(default_factory=list)
    damaged_total: int = 0
    damaged_bytes: int = 0
    first_at: str | None = None
    last_at: str | None = None
    models: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(
        default_factory=lambda: {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}
    )
    complete: bool = False
    open_line: bool = field(default=False, compare=False)
    """The source ends within a line; not part of the report, but needed to go on from it."""
    head_known: bool = field(default=False, compare=False)
    """The session's own record is final, whatever is appended; not part of the report either."""

    @property
    def sessions(self) -> int:
        """How many sessions the source holds: so many records are of the type ``session``."""
        return self.records["session"]

    def lose(self, name: str, times: int = 1) -> None:
        """Count *times* losses under *name*; past 200 different names they go under ``other``."""
        if times:
            known = name in self.lost or len(self.lost) < _MAX_NAMES
            self.lost[name if known else "other"] += times

    def damage(self, span: Span) -> None:
        """Add a damaged span; the first 1,000 are listed, all are counted."""
        self.damaged_total += 1
        self.damaged_bytes += span.length
        if len(self.damaged) < MAX_SPANS:
            self.damaged.append(span)

    def saw_time(self, at: str) -> None:
        """Widen ``first_at`` … ``last_at`` to *at*, a time in the normal form."""
        if self.first_at is None or at < self.first_at:
            self.first_at = at
        if self.last_at is None or at > self.last_at:
            self.last_at = at

    def saw_model(self, name: str) -> None:
        """Remember a model's name (the first 200 different ones), keeping the list sorted."""
        if name not in self.models and len(self.models) < _MAX_NAMES:
            self.models = sorted([*self.models, name])

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object whose canonical form is the same on every machine."""
        return {
            "tool": self.tool,
            "reader": self.reader,
            "revision": self.revision,
            "format": FORMAT,
            "sessions": self.sessions,
            "session_id": self.session_id,
            "agent_id": self.agent_id,
            "parent_session_id": self.parent_session_id,
            "title": self.title,
            "lines": self.lines,
            "bytes": self.bytes,
            "padding": self.padding,
            "records": dict(sorted(self.records.items())),
            "lost": dict(sorted(self.lost.items())),
            "damaged": [span.to_json() for span in self.damaged],
            "damaged_total": self.damaged_total,
            "damaged_bytes": self.damaged_bytes,
            "first_at": self.first_at,
            "last_at": self.last_at,
            "models": list(self.models),
            "tokens": dict(sorted(self.tokens.items())),
        }


class Reading(Iterator[Record]):
    """One pass over one source: records in order, then a complete report.

    Args:
        records: the records; they fill *report* while they are taken.
        report: what the reading knows so far; ``report.complete`` says that it is final.
        dump: makes the state, given a function that is applied to the session's text in it.
    """

    def __init__(
        self,
        records: Iterator[Record],
        report: Report,
        dump: Callable[[Callable[[Any], Any]], bytes],
    ) -> None:
        self._records = records
        self._dump = dump
        self.report = report

    def __iter__(self) -> Iterator[Record]:  # noqa: PYI034 - the generator itself, a call less for each record
        return self._records

    def __next__(self) -> Record:
        return next(self._records)

    def state(self, shown: Callable[[Any], Any] = lambda text: text) -> bytes:
        """Return what the reader must know to go on behind the bytes that it has read.

        Canonical JSON that depends on these bytes alone. It holds text of the session (a title, its folder,
        ids of tool calls), so it is as private as the session.

        Args:
            shown: applied once to all such text, a JSON value, before it is written; it may replace
                strings, and must keep the form.

        Raises:
            UsageError: records are left to read, the bytes end within a line, they are so few that the
                session's own record may not be final, or such sources aren't read in parts.
        """
        return self._dump(shown)


class Reader(Protocol):
    """Turns the bytes of one tool's transcript into the normal form."""

    @property
    def name(self) -> str:
        """The reader's name, a slug such as ``claude-code``."""

    @property
    def revision(self) -> int:
        """Grows with every change that alters a record or a report of any source."""

    @property
    def in_parts(self) -> bool:
        """Whether a source may be cut behind any newline and read in parts.

        Of one that may not, because it is one document from end to end, :meth:`read` takes no state and
        :meth:`Reading.state` gives none.
        """

    def matches(self, head: bytes) -> bool:
        """Say whether *head*, the first bytes of a source, looks like this tool's."""

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """Read *stream* from its current position to its end; nothing is written.

        The same bytes always give the same records and the same report. Whatever the bytes are, only
        the stream's own ``OSError`` is raised, and not before the first record is asked for. Reading a
        source in parts, each from the state behind the one before, gives the records of reading it whole,
        and the last part's report is that of the whole.

        Args:
            stream: the source, or a part of it.
            state: what :meth:`Reading.state` gave behind the part before; ``None`` for the first part.

        Raises:
            UsageError: *state* is none, one of another reader or revision, or given though sources of this
                reader aren't read in parts.
        """


class Found(NamedTuple):
    """A JSON value in the source: where it lies, and the id that its position gives it."""

    value: Any
    offset: int
    length: int
    position: str


class Recorder:
    """Makes records: numbers them, gives them the common fields, and counts them in the report."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._seq = report.records.total()

    def make(
        self, kind: str, record_id: str, at: str | None, parent: str | None, found: Found | None
    ) -> Record:
        """Return a new record of type *kind* with the fields that all types share."""
        record: Record = {
            "seq": self._seq,
            "id": record_id,
            "type": kind,
            "at": at,
            "parent": parent,
            "source": {"offset": found.offset, "length": found.length}
            if found
            else {"offset": 0, "length": 0},
        }
        self._seq += 1
        self._report.records[kind] += 1
        return record
