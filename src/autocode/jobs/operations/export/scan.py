"""``scan``: find the files, and freeze each by size and SHA-256."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes

from autocode.jobs.canonical import canonical_json
from autocode.jobs.kinds import Produced, StepContext
from autocode.jobs.operations.export.payload import (
    SCAN_TYPE,
    FoundFile,
    LeftOut,
    ScanInputs,
    ScanResult,
    Source,
)
from autocode.jobs.sessions import HEAD_BYTES, kind_of, sniff
from autocode.jobs.sessions.discover import Candidate, Discovery, discover

__all__ = ["find", "freeze", "scan_sources"]

_CHUNK: Final = 1 << 20


def scan_sources(context: StepContext, inputs: ScanInputs) -> Produced:
    """Walk the sources, hash each file, say which reader takes it, and leave the list as an object.

    Files with the same bytes are listed once each; the order is that of their digests, so that neither the
    order of the arguments nor the names of folders matter afterwards.
    """
    files: list[FoundFile] = []
    left_out: list[LeftOut] = []
    skipped: dict[str, int] = {}
    for source in inputs.sources:
        for discovery in find(context.folder(source.root), source):
            for candidate in discovery:
                context.check()
                try:
                    files.append(freeze(candidate))
                except FileNotFoundError:
                    left_out.append(LeftOut(name=candidate.relative, reason="vanished"))
                except OSError:
                    left_out.append(LeftOut(name=candidate.relative, reason="unreadable-file"))
                context.progress(len(files), unit="files scanned")
            left_out += [LeftOut(name=each.relative, reason=each.reason) for each in discovery.problems]
            for name, count in discovery.skipped.items():
                skipped[name] = skipped.get(name, 0) + count
    result = ScanResult(
        files=tuple(sorted(files, key=lambda file: (file.sha256, file.path))),
        left_out=tuple(sorted(left_out, key=lambda each: (each.name, each.reason))),
        skipped_folders=dict(sorted(skipped.items())),
    )
    return context.put([canonical_json(result.model_dump(mode="json"))], SCAN_TYPE)


def find(folder: Path, source: Source) -> Iterator[Discovery]:
    """Return the walks over what *source* selects in *folder*; nested selections are walked once.

    Raises:
        UsageError: a selected path doesn't exist.
    """
    if not source.select:
        yield discover(folder)
        return
    taken: list[str] = []
    for selected in source.select:
        if not any(selected == outer or selected.startswith(f"{outer}/") for outer in taken):
            taken.append(selected)
            yield discover(folder / selected)


def freeze(candidate: Candidate) -> FoundFile:
    """Read a file once: its head chooses the reader, all of it makes the digest.

    Raises:
        OSError: it can't be read, or is no regular file any more.
    """
    digest = hashlib.sha256()
    size = 0
    # O_NONBLOCK: should a pipe have taken the file's place, opening it must not wait for a writer
    descriptor = os.open(candidate.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(candidate.path)
        head = stream.read(HEAD_BYTES) or b""
        digest.update(head)
        size += len(head)
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    reader = sniff(head)
    return FoundFile(
        path=quote_from_bytes(os.fsencode(candidate.path)),
        name=candidate.relative,
        size=size,
        sha256="sha256:" + digest.hexdigest(),
        reader=reader.name if reader else None,
        revision=reader.revision if reader else 0,
        label=reader.name if reader else kind_of(head),
    )
