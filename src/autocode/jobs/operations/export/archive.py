"""An export as one zip file: a view, made from the artifact whenever somebody wants it."""

from __future__ import annotations

import errno
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export.bag import BagFile, bag_files, bag_name, content_of
from autocode.jobs.operations.export.folder import Progress
from autocode.jobs.operations.export.manifest import load_manifest
from autocode.jobs.operations.partial import explained, partial_file, sweep, sync_folder
from autocode.jobs.store import ObjectStore

__all__ = ["write_zip"]

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_MODE: Final = 0o100644 << 16
_LEVEL: Final = 6
_CHUNK: Final = 1 << 20
_WITHOUT_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def write_zip(store: ObjectStore, digest: str, path: Path, *, progress: Progress | None = None) -> Path:
    """Write the export *digest* as the zip file *path*, and return the path.

    The same export gives the same bytes, with the same release of zlib: entries are sorted and lie in one
    folder, times are 1980-01-01, modes are fixed. Entries beyond 2 GiB get the ZIP64 form. Atomic, and
    idempotent: a file that is there and has these bytes stays. What killed runs left in its folder is
    removed first.

    Args:
        store: where the export's objects are.
        digest: the artifact.
        path: the file; its folder must exist.
        progress: told how far it is.

    Raises:
        UsageError: *digest* is no export, the folder can't be written to, or *path* is something else.
        DiskFull: there is no room; nothing is left behind.
        ObjectMissing: an object of the export isn't in the store; nothing is left behind.
        ObjectCorrupt: an object of the export is damaged; nothing is left behind.
    """
    files = bag_files(load_manifest(store, digest))
    parent = path.parent
    with explained(parent):
        sweep(parent)
        with partial_file(parent) as (temporary, descriptor):
            with os.fdopen(descriptor, "w+b", closefd=False) as output:
                _pack(output, bag_name(digest), store, files, progress)
                output.flush()
                os.fsync(descriptor)
            _publish(temporary, path)
            sync_folder(parent)
    return path


def _pack(
    output: BinaryIO, top: str, store: ObjectStore, files: Sequence[BagFile], progress: Progress | None
) -> None:
    total = sum(file.size for file in files)
    done = 0
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for file in files:
            entry = zipfile.ZipInfo(f"{top}/{file.path}", _EPOCH)
            entry.create_system = _UNIX
            entry.external_attr = _MODE
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.file_size = file.size
            with archive.open(entry, "w") as member:
                for chunk in content_of(store, file):
                    member.write(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(done, total)


def _publish(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        if not _same(temporary, path):
            raise UsageError(
                f"{path} is there already and isn't this export.",
                hint="Move it away, or give the file another name.",
            ) from None
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS or os.path.lexists(path):
            raise
        temporary.rename(path)


def _same(one: Path, other: Path) -> bool:
    if other.is_symlink() or not other.is_file() or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as left, other.open("rb") as right:
        while chunk := left.read(_CHUNK):
            if chunk != right.read(_CHUNK):
                return False
    return True
