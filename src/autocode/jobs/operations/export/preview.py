"""A preview of an export: what it would hold, replace, lose and leave out, without writing anything.

The same scan, readers and redaction as the export itself; records are thrown away as they come, so memory
stays that of one session's report. Neither store nor ledger is touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from autocode.jobs.errors import Permanent, describe
from autocode.jobs.operations.export.frozen import frozen
from autocode.jobs.operations.export.part import Before
from autocode.jobs.operations.export.payload import FilePart, FoundFile, LeftOut, ScanResult, Source
from autocode.jobs.operations.export.places import Group, ShownPlace, Watcher
from autocode.jobs.operations.export.read import Shown
from autocode.jobs.operations.export.scan import scan_files
from autocode.jobs.redaction import DEFAULT_POLICY, Policy

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
        redaction: counts by kind of what is replaced, and how many places aren't listed.
        places: where, with tool and surroundings; see :class:`ShownPlace`.
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
    places: tuple[ShownPlace, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the file as a JSON object; no secret that the policy knows is in it."""
        return {
            "names": list(self.names),
            "sha256": self.sha256,
            "size": self.size,
            "kind": self.kind,
            "report": self.report,
            "redaction": self._redaction(),
            "exported": self.exported,
            "problem": self.problem,
        }

    def _redaction(self) -> dict[str, Any] | None:
        if self.redaction is None:
            return None
        return self.redaction | {"places": [place.to_json() for place in self.places]}


class Preview:
    """Iterate it for the files, in the order of their digests; then its totals are complete.

    Each iteration reads the sessions again, and starts the totals anew.

    Args:
        scanned: what the scan found.
        policy: what is replaced; ``None`` for nothing.
        digests: give each place the digest of what is replaced, for an allow list.
    """

    def __init__(self, scanned: ScanResult, *, policy: Policy | None, digests: bool = False) -> None:
        self.scanned = scanned
        self.policy = policy
        self.digests = digests
        self.groups: Counter[Group] = Counter()
        """Listed redactions by rule and place so far."""
        self.totals: Counter[str] = Counter()
        """Files, sessions, records, redacted, damaged, unread, problems and bytes so far."""

    def __iter__(self) -> Iterator[PreviewedFile]:
        self.totals = Counter(dict.fromkeys(_TOTALS, 0))
        self.groups = Counter()
        copies = [list(same) for _, same in groupby(self.scanned.files, key=lambda file: file.sha256)]
        for same_bytes in sorted(copies, key=lambda files: files[0].name):
            file = _previewed(same_bytes, self.policy, Watcher(digests=self.digests))
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
        return {
            "files": files,
            **scanned,
            "redactions": [asdict(group) | {"count": count} for group, count in sorted(self.groups.items())],
            "totals": dict(sorted(self.totals.items())),
        }

    def _count(self, file: PreviewedFile) -> None:
        self.groups.update(Group.of(place) for place in file.places)
        report = file.report or {}
        self.totals.update(
            {
                "files": 1,
                "sessions": report.get("sessions", 0),
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
    policy: Policy | None = DEFAULT_POLICY,
    digests: bool = False,
    looked_at: Callable[[int], None] = lambda _count: None,
) -> Preview:
    """Scan *sources* and return a preview of their export; sessions are read when it is iterated.

    Nothing is written, and no data folder is needed.

    Args:
        folder: gives the path of a root by its name.
        sources: the selections, as in the payload.
        policy: what is replaced; ``None`` for nothing.
        digests: give each place the digest of what is replaced, for an allow list.
        looked_at: told the number of files scanned so far; may raise to stop.

    Raises:
        UsageError: a root or a selected path doesn't exist, or leads out of its root.
        Transient: the system is short of something that will be there again.
    """
    return Preview(scan_files(folder, sources, looked_at), policy=policy, digests=digests)


def _previewed(files: Sequence[FoundFile], policy: Policy | None, watcher: Watcher) -> PreviewedFile:
    file = files[0]
    report: dict[str, Any] | None = None
    redaction: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None
    try:
        if file.reader is not None:
            report, redaction = _Reading(file, file.reader, policy, watcher).accounts()
    except Permanent as error:
        problem = describe(error)
    return PreviewedFile(
        names=tuple(each.name for each in files),
        sha256=file.sha256,
        size=file.size,
        kind=file.label,
        report=report,
        redaction=redaction,
        exported="no" if problem else _exported(file, redact=policy is not None),
        problem=problem,
        places=() if problem else tuple(watcher.places),
    )


@dataclass(frozen=True, slots=True)
class _Reading:
    """One file, part after part."""

    file: FoundFile
    reader: str
    policy: Policy | None
    watcher: Watcher

    def accounts(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        *earlier, last = self.file.cut()
        before = Before()
        offset = 0
        for part in earlier:
            before = self._part(part, offset, before).before_next(())
            offset += part.size
        shown = self._part(last, offset, before)
        report, redaction = shown.accounts()
        self.watcher.see({"report": report}, shown.redaction, kind="report")
        return report, redaction

    def _part(self, part: FilePart, offset: int, before: Before) -> Shown:
        with frozen(self.file.path, self.file.name, offset, part.size) as stream:
            shown = Shown(stream, self.reader, policy=self.policy, before=before, found=self.watcher.found)
            for record in shown.records():
                self.watcher.see(record, shown.redaction)
            stream.prove(part.sha256)
            return shown


def _exported(file: FoundFile, *, redact: bool) -> str:
    if file.reader is None:
        return "no" if redact else "raw"
    return "normal-form" if redact else "both"
