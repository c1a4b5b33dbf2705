"""A preview of an export: what it would hold, replace, lose and leave out, without writing anything.

The same scan, readers and redaction as the export itself; records are thrown away as they come, so memory
stays that of one session's report. Neither store nor ledger is touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from autocode.jobs.errors import Permanent, describe
from autocode.jobs.operations.export.frozen import frozen
from autocode.jobs.operations.export.part import Before
from autocode.jobs.operations.export.payload import ExportPayload, FilePart, FoundFile, ScanResult
from autocode.jobs.operations.export.read import Shown
from autocode.jobs.operations.export.scan import scan_files
from autocode.jobs.settings import Home

__all__ = ["Preview", "PreviewedFile", "preview"]

_TOTALS: Final = ("files", "sessions", "records", "redacted", "damaged", "unread", "problems", "bytes")


@dataclass(frozen=True, slots=True)
class PreviewedFile:
    """One file of the selection (or several with the same bytes), as an export would treat it.

    Args:
        names: its paths from the root; more than one where several files have the same bytes.
        sha256: digest of its bytes.
        size: number of its bytes.
        kind: the reader's name, or a guess at what an unread file is.
        report: what the reader mapped, lost and found damaged, redacted; ``None`` where nothing reads it.
        redaction: counts and places (record, JSON pointer, kind, number, length) of what is replaced.
        exported: ``normal-form``, ``raw``, ``both`` or ``no``.
        problem: why the export would fail on it, as :func:`autocode.jobs.errors.describe` puts it.
    """

    names: tuple[str, ...]
    sha256: str
    size: int
    kind: str
    report: dict[str, Any] | None
    redaction: dict[str, Any] | None
    exported: str
    problem: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the file as a JSON object; no secret that the policy knows is in it."""
        return {
            "names": list(self.names),
            "sha256": self.sha256,
            "size": self.size,
            "kind": self.kind,
            "report": self.report,
            "redaction": self.redaction,
            "exported": self.exported,
            "problem": self.problem,
        }


class Preview:
    """Iterate it for the files, in the order of their digests; then its totals are complete.

    Each iteration reads the sessions again, and starts the totals anew.

    Args:
        scanned: what the scan found.
        redact: as in the payload.
    """

    def __init__(self, scanned: ScanResult, *, redact: bool) -> None:
        self.scanned = scanned
        self.redact = redact
        self.totals: Counter[str] = Counter()
        """Files, sessions, records, redacted, damaged, unread, problems and bytes so far."""

    def __iter__(self) -> Iterator[PreviewedFile]:
        self.totals = Counter(dict.fromkeys(_TOTALS, 0))
        for _, same_bytes in groupby(self.scanned.files, key=lambda file: file.sha256):
            file = _previewed(list(same_bytes), redact=self.redact)
            self._count(file)
            yield file

    def lines(self) -> Iterator[str]:
        """Yield everything as lines of text, each place of a redaction on its own; never a secret."""
        for file in self:
            yield from _lines_of(file)
        for each in self.scanned.left_out:
            yield f"left out  {each.name}: {each.reason}"
        for name, count in self.scanned.skipped_folders.items():
            yield f"left out  {count} folder(s) called {name}"
        yield "in all    " + ", ".join(f"{name} {self.totals[name]:,}" for name in _TOTALS)

    def to_json(self) -> dict[str, Any]:
        """Read everything and return it as one JSON object; every report is in memory then."""
        files = [file.to_json() for file in self]
        scanned = self.scanned.model_dump(mode="json", include={"left_out", "reasons", "skipped_folders"})
        return {"files": files, **scanned, "totals": dict(sorted(self.totals.items()))}

    def _count(self, file: PreviewedFile) -> None:
        report = file.report or {}
        self.totals.update(
            {
                "files": 1,
                "sessions": int(file.report is not None),
                "records": sum(report.get("records", {}).values()),
                "redacted": (file.redaction or {}).get("total", 0),
                "damaged": report.get("damaged_total", 0),
                "unread": int(file.exported == "no" and file.problem is None),
                "problems": int(file.problem is not None),
                "bytes": file.size,
            }
        )


def preview(home: Home, payload: ExportPayload) -> Preview:
    """Scan what *payload* selects and return a preview; sessions are read when it is iterated.

    Raises:
        UsageError: a root or a selected path doesn't exist, or leads out of its root.
        Transient: the system is short of something that will be there again.
    """
    return Preview(
        scan_files(home.root, payload.sources, lambda _count: None),
        redact=payload.redact,
    )


def _lines_of(file: PreviewedFile) -> Iterator[str]:
    verb = {"no": "not read", "raw": "raw"}.get(file.exported, "session")
    if file.problem is not None:
        verb = "PROBLEM"
    records = sum((file.report or {}).get("records", {}).values())
    facts = f"{file.kind}, {file.size:,} bytes" + (f", {records:,} records" if file.report else "")
    yield f"{verb:<9} {file.names[0]} ({facts}, {file.sha256[:19]})"
    for name in file.names[1:]:
        yield f"          same bytes: {name}"
    if file.problem is not None:
        yield f"          {file.problem['detail']} {file.problem['hint']}"
    for place in (file.redaction or {}).get("places", ()):
        yield (
            f"          redacted  {place['kind']} {place['n']} in record {place['record']}"
            f" at {place['pointer'] or '/'}: {place['length']:,} characters"
        )
    if hidden := (file.redaction or {}).get("places_left_out", 0):
        yield f"          redacted  {hidden:,} more places"
    for name, count in (file.report or {}).get("lost", {}).items():
        yield f"          lost      {name}: {count:,}"
    for span in (file.report or {}).get("damaged", ()):
        yield f"          damaged   {span['length']:,} bytes at {span['offset']:,}: {span['reason']}"


def _previewed(files: Sequence[FoundFile], *, redact: bool) -> PreviewedFile:
    file = files[0]
    report: dict[str, Any] | None = None
    redaction: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None
    try:
        if file.reader is not None:
            report, redaction = _read(file, file.reader, redact=redact)
    except Permanent as error:
        problem = describe(error)
    return PreviewedFile(
        names=tuple(each.name for each in files),
        sha256=file.sha256,
        size=file.size,
        kind=file.label,
        report=report,
        redaction=redaction,
        exported="no" if problem else _exported(file, redact=redact),
        problem=problem,
    )


def _read(file: FoundFile, reader: str, *, redact: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
    *earlier, last = file.cut()
    before = Before()
    offset = 0
    for part in earlier:
        before = _read_part(file, part, offset, reader, before, redact=redact).before_next(())
        offset += part.size
    return _read_part(file, last, offset, reader, before, redact=redact).accounts()


def _read_part(
    file: FoundFile, part: FilePart, offset: int, reader: str, before: Before, *, redact: bool
) -> Shown:
    with frozen(file.path, file.name, offset, part.size) as stream:
        shown = Shown(stream, reader, redact=redact, before=before)
        for _ in shown:
            pass
        stream.prove(part.sha256)
        return shown


def _exported(file: FoundFile, *, redact: bool) -> str:
    if file.reader is None:
        return "no" if redact else "raw"
    return "normal-form" if redact else "both"
