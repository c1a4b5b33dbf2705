"""What every reading has in common, shown on a tool that keeps several sessions in one file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO, Final

import pytest

from autocode.jobs.errors import UsageError
from autocode.jobs.sessions.base import Reading, Record
from autocode.jobs.sessions.lines import segments
from autocode.jobs.sessions.mapping import Mapper, begin
from autocode.jobs.sessions.recovery import objects
from unit.sessions.session_lines import line


class _Sessions(Mapper):
    def records(self, stream: BinaryIO) -> Iterator[Record]:
        for item in objects(segments(stream, self._report), self._report, lambda _: True):
            if isinstance(item.value, dict):
                self._report.session_id, self._report.title = item.value["id"], "a title"
                yield self.session(None, item)
            else:
                yield self.unknown(item)


class Notes:
    """A reader of sources that hold a session a line."""

    name: Final = "notes"
    revision: Final = 3

    def __init__(self, *, in_parts: bool = True) -> None:
        self.in_parts = in_parts

    def matches(self, head: bytes) -> bool:
        """Take anything."""
        return bool(head)

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """Read all."""
        return begin(self, _Sessions, stream, state)


def test_a_source_of_several_sessions_has_no_id_of_its_own() -> None:
    """The report counts the sessions; each has a record with an id that no other record has."""
    reading = Notes().read(io.BytesIO(line({"id": "a"}) + line(1) + line({"id": "b"}) + line(2)))

    records = list(reading)

    assert [(record["type"], record["id"]) for record in records] == [
        ("session", "session"),
        ("unknown", "L2"),
        ("session", "L3"),
        ("unknown", "L4"),
    ]
    found = reading.report.to_json()
    assert (found["sessions"], found["session_id"], found["title"]) == (2, None, None)


def test_a_source_of_one_session_has_its_id_and_title() -> None:
    """With a single session, the report is about that one."""
    reading = Notes().read(io.BytesIO(line({"id": "a"}) + line(1)))

    list(reading)

    found = reading.report.to_json()
    assert (found["sessions"], found["session_id"], found["title"]) == (1, "a", "a title")


def test_a_document_is_read_whole() -> None:
    """A reader that can't read in parts neither gives a state nor takes one."""
    reader = Notes(in_parts=False)
    reading = reader.read(io.BytesIO(line({"id": "a"})))
    list(reading)

    with pytest.raises(UsageError, match="notes is one document"):
        reading.state()
    with pytest.raises(UsageError, match="notes is one document"):
        reader.read(io.BytesIO(), b"{}")
