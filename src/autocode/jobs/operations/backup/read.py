"""Reading a backup: all of it is checked; a restored home appears whole, or not at all."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from autocode.jobs.errors import BackupDamaged, HomeUnusable, UsageError
from autocode.jobs.ledger import portable
from autocode.jobs.ledger.database import SCHEMA_REVISION, Database, sqlite_url
from autocode.jobs.operations.backup.label import (
    FORMAT,
    LABEL,
    MANIFEST,
    PARTS,
    Label,
    Listed,
    Manifest,
    StoreTotals,
)
from autocode.jobs.operations.backup.ledger_part import read_ledger
from autocode.jobs.operations.backup.settings_part import read_settings
from autocode.jobs.operations.backup.store_part import read_store
from autocode.jobs.operations.backup.tar import Reader, Written
from autocode.jobs.operations.partial import explained, partial_folder, sweep, sync_folder
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore

__all__ = ["Progress", "Restored", "check", "restore"]

Progress = Callable[[int, int], None]
"""Told the bytes done and about how many there are; may raise to stop."""

_LARGEST: Final = 256 << 20
"""Bytes of a label or a manifest; a thousand missing objects take half a million."""

_FIRST_REVISION: Final = "0001"

_Told = TypeVar("_Told", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a backup holds, and the epoch of the ledger that was made of it."""

    label: Label
    manifest: Manifest
    epoch: str

    def to_json(self) -> dict[str, Any]:
        """Return what the backup holds as JSON values."""
        return {
            "created_at": self.label.created_at,
            "schema": self.label.ledger.revision,
            "epoch": self.label.ledger.epoch,
            "rows": self.manifest.rows,
            "objects": self.manifest.store.objects,
            "object_bytes": self.manifest.store.bytes,
            "missing": [each.model_dump() for each in self.manifest.store.missing],
        }


def check(file: Path, *, progress: Progress = lambda _done, _total: None) -> Restored:
    """Verify all of the backup *file*, and load its ledger into a temporary database. Changes nothing.

    Raises:
        BackupDamaged: it isn't what it was when it was written.
        HomeUnusable: a newer version of this program wrote it.
        UsageError: there is no such file, or it can't be read.
        DiskFull: the temporary folder has no room for the ledger.
    """
    with _opened(file, progress) as reader:
        label, written = _label(reader)
        with tempfile.TemporaryDirectory(prefix="autocode-check-") as scratch, explained(Path(scratch)):
            loaded = _load(reader, label, Path(scratch), actor="nobody", store=None)
            return _confirmed(reader, label, written, loaded)


def restore(
    file: Path, home: Home, *, actor: str, progress: Progress = lambda _done, _total: None
) -> Restored:
    """Make *home* of the backup *file*: ledger (SQLite), settings and objects, all verified first.

    The ledger gets a new epoch. Atomic: the home appears whole and durable, or not at all; it grows in a
    folder beside it, and what killed runs left there is removed first.

    Args:
        file: the backup.
        home: doesn't exist, or is an empty folder.
        actor: who restores it, for the audit.
        progress: told how far it is.

    Raises:
        BackupDamaged: the backup isn't what it was when it was written; nothing was changed.
        HomeUnusable: there is something in *home*, or a newer version wrote the backup; nothing was changed.
        UsageError: *file* can't be read, or *home* can't be made; nothing was changed.
        DiskFull: there is no room; nothing is left behind.
    """
    target = home.path.resolve()
    _check_target(target)
    with _opened(file, progress) as reader:
        label, written = _label(reader)
        with explained(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
            sweep(target.parent)
            with partial_folder(target.parent, "restore") as temporary:
                growing = Home(temporary)
                loaded = _load(reader, label, temporary, actor=actor, store=LocalStore(growing.store))
                restored = _confirmed(reader, label, written, loaded)
                growing.prepare()
                _sync_all(temporary)
                _appear(temporary, target)
    return restored


@dataclass(frozen=True, slots=True)
class _Loaded:
    members: Sequence[Written]
    rows: dict[str, int]
    totals: StoreTotals
    epoch: str


def _load(reader: Reader, label: Label, into: Path, *, actor: str, store: LocalStore | None) -> _Loaded:
    """Read everything between label and manifest; settings and objects are kept where there is a *store*."""
    file = Home(into).ledger
    file.touch(mode=0o600)
    db = Database(sqlite_url(file))
    try:
        tables, rows = read_ledger(reader, label.ledger, db)
        epoch = portable.end_load(db, actor=actor, reason=f"backup of {label.created_at}")
        settings = read_settings(reader, None if store is None else into)
        with db.read() as tx:
            index, totals = read_store(reader, portable.needed(tx), store)
        if store is not None:
            portable.let_go(db)
    finally:
        db.close()
    return _Loaded([*tables, *settings, index], rows, totals, epoch)


def _confirmed(reader: Reader, label: Label, written: Written, loaded: _Loaded) -> Restored:
    """Compare what was read with the manifest, which comes last."""
    manifest, _ = _document(reader, MANIFEST, Manifest)
    if reader.name is not None:
        raise BackupDamaged(f"The backup goes on after its manifest, with {reader.name!r}.")
    seen = [Listed(name=each.name, size=each.size, sha256=each.sha256) for each in (written, *loaded.members)]
    for listed, found in zip_longest(manifest.members, seen):
        if listed != found:
            raise BackupDamaged(f"{(found or listed).name} in the backup isn't what its manifest says.")
    totals = loaded.totals
    if loaded.rows != manifest.rows or (totals.objects, totals.bytes) != (
        manifest.store.objects,
        manifest.store.bytes,
    ):
        raise BackupDamaged("The backup doesn't hold as many rows or objects as its manifest says.")
    unsaid = {each.digest for each in totals.missing} - {each.digest for each in manifest.store.missing}
    if unsaid:
        raise BackupDamaged(f"The backup lacks object {min(unsaid)}, which its ledger needs.")
    return Restored(label, manifest, loaded.epoch)


def _label(reader: Reader) -> tuple[Label, Written]:
    """Return the label of a backup that this version can read, and its member."""
    label, written = _document(reader, LABEL, Label)
    if tuple(label.parts) != PARTS:
        raise _newer(f"has the parts {', '.join(label.parts)}, and this version knows {', '.join(PARTS)}")
    revision = label.ledger.revision
    if revision > SCHEMA_REVISION:
        raise _newer(f"has a ledger of schema {revision}, and this version knows {SCHEMA_REVISION} at most")
    if revision < _FIRST_REVISION:
        raise BackupDamaged(f"The backup has a ledger of schema {revision}, which there never was.")
    return label, written


def _document(reader: Reader, name: str, model: type[_Told]) -> tuple[_Told, Written]:
    member = reader.take(name)
    if member.size > _LARGEST:
        raise BackupDamaged(f"{name} in the backup has {member.size} bytes, more than it can have.")
    data = b"".join(member.chunks())
    try:
        told = json.loads(data)
        if isinstance(told, dict) and isinstance(told.get("format"), int) and told["format"] > FORMAT:
            raise _newer(f"has format {told['format']}, and this version knows {FORMAT} at most")
        return model.model_validate(told), member.seen()
    except (ValidationError, ValueError, RecursionError) as error:
        raise BackupDamaged(f"{name} in the backup can't be understood.") from error


def _newer(what: str) -> HomeUnusable:
    return HomeUnusable(f"The backup {what}.", hint="Upgrade autocode-jobs; nothing was changed.")


def _check_target(target: Path) -> None:
    """Refuse a home that restoring would destroy, or that can't be made by renaming a folder."""
    if not os.path.lexists(target):
        return
    with explained(target):
        if not target.is_dir() or next(target.iterdir(), None) is not None:
            raise HomeUnusable(
                f"{target} isn't empty, and a restore replaces nothing.",
                hint="Point AUTOCODE_HOME at a new folder, or move this one away.",
            )
    if target.is_mount():
        raise HomeUnusable(
            f"A disk is mounted at {target}, so no restored folder can take its place.",
            hint=f"Point AUTOCODE_HOME at a folder in it, such as {target / 'autocode-jobs'}.",
        )


@contextmanager
def _opened(file: Path, progress: Progress) -> Iterator[Reader]:
    done = 0

    def moved(count: int) -> None:
        nonlocal done
        done += count
        progress(done, max(done, total))

    try:
        # a pipe is no file that could be read twice, and opening one would wait for its writer
        if not file.is_file():
            raise UsageError(
                f"{file} is no file.", hint="Name a file that `autocode-jobs backup FILE` wrote."
            )
        archive = file.open("rb")
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}.", hint="Check its permissions.") from error
    with archive:
        total = os.fstat(archive.fileno()).st_size
        yield Reader(archive, moved=moved)


def _sync_all(root: Path) -> None:
    """Make everything below *root* durable: first the bytes, then the names."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            descriptor = os.open(Path(folder) / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(folder))


def _appear(temporary: Path, target: Path) -> None:
    try:
        temporary.rename(target)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.ENOTDIR}:
            raise
        raise HomeUnusable(
            f"{target} came into use meanwhile ({error.strerror}); nothing was changed there.",
            hint="Point AUTOCODE_HOME at a new folder.",
        ) from error
    sync_folder(target.parent)
