"""How every reader's reading is set up, continued from a state, and ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from autocode.jobs.errors import UsageError
from autocode.jobs.sessions.base import FORMAT, Found, Reader, Reading, Record, Recorder, Report
from autocode.jobs.sessions.state import Knowledge, Saved, dump, load
from autocode.jobs.sessions.times import normalise

__all__ = ["Mapper", "begin", "joined"]


class Mapper(ABC):
    """Turns one source of one tool into records; every reading has one of its own.

    One that reads sources in parts says in :meth:`texts` and :meth:`facts` what else the next part needs, and
    takes it from *saved* when it is made.

    Args:
        report: what the reading fills.
        saved: the state behind the part before, or ``None`` at the beginning of the source.
    """

    def __init__(self, report: Report, saved: Saved | None) -> None:
        self._report = report
        self._is_first = saved is None
        self._recorder = Recorder(report)
        self._knowledge = Knowledge(report, saved)
        self._identities = self._knowledge.identities
        self._calls = self._knowledge.calls
        self._totals = self._knowledge.totals

    @abstractmethod
    def records(self, stream: BinaryIO) -> Iterator[Record]:
        """Yield the records of *stream*, from its position to its end."""

    def texts(self) -> dict[str, Any]:
        """Return what the next part needs and is text of the session, by name."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Return what else the next part needs, by name."""
        return {}

    def run(self, stream: BinaryIO) -> Iterator[Record]:
        """Yield the records of *stream*; behind the last one the report is complete."""
        yield from self.records(stream)
        report = self._report
        if report.sessions > 1:
            report.session_id = report.agent_id = report.parent_session_id = report.title = None
        report.complete = True

    def dump(self, shown: Callable[[Any], Any]) -> bytes:
        """See :meth:`autocode.jobs.sessions.base.Reading.state`."""
        return dump(self._report, self._knowledge, self.texts(), self.facts(), shown)

    def session(self, at: str | None, found: Found | None = None) -> Record:
        """Return a new ``session`` record with the fields that all tools share.

        The first one of a source is called ``session``, a further one after its position.

        Args:
            at: the session's first time.
            found: where the source tells of the session as a whole, or ``None`` where no such place exists.
        """
        is_further = self._report.records["session"] > 0 and found is not None
        own = found.position if is_further and found is not None else "session"
        record = self._recorder.make("session", own, at, None, found)
        record |= {
            "format": FORMAT,
            "tool": self._report.tool,
            "reader": self._report.reader,
            "reader_revision": self._report.revision,
        }
        return record

    def unknown(self, item: Found) -> Record:
        """Return a record that holds a value of no known kind whole, and count it."""
        # the type's name alone: a text would put what was said into the report
        self._report.lose(f"unknown-type:{type(item.value).__name__}")
        record = self._recorder.make("unknown", item.position, None, None, item)
        record |= {"name": None, "data": item.value}
        return record

    def link(self, record: Record) -> None:
        """Note a tool call, or name the record that made the call which *record* answers."""
        if record["type"] == "tool_call":
            self._calls.made(record["call_id"], record["id"])
        elif record["type"] == "tool_result":
            record["call"] = self._calls.find(record["call_id"])

    def time(self, value: object) -> str | None:
        """Return the source's time in the normal form, or ``None``; one that can't be meant is counted."""
        at = normalise(value)
        if at is not None:
            self._report.saw_time(at)
        elif value is not None:
            self._report.lose("absurd-time")
        return at


def joined(own: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without a place, of a block and of what it's part of, as one ``extra``.

    Where both have a field of one name, the block's own fields are together in ``block`` (``block_`` where
    that name is taken, and so on).
    """
    if own.keys().isdisjoint(more):
        return {**more, **own}
    name = "block"
    while name in more:
        name += "_"
    return {**more, name: dict(own)}


def begin(
    reader: Reader, mapper: Callable[[Report, Saved | None], Mapper], stream: BinaryIO, state: bytes | None
) -> Reading:
    """Return the reading of *stream* by a new *mapper*: what :meth:`Reader.read` does for every reader.

    Raises:
        UsageError: *state* is none, one of another reader or revision, or the reader's sources have no parts.
    """
    if not reader.in_parts:
        if state is not None:
            raise _whole_only(reader)
        report = Report(reader.name, reader.name, reader.revision)
        return Reading(mapper(report, None).run(stream), report, lambda _: _refuse(reader))
    saved = load(state, reader.name, reader.revision) if state is not None else None
    report = saved.report if saved else Report(reader.name, reader.name, reader.revision)
    mapping = mapper(report, saved)
    return Reading(mapping.run(stream), report, mapping.dump)


def _refuse(reader: Reader) -> bytes:
    raise _whole_only(reader)


def _whole_only(reader: Reader) -> UsageError:
    return UsageError(
        f"A source of {reader.name} is one document, which can't be read in parts.",
        hint="Read it whole, from its beginning.",
    )
