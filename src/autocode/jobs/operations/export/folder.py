"""An export unpacked into a folder: a view, made from the artifact whenever somebody wants it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePosixPath
from typing import Final

from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export.bag import BagFile, bag_files, bag_name, content_of
from autocode.jobs.operations.export.manifest import load_manifest
from autocode.jobs.operations.partial import explained, partial_folder, sweep, sync_folder
from autocode.jobs.store import ObjectStore

__all__ = ["Progress", "write_folder"]

Progress = Callable[[int, int], None]
"""Told the bytes done and the bytes in all; may raise to stop."""

_CHUNK: Final = 1 << 20


def write_folder(
    store: ObjectStore,
    digest: str,
    parent: Path,
    *,
    name: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Unpack the export *digest* into a folder of its own in *parent*, and return that folder.

    Atomic: the folder appears when every byte in it was verified and is durable, or not at all. Idempotent:
    a folder that is there and is exactly this bag is returned as it is. What killed runs left in *parent* is
    removed first. Only the owner may read the files: they are private conversations.

    Args:
        store: where the export's objects are.
        digest: the artifact.
        parent: an existing folder; nothing outside it is written.
        name: the folder's name; ``autocode-export-`` and 12 digits of the digest if not given.
        progress: told how far it is.

    Raises:
        UsageError: *digest* is no export, *parent* can't be written to, or something else has the name.
        DiskFull: there is no room; nothing is left behind.
        ObjectMissing: an object of the export isn't in the store; nothing is left behind.
        ObjectCorrupt: an object of the export is damaged; nothing is left behind.
    """
    files = bag_files(load_manifest(store, digest))
    target = parent / _plain_name(bag_name(digest) if name is None else name)
    with explained(parent):
        sweep(parent)
        if os.path.lexists(target):
            return _known(target, files)
        with partial_folder(parent) as temporary:
            _fill(temporary, store, files, progress)
            try:
                temporary.rename(target)
            except OSError:
                # somebody else was faster; if it is the same bag, theirs is as good
                if not os.path.lexists(target):
                    raise
                return _known(target, files)
            sync_folder(parent)
    return target


def _plain_name(name: str) -> str:
    if name in {"", ".", ".."} or "/" in name or "\0" in name or os.sep in name:
        raise UsageError(f"{name!r} is no name for a folder.", hint="Give a name without any /.")
    return name


def _fill(root: Path, store: ObjectStore, files: Sequence[BagFile], progress: Progress | None) -> None:
    total = sum(file.size for file in files)
    done = 0
    folders = {root / "data"}
    (root / "data").mkdir(mode=0o700)
    for file in files:
        path = root / file.path
        for folder in reversed(path.relative_to(root).parents):
            if root / folder not in {root, *folders}:
                (root / folder).mkdir(mode=0o700)
                folders.add(root / folder)
        with open(path, "xb", buffering=0, opener=_private) as output:
            for chunk in content_of(store, file):
                _write_all(output.fileno(), chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
            os.fsync(output.fileno())
    for folder in (*folders, root):
        sync_folder(folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _known(target: Path, files: Sequence[BagFile]) -> Path:
    """Return *target* if it is exactly this bag, by the bytes of every file.

    Raises:
        UsageError: it isn't.
    """
    difference = _difference(target, {file.path: file for file in files})
    if difference is None:
        return target
    raise UsageError(
        f"{target} is there already and isn't this export: {difference}.",
        hint="Move it away, or give the folder another name.",
    )


def _difference(target: Path, expected: dict[str, BagFile]) -> str | None:
    if not stat.S_ISDIR(target.lstat().st_mode):
        return "it is no folder"
    missing = dict(expected)
    folders = {"data"} | {str(parent) for path in expected for parent in PurePosixPath(path).parents}
    for path, kind in _walk(target, folders):
        file = missing.pop(path, None)
        if file is None or kind != "file":
            return f"{path!r} doesn't belong to it"
        if not _same(target / path, file):
            return f"{path!r} has other bytes"
    return f"{min(missing)!r} is missing" if missing else None


def _walk(root: Path, folders: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    """Yield the path and kind of everything in *root* but *folders*, which alone are entered."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(root / below) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = f"{below}{entry.name}"
            if path in folders and entry.is_dir(follow_symlinks=False):
                waiting.append(f"{path}/")
            else:
                yield path, "file" if entry.is_file(follow_symlinks=False) else "other"


def _same(path: Path, file: BagFile) -> bool:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0, opener=_no_link) as stream:
        if os.fstat(stream.fileno()).st_size != file.size:
            return False
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return "sha256:" + digest.hexdigest() == file.sha256


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
