"""``scan``: find the files, and freeze each by size and SHA-256."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, BinaryIO, Final
from urllib.parse import quote_from_bytes

from autocode.jobs.canonical import canonical_json
from autocode.jobs.errors import SourceChanged, SourceUnreadable, UsageError
from autocode.jobs.kinds import Produced, StepContext
from autocode.jobs.operations.export.frozen import CHUNK, opened
from autocode.jobs.operations.export.parallel import side_by_side
from autocode.jobs.operations.export.payload import (
    SCAN_TYPE,
    FilePart,
    FoundFile,
    LeftOut,
    ScanInputs,
    ScanResult,
    Source,
)
from autocode.jobs.operations.export.seen import Seen, Stamp, stamp_of
from autocode.jobs.operations.snapshots import SnapshotMember, parse_snapshot
from autocode.jobs.sessions import HEAD_BYTES, Cutter, kind_of, sniff
from autocode.jobs.sessions.discover import Candidate, Discovery, discover

__all__ = ["find", "freeze", "scan_files", "scan_sources"]

Opening = Callable[[str], AbstractContextManager[BinaryIO]]
"""Opens an object of the store by its digest."""

_LISTED: Final = 10_000
"""Left-out files that are listed by name; all are counted."""


def scan_sources(context: StepContext, inputs: ScanInputs) -> Produced:
    """Walk the sources, hash each file, say which reader takes it, and leave the list as an object.

    A file that was hashed before and hasn't been touched since isn't read; see :mod:`.seen`.
    """

    def looked_at(count: int) -> None:
        context.check()
        context.progress(count, unit="files scanned")

    with Seen(context.cache_folder(), rehash=inputs.rehash) as seen:
        result = scan_files(context.folder, inputs.sources, looked_at, seen, opening=context.open)
    return context.put([canonical_json(result.model_dump(mode="json"))], SCAN_TYPE)


def scan_files(
    folder: Callable[[str], Path],
    sources: Sequence[Source],
    looked_at: Callable[[int], None],
    seen: Seen | None = None,
    *,
    opening: Opening | None = None,
) -> ScanResult:
    """Return what *sources* select, every file frozen.

    The order is that of the digests, then of places and names, so that neither the order of the sources nor
    the names of folders matter afterwards, nor which thread was faster.

    Args:
        folder: gives the path of a root by its name.
        sources: the selections.
        looked_at: told the number of files so far, at least once every mebibyte; may raise to stop.
        seen: what earlier scans found; without it every file is read.
        opening: opens an object of the store, for snapshots.

    Raises:
        ObjectCorrupt: a snapshot, or a file of it, is damaged.
        ObjectMissing: a snapshot, or a file of it, isn't in the store.
        UsageError: a selected path doesn't exist, or leads out of its root; a snapshot is none.
        Transient: the system is short of something that will be there again.
    """
    files: list[FoundFile] = []
    left_out: list[LeftOut] = []
    reasons: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    lock = threading.Lock()
    memory = seen or Seen(None)

    def look() -> None:
        # one at a time, so that the numbers never fall
        with lock:
            looked_at(len(files))

    def frozen(candidate: Candidate) -> FoundFile | LeftOut:
        return _frozen_or_left_out(candidate, look, memory)

    for source in sources:
        if source.snapshot is not None:
            if opening is None:
                raise UsageError("A snapshot is in a store, and none is at hand.", hint="Name a folder.")
            files.extend(_members(opening, source.snapshot, look))
            continue
        for discovery in find(folder(source.root), source):
            for found in side_by_side(discovery, frozen):
                if isinstance(found, FoundFile):
                    files.append(found)
                else:
                    left_out.append(found)
                    reasons[found.reason] += 1
            left_out += [LeftOut(name=each.relative, reason=each.reason) for each in discovery.problems]
            reasons.update(discovery.reasons)
            skipped.update(discovery.skipped)
    return ScanResult(
        files=tuple(sorted(files, key=lambda file: (file.sha256, file.path, file.name))),
        left_out=tuple(sorted(left_out[:_LISTED], key=lambda each: (each.name, each.reason))),
        reasons=dict(sorted(reasons.items())),
        skipped_folders=dict(sorted(skipped.items())),
    )


def find(folder: Path, source: Source) -> Iterator[Discovery]:
    """Return the walks over what *source* selects in *folder*; nested selections are walked once.

    Raises:
        UsageError: a selected path doesn't exist, or leads out of *folder* by a symbolic link.
    """
    if not source.select:
        yield discover(folder)
        return
    top = discover(folder).root
    taken: list[str] = []
    for selected in source.select:
        if any(selected.startswith(f"{outer}/") for outer in taken):
            continue
        taken.append(selected)
        walk = discover(folder / selected)
        if not walk.root.is_relative_to(top):
            raise UsageError(
                f"{selected!r} leads out of the root {source.root!r}.",
                hint="Make the folder that it leads to a root of its own.",
            )
        yield walk


def freeze(candidate: Candidate, looked_at: Callable[[], None]) -> tuple[FoundFile, Stamp | None]:
    """Read a file once: its head chooses the reader, all of it makes the digests of the file and its parts.

    A file that its reader can't read in parts is one part, however long. With it comes the stamp that it had
    all the time, or ``None`` where it changed while it was read.

    Raises:
        OSError: its bytes can't be read.
        SourceChanged: it is no regular file any more, or gone.
        SourceUnreadable: this user may not read it.
    """
    with opened(os.fspath(candidate.path), candidate.relative) as stream:
        before = stamp_of(os.fstat(stream.fileno()))
        path = quote_from_bytes(os.fsencode(candidate.path))
        found = _found(stream, path, candidate.relative, looked_at)
        after = stamp_of(os.fstat(stream.fileno()))
    return found, after if before == after and found.size == after.size else None


def _members(opening: Opening, digest: str, looked_at: Callable[[], None]) -> Iterator[FoundFile]:
    """Yield the files of a snapshot, each read once as :func:`freeze` does."""
    with opening(digest) as document:
        snapshot = parse_snapshot(document.read(), digest)

    def found(member: SnapshotMember) -> FoundFile:
        with opening(member.digest) as stream:
            return _found(stream, member.digest, member.path, looked_at)

    return side_by_side(snapshot.members, found)


def _found(stream: IO[bytes], path: str, name: str, looked_at: Callable[[], None]) -> FoundFile:
    cutter = Cutter()
    head = b""
    # an object gives what it has unpacked, which may be less than was asked for
    while len(head) < HEAD_BYTES and (chunk := stream.read(HEAD_BYTES - len(head))):
        head += chunk
    cutter.feed(head)
    looked_at()
    while chunk := stream.read(CHUNK):
        cutter.feed(chunk)
        looked_at()
    reader = sniff(head)
    parts = [FilePart(size=part.size, sha256=part.sha256) for part in cutter.finish()]
    return FoundFile(
        path=path,
        name=name,
        size=sum(part.size for part in parts),
        sha256=cutter.sha256,
        reader=reader.name if reader else None,
        revision=reader.revision if reader else 0,
        label=reader.name if reader else kind_of(head),
        parts=tuple(parts) if len(parts) > 1 and (reader is None or reader.in_parts) else (),
    )


def _frozen_or_left_out(
    candidate: Candidate, looked_at: Callable[[], None], seen: Seen
) -> FoundFile | LeftOut:
    known = seen.recall(candidate)
    if known is not None:
        looked_at()
        return known
    try:
        found, stamp = freeze(candidate, looked_at)
    except SourceChanged:
        return LeftOut(name=candidate.relative, reason="vanished")
    except (SourceUnreadable, OSError):
        return LeftOut(name=candidate.relative, reason="unreadable-file")
    seen.keep(found, candidate, stamp)
    return found
