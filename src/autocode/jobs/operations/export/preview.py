"""A preview of an export: what it would hold, replace, lose and leave out, without writing anything.

The same scan, readers and redaction as the export itself; records are thrown away as they come, so memory
stays that of one session's report. Neither store nor ledger is touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from autocode.jobs.errors import Permanent, describe
from autocode.jobs.operations.export.frozen import frozen
from autocode.jobs.operations.export.part import Before
from autocode.jobs.operations.export.payload import FilePart, FoundFile, LeftOut, ScanResult, Source
from autocode.jobs.operations.export.read import Shown
from autocode.jobs.operations.export.scan import scan_files

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

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """What the walk could not take, by name and reason; the first 10,000."""
        return self.scanned.left_out

    @property
    def reasons(self) -> Mapping[str, int]:
        """All that the walk could not take, by reason."""
        return self.scanned.reasons

    @property
    def skipped_folders(self) -> Mapping[str, int]:
        """Folders that are never entered, by name."""
        return self.scanned.skipped_folders

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


def preview(
    folder: Callable[[str], Path],
    sources: Sequence[Source],
    *,
    redact: bool = True,
    looked_at: Callable[[int], None] = lambda _count: None,
) -> Preview:
    """Scan *sources* and return a preview of their export; sessions are read when it is iterated.

    Nothing is written, and no data folder is needed.

    Args:
        folder: gives the path of a root by its name.
        sources: the selections, as in the payload.
        redact: as in the payload.
        looked_at: told the number of files scanned so far; may raise to stop.

    Raises:
        UsageError: a root or a selected path doesn't exist, or leads out of its root.
        Transient: the system is short of something that will be there again.
    """
    return Preview(scan_files(folder, sources, looked_at), redact=redact)


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
