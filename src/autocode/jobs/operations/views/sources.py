"""The sessions of a bundle as streams of records, one source after the other, never a whole one in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import orjson

from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export.manifest import Manifest, ManifestSource, Member
from autocode.jobs.store import ObjectStore

__all__ = ["Record", "SessionSource", "bundle_sources", "by_session", "records_of", "report_of"]

Record = dict[str, Any]
"""A record of the normal form, as docs/normal-form.md specifies it."""

_REPORT_LIMIT: Final = 1 << 28
_AGENTS: Final = ".agents/"


@dataclass(frozen=True, slots=True)
class SessionSource:
    """A file that was exported in the normal form.

    Args:
        facts: what the manifest says of it.
        members: its records, in order; several where it was read in parts.
        report: its report, where the bundle has one.
    """

    facts: ManifestSource
    members: tuple[Member, ...]
    report: Member | None

    @property
    def path(self) -> str:
        """The path of its members, without ending."""
        return self.facts.path

    @property
    def size(self) -> int:
        """Bytes of its records."""
        return sum(member.size for member in self.members)

    @property
    def tool(self) -> str:
        """The tool, by the folder in which the bundle keeps it."""
        return self.path.split("/")[2] if self.path.count("/") > 2 else "unknown"

    @property
    def parent_path(self) -> str | None:
        """The path of the session whose subagent this is; ``None`` if it is nobody's."""
        parent, found, _ = self.path.rpartition(_AGENTS)
        return parent if found else None

    @property
    def agent_name(self) -> str:
        """The subagent's id, as the parent's tool results name it."""
        return self.path.rpartition("/")[2].partition("~")[0]


def bundle_sources(manifest: Manifest) -> list[SessionSource]:
    """Return the sources that the bundle holds in the normal form, in the manifest's order."""
    members = {member.path: member for member in manifest.members}
    found = []
    for source in manifest.sources:
        parts = [members.get(f"{path}.jsonl") for path in source.parts or [source.path]]
        if source.reader is not None and None not in parts:
            present = tuple(part for part in parts if part is not None)
            found.append(SessionSource(source, present, members.get(f"{source.path}.report.json")))
    return found


def report_of(store: ObjectStore, source: SessionSource) -> dict[str, Any]:
    """Return the report of *source*: ``report`` and ``redaction`` as docs/bundle.md describes them.

    Raises:
        ObjectMissing: the report isn't in the store.
        ObjectCorrupt: the report is damaged; it is in quarantine.
        UsageError: it is no report.
    """
    if source.report is None:
        return {}
    with store.open(source.report.sha256) as reader:
        return _parsed(reader.read_all(limit=_REPORT_LIMIT), source.report)


def records_of(
    store: ObjectStore, source: SessionSource, tick: Callable[[int], None] = lambda _size: None
) -> Iterator[Record]:
    """Yield the records of *source*; memory is that of the longest one.

    Args:
        store: where the export's objects are.
        source: which one.
        tick: told the bytes of each record as it is read; may raise to stop.

    Raises:
        ObjectMissing: a member isn't in the store.
        ObjectCorrupt: a member is damaged; it is in quarantine.
        UsageError: a line isn't a record.
    """
    for member in source.members:
        with store.open(member.sha256) as reader:
            for line in _lines(reader):
                tick(len(line) + 1)
                yield _parsed(line, member)


def by_session(records: Iterable[Record]) -> Iterator[tuple[int, Iterator[Record]]]:
    """Part *records* at the ``session`` records; yield each session's number, from 0, and its records.

    As with :func:`itertools.groupby`, a session's records are gone once the next session is asked for.
    """
    number = -1

    def session_of(record: Record) -> int:
        nonlocal number
        if record["type"] == "session":
            number += 1
        return max(number, 0)

    return groupby(records, session_of)


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    begun: list[bytes] = []
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        for piece in rest:
            line = b"".join(begun)
            if line:
                yield line
            begun = [piece]
    line = b"".join(begun)
    if line:
        yield line


def _parsed(line: bytes, member: Member) -> Record:
    try:
        value = orjson.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict) or ("type" not in value and not member.path.endswith(".report.json")):
        raise UsageError(
            f"{member.path} is not what an export writes: a line of it is no record.",
            hint="This manifest was not written by an export; don't use it.",
        )
    return value
