"""The part of a backup that is the objects: those that its ledger needs, as they lie in the store."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from autocode.jobs.canonical import canonical_json
from autocode.jobs.errors import BackupDamaged, ObjectCorrupt, ObjectMissing
from autocode.jobs.ledger.portable import Needed
from autocode.jobs.operations.backup.label import INDEX, Missing, StoreTotals
from autocode.jobs.operations.backup.ledger_part import spooled
from autocode.jobs.operations.backup.tar import Member, Reader, SourceBroken, Writer, Written
from autocode.jobs.store import LocalStore, ObjectInfo, prove_stored

__all__ = ["note_needed", "noted", "read_store", "write_store"]

_NAME: Final = re.compile(r"store/objects/sha256/([0-9a-f]{2})/(\1[0-9a-f]{62})")
_TRIES: Final = 2
"""A copy that isn't sound of an object that is: somebody replaced a damaged one meanwhile."""


def note_needed(file: BinaryIO, objects: Iterable[Needed]) -> int:
    """Write down *objects*, to be read by :func:`noted`; return how many bytes of content they have."""
    total = 0
    for each in objects:
        file.write(canonical_json([each.digest, each.size, each.certain]) + b"\n")
        total += each.size
    file.seek(0)
    return total


def noted(file: BinaryIO) -> Iterator[Needed]:
    """Yield the objects that were written down."""
    for line in file:
        yield Needed(*json.loads(line))


def write_store(
    writer: Writer,
    store: LocalStore,
    objects: Iterable[Needed],
    *,
    whose: Callable[[str], list[str]],
    scratch: Path,
) -> tuple[Written, StoreTotals]:
    """Write *objects*, which are sorted, each verified as it is in the archive; return the index and totals.

    What an attempt that runs has announced and not written yet is left out.

    Args:
        writer: the archive.
        store: where the objects are.
        objects: which.
        whose: says for which jobs an object is needed.
        scratch: a folder for temporary files without names.
    """
    count = stored = 0
    missing: list[Missing] = []
    with spooled(scratch) as index:
        for each in objects:
            try:
                written, info = _copy(writer, store, each.digest)
            except (ObjectMissing, ObjectCorrupt) as error:
                if each.certain or isinstance(error, ObjectCorrupt):
                    reason = error.detail
                    missing.append(Missing(digest=each.digest, reason=reason, jobs=whose(each.digest)))
                continue
            index.write(_line(info, written.sha256))
            count += 1
            stored += written.size
        size = index.tell()
        index.seek(0)
        listed = writer.add(INDEX, size, index)
    return listed, StoreTotals(objects=count, bytes=stored, missing=missing)


def read_store(
    reader: Reader, needed: Iterable[Needed], into: LocalStore | None
) -> tuple[Written, StoreTotals]:
    """Verify every object, and put them into the store *into*, if any; return the index and totals.

    The totals name as missing what *needed*, sorted, asks for and the backup doesn't have.

    Raises:
        BackupDamaged: an object isn't what its name says, the order is wrong, or the index tells otherwise.
        DiskFull: there is no room.
    """
    index = hashlib.sha256()
    count = stored = 0
    absent = _Absent(needed)
    while reader.name is not None and reader.name != INDEX:
        digest = _digest_of(reader.name)
        absent.found(digest)
        member = reader.take(reader.name)
        if into is not None:
            _put(member, into.root, into.path_of(digest))
        else:
            for _ in member.chunks():
                pass
        index.update(_line(_prove(member, digest), member.sha256))
        count += 1
        stored += member.size
    absent.end()
    member = reader.take(INDEX)
    for _ in member.chunks():
        pass
    if member.sha256 != f"sha256:{index.hexdigest()}":
        raise BackupDamaged("The objects in the backup aren't those that it lists.")
    missing = [Missing(digest=digest, reason="", jobs=[]) for digest in absent.digests]
    return member.seen(), StoreTotals(objects=count, bytes=stored, missing=missing)


class _Absent:
    """Finds out what is missing from a sorted stream of digests, without keeping them."""

    def __init__(self, needed: Iterable[Needed]) -> None:
        self._needed = (each for each in needed if each.certain)
        self._next = next(self._needed, None)
        self._last = ""
        self.digests: list[str] = []

    def found(self, digest: str) -> None:
        if digest <= self._last:
            raise BackupDamaged(f"Object {digest} is in the wrong place in the backup, or there twice.")
        self._last = digest
        while self._next is not None and self._next.digest < digest:
            self._skip(self._next.digest)
        if self._next is not None and self._next.digest == digest:
            self._next = next(self._needed, None)

    def end(self) -> None:
        while self._next is not None:
            self._skip(self._next.digest)

    def _skip(self, digest: str) -> None:
        self.digests.append(digest)
        self._next = next(self._needed, None)


def _copy(writer: Writer, store: LocalStore, digest: str) -> tuple[Written, ObjectInfo]:
    """Copy one object and prove the copy.

    Raises:
        ObjectMissing: it isn't in the store.
        ObjectCorrupt: it is damaged, and in quarantine if it could be moved there.
    """
    for left in reversed(range(_TRIES)):
        reason = "its copy differs"
        with store.open_stored(digest) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                written = writer.add(_name(digest), size, file)
                return written, _proven(writer, written, digest)
            except SourceBroken as broken:
                reason = str(broken)
            except ObjectCorrupt as corrupt:
                reason = corrupt.detail
        # the store judges its own, and moves it away
        store.verify(digest)
        if not left:
            raise ObjectCorrupt(f"Object {digest} can't be copied: {reason}.", digest=digest, reason=reason)
    raise AssertionError("unreachable: the last try returns or raises")


def _proven(writer: Writer, written: Written, digest: str) -> ObjectInfo:
    try:
        return prove_stored(writer.written(written), digest, written.size)
    except ObjectCorrupt:
        writer.withdraw(written)
        raise


def _prove(member: Member, digest: str) -> ObjectInfo:
    try:
        return prove_stored(member.region(), digest, member.size)
    except ObjectCorrupt as error:
        raise BackupDamaged(f"{error.detail.rstrip('.')}, in the backup.", digest=digest) from error


def _put(member: Member, root: Path, path: Path) -> None:
    if not path.parent.is_dir():
        above = [folder for folder in path.parents if folder.is_relative_to(root)]
        for folder in reversed(above):
            folder.mkdir(exist_ok=True, mode=0o700)
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.writelines(member.chunks())


def _line(info: ObjectInfo, sha256: str) -> bytes:
    told = {"digest": info.digest, "size": info.size, "stored_size": info.stored_size, "sha256": sha256}
    return canonical_json(told) + b"\n"


def _name(digest: str) -> str:
    name = digest.removeprefix("sha256:")
    return f"store/objects/sha256/{name[:2]}/{name}"


def _digest_of(name: str) -> str:
    match = _NAME.fullmatch(name)
    if match is None:
        raise BackupDamaged(f"The backup has {name!r}, which belongs to no backup.")
    return f"sha256:{match[2]}"
