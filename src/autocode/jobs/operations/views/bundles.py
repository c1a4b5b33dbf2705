"""A bundle to read from, wherever it lies: in a store, unpacked in a folder, or in a zip file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, cast

from autocode.jobs.canonical import is_digest
from autocode.jobs.errors import BundleDamaged, JobsError, ObjectMissing, UsageError
from autocode.jobs.operations.export.bag import BagFile, content_of
from autocode.jobs.operations.export.manifest import Manifest, Member, load_manifest, parse_manifest
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore, ObjectStore
from autocode.jobs.store.posix import NotAFile, open_regular

__all__ = ["Bundle", "StoredBundle", "document_of", "lines_of", "opened_bundle"]

_CHUNK: Final = 1 << 18
_BEGINNING: Final = b'{"format":"'
"""The first bytes of every manifest: canonical JSON, whose first key by name is this one."""

# zipfile says RuntimeError of a file that claims to be encrypted
_UNREADABLE: Final = (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_MANIFEST: Final = "manifest.json"
_LARGEST_MANIFEST: Final = 1 << 30
_LARGEST_DOCUMENT: Final = 1 << 28
_DIGEST: Final = re.compile(r"(?:sha256:)?([0-9a-f]{8,64})(?:…|\.\.\.)?")


class Bundle(Protocol):
    """An export that can be read."""

    @property
    def manifest(self) -> Manifest:
        """What is in it."""

    def chunks(self, member: Member) -> Iterator[bytes]:
        """Yield the bytes of *member* in pieces; who has taken the last one has verified bytes.

        Raises:
            ObjectMissing: its object isn't in the store.
            ObjectCorrupt: its object is damaged; it is in quarantine.
            BundleDamaged: its file is missing, or isn't what the manifest says.
        """


class StoredBundle:
    """An export in a store.

    Args:
        store: the store.
        digest: the artifact.

    Raises what :func:`~autocode.jobs.operations.export.manifest.load_manifest` raises.
    """

    def __init__(self, store: ObjectStore, digest: str) -> None:
        self._store = store
        self.manifest = load_manifest(store, digest)

    def chunks(self, member: Member) -> Iterator[bytes]:
        """Yield the object's bytes; see :meth:`Bundle.chunks`."""
        return content_of(self._store, BagFile(member.path, member.sha256, member.size))


class _Files(ABC):
    """A bundle whose members are files; each is checked against the manifest while it is read."""

    def __init__(self, name: str) -> None:
        self._name = name
        with self._opened(_MANIFEST) as file:
            data = _read_at_most(file, _LARGEST_MANIFEST)
        self.manifest = parse_manifest(data, f"{name}/{_MANIFEST}")

    @abstractmethod
    def _opened(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open a file of the bundle; ``OSError`` says why it can't be."""

    def chunks(self, member: Member) -> Iterator[bytes]:
        """Yield the file's bytes; see :meth:`Bundle.chunks`."""
        digest = hashlib.sha256()
        size = 0
        pending = b""
        try:
            with self._opened(member.path) as file:
                while size <= member.size and (chunk := file.read(_CHUNK)):
                    digest.update(chunk)
                    size += len(chunk)
                    # a piece behind, so that the last one comes when all is verified
                    if pending:
                        yield pending
                    pending = chunk
        except _UNREADABLE as error:
            raise self._damaged(member.path, f"can't be read: {error}") from error
        if (size, "sha256:" + digest.hexdigest()) != (member.size, member.sha256):
            raise self._damaged(member.path, "isn't what the manifest says")
        if pending:
            yield pending

    def _damaged(self, path: str, what: str) -> BundleDamaged:
        return BundleDamaged(f"{path} of the bundle {self._name} {what}.")


class _Folder(_Files):
    def __init__(self, root: Path) -> None:
        self._root = root
        super().__init__(str(root))

    @contextmanager
    def _opened(self, path: str) -> Iterator[BinaryIO]:
        try:
            file = open_regular(self._root / path)
        except NotAFile:
            raise OSError(0, "it is no regular file") from None
        with file:
            yield file


class _Zip(_Files):
    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        tops = {name.partition("/")[0] for name in archive.namelist()}
        if len(tops) != 1 or f"{min(tops)}/{_MANIFEST}" not in archive.namelist():
            raise _no_bundle(path, "no folder with a manifest.json is in it")
        self._top = f"{min(tops)}/"
        super().__init__(str(path))

    @contextmanager
    def _opened(self, path: str) -> Iterator[BinaryIO]:
        try:
            entry = self._archive.getinfo(self._top + path)
        except KeyError:
            raise OSError(0, "it is missing") from None
        with self._archive.open(entry) as file:
            yield cast("BinaryIO", file)


@contextmanager
def opened_bundle(place: str | Path, home: str | Path | None = None) -> Iterator[Bundle]:
    """Open the bundle *place*: the digest of an export in the local store, or a path.

    Args:
        place: ``sha256:`` and 64 hexadecimal digits, or the first 8 and more of them; or the path of an
            unpacked bundle or of its zip file.
        home: the data folder whose store is meant; that of ``AUTOCODE_HOME`` or the usual one if not given.

    Raises:
        ObjectMissing: no export with this digest is in the store.
        ObjectCorrupt: its manifest is damaged; it is in quarantine.
        BundleDamaged: a file of the bundle at this path can't be read.
        UsageError: *place* is neither digest nor path, the object is no export, or the path is no bundle.
    """
    match = _DIGEST.fullmatch(place.strip()) if isinstance(place, str) else None
    if match is not None and (str(place).strip().startswith("sha256:") or not os.path.lexists(place)):
        where = Home.from_environment() if home is None else Home(Path(home).expanduser().absolute())
        yield _in_store(LocalStore(where.store), match[1])
        return
    path = Path(place).expanduser()
    if path.is_dir():
        if not (path / _MANIFEST).is_file():
            raise _no_bundle(path, "no manifest.json is in it")
        yield _explained(path, lambda: _Folder(path))
    elif path.is_file():
        try:
            archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise _no_bundle(path, f"it is no zip file ({error})") from error
        with archive:
            yield _explained(path, lambda: _Zip(path, archive))
    else:
        raise UsageError(
            f"{str(place)!r} is neither the digest of an export nor a path that exists.",
            hint="Give sha256: and hexadecimal digits, or the path of an unpacked or zipped bundle.",
        )


def document_of(bundle: Bundle, member: Member) -> Any:
    """Return the JSON document that *member* is.

    Raises:
        UsageError: it is larger than 256 MiB, or no JSON. What :meth:`Bundle.chunks` raises passes.
    """
    if member.size > _LARGEST_DOCUMENT:
        raise UsageError(f"{member.path} has {member.size} bytes, more than a report can have.")
    data = b"".join(bundle.chunks(member))
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{member.path} is no JSON.") from error


def lines_of(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of *chunks* without their newlines; memory is bounded by the longest one."""
    pending: list[bytes] = []
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        pending.append(first)
        for line in rest:
            yield b"".join(pending)
            pending = [line]
    if last := b"".join(pending):
        yield last


def _in_store(store: LocalStore, digits: str) -> StoredBundle:
    short = f"sha256:{digits}"
    found = [short] if is_digest(short) else [each for each in store.list() if each.startswith(short)]
    if len(found) > 1:
        raise UsageError(f"{len(found)} objects begin with {short}.", hint="Give more of its digits.")
    try:
        if found:
            return StoredBundle(store, found[0])
    except ObjectMissing as error:
        if error.data.get("digest") != short:
            raise
    raise ObjectMissing(
        f"The store {store.root} holds no export {short}.",
        hint="`autocode-jobs jobs list` shows the exports of this data folder (AUTOCODE_HOME).",
        digest=short,
    )


def _explained(path: Path, open_it: Callable[[], Bundle]) -> Bundle:
    try:
        return open_it()
    except _UNREADABLE as error:
        raise BundleDamaged(f"The manifest of the bundle {path} can't be read: {error}.") from error


def _no_bundle(path: Path, reason: str) -> JobsError:
    return UsageError(
        f"{path} is no bundle: {reason}.", hint="Name the folder or the .zip file that an export wrote."
    )


def _read_at_most(file: BinaryIO, limit: int) -> bytes:
    data = bytearray()
    while len(data) <= limit and (chunk := file.read(_CHUNK)):
        data += chunk
        if not data.startswith(_BEGINNING):
            # whatever it is, it isn't worth a gigabyte of memory
            raise UsageError("The manifest.json is none of an export.")
    if len(data) > limit:
        raise UsageError("The manifest is larger than any export's.")
    return bytes(data)
