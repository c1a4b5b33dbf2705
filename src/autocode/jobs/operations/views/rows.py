"""Rows of the tables out of a bundle, for whichever writer: one pass, one source after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import orjson

from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export.manifest import Manifest, ManifestSource, Member
from autocode.jobs.operations.views.bundles import Bundle, document_of, lines_of
from autocode.jobs.operations.views.counting import Row
from autocode.jobs.operations.views.session_rows import SourceRows
from autocode.jobs.operations.views.tables import TABLES

__all__ = ["rows_of", "size_of"]

_IN_REPORTS: Final = frozenset({"losses", "damage", "redactions", "redaction_counts"})
_OF_RECORDS: Final = frozenset(table.name for table in TABLES.values() if table.of_records)
_SHAPE: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What goes wrong when a document of a bundle hasn't the form that its format promises."""


def rows_of(
    bundle: Bundle, wanted: Collection[str] = tuple(TABLES), read: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[str, Row]]:
    """Yield the rows of the tables *wanted*, each with the name of its table.

    The order depends on the bundle alone: by source, and within one in the order in which rows are complete,
    which for tool calls and usage isn't that of their keys. Only the members that the tables need are read;
    each is verified when its last row comes. Memory is bounded by the longest record.

    Args:
        bundle: the export.
        wanted: names of tables.
        read: told the number of bytes each time that some were read; may raise to stop.

    Raises:
        UsageError: a member isn't of the form that an export writes.
    """
    names = frozenset(wanted)
    manifest = bundle.manifest
    yield from _chosen(_of_manifest(manifest), names)
    members = {member.path: member for member in manifest.members}
    record, session = 1, 1
    for number, source in enumerate(manifest.sources, 1):
        yield from _chosen(_of_source(number, source), names)
        entry: Any = None
        if names & (_IN_REPORTS | _OF_RECORDS):
            entry = document_of(bundle, _member(members, f"{source.path}.report.json"))
        if names & _IN_REPORTS:
            yield from _chosen(_of_entry(source.path, entry, number, record), names)
        if names & _OF_RECORDS and source.reader is not None:
            report = entry["report"]
            rows = SourceRows(number, first_session=session, first_record=record, report=report, wanted=names)
            for path in source.parts or [source.path]:
                shaped = _of_member(bundle, _member(members, f"{path}.jsonl"), rows, read)
                yield from _chosen(shaped, names)
            yield from _chosen(rows.finish(), names)
            session = rows.next_session
        record += source.records


def size_of(manifest: Manifest) -> int:
    """Return the bytes of all normal forms, which :func:`rows_of` tells in all when it reads records."""
    return sum(member.size for member in manifest.members if member.path.endswith(".jsonl"))


def _chosen(rows: Iterator[tuple[str, Row]], names: frozenset[str]) -> Iterator[tuple[str, Row]]:
    return (each for each in rows if each[0] in names)


def _member(members: dict[str, Member], path: str) -> Member:
    try:
        return members[path]
    except KeyError:
        raise UsageError(f"The manifest names a source, but no member {path}.") from None


def _of_member(
    bundle: Bundle, member: Member, rows: SourceRows, read: Callable[[int], None]
) -> Iterator[tuple[str, Row]]:
    def told() -> Iterator[bytes]:
        for chunk in bundle.chunks(member):
            yield chunk
            read(len(chunk))

    for number, line in enumerate(lines_of(told()), 1):
        try:
            # taken whole before anything is handed on, so that only our own errors are explained
            shaped = list(rows.take(orjson.loads(line)))
        except _SHAPE as error:
            # a damaged file says so itself when it was read to its end
            for _ in bundle.chunks(member):
                pass
            raise UsageError(f"Line {number} of {member.path} is no record of the normal form.") from error
        yield from shaped


def _of_manifest(manifest: Manifest) -> Iterator[tuple[str, Row]]:
    policy = manifest.redaction or {}
    yield (
        "bundle",
        {
            "digest": manifest.digest,
            "format": manifest.format,
            "policy": policy.get("name"),
            "policy_revision": policy.get("revision"),
            "policy_digest": policy.get("digest"),
            "members": len(manifest.members),
            "member_bytes": sum(member.size for member in manifest.members),
            "left_out": orjson.dumps(manifest.left_out).decode(),
        },
    )
    for each in manifest.unread:
        yield "unread", {"sha256": each.sha256, "kind": each.kind, "bytes": each.size}


def _of_source(number: int, source: ManifestSource) -> Iterator[tuple[str, Row]]:
    yield (
        "sources",
        {
            "source": number,
            "path": source.path,
            "sha256": source.sha256,
            "bytes": source.size,
            "reader": source.reader,
            "revision": source.revision,
            "records": source.records,
            "lost": sum(source.lost.values()),
            "damaged": source.damaged,
            "damaged_bytes": source.damaged_bytes,
            "redacted": sum(source.redacted.values()),
        },
    )


def _of_entry(path: str, entry: Any, number: int, first_record: int) -> Iterator[tuple[str, Row]]:
    try:
        yield from _of_report(entry["report"] or {}, number)
        yield from _of_redaction(entry["redaction"] or {}, number, first_record)
    except _SHAPE as error:
        raise UsageError(f"{path}.report.json is no report of an export.") from error


def _of_report(report: dict[str, Any], number: int) -> Iterator[tuple[str, Row]]:
    for name, count in sorted(report.get("lost", {}).items()):
        yield "losses", {"source": number, "name": name, "count": count}
    for span in report.get("damaged", []):
        columns = ("offset", "length", "reason", "sha256")
        yield "damage", {"source": number, **{name: span[name] for name in columns}}


def _of_redaction(redaction: dict[str, Any], number: int, first_record: int) -> Iterator[tuple[str, Row]]:
    for kind, count in sorted(redaction.get("counts", {}).items()):
        yield "redaction_counts", {"source": number, "kind": kind, "count": count}
    for place in redaction.get("places", []):
        # the report is redacted as if it were record 0, under a name that no record's field has
        in_report = place["record"] == 0 and place["pointer"].startswith("/report")
        yield (
            "redactions",
            {
                "source": number,
                "record": None if in_report else first_record + place["record"],
                "pointer": place["pointer"],
                "kind": place["kind"],
                "number": place["n"],
                "length": place["length"],
            },
        )
