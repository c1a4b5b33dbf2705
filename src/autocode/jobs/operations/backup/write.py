"""Writing a backup: one snapshot of the ledger, then every object that it needs, into one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import sqlalchemy as sa

from autocode.jobs._version import __version__
from autocode.jobs.canonical import canonical_json
from autocode.jobs.clock import rfc3339
from autocode.jobs.errors import BackupIncomplete, UsageError
from autocode.jobs.ledger import portable
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database, schema_revision
from autocode.jobs.operations.backup.label import (
    FORMAT,
    LABEL,
    LEFT_OUT,
    MANIFEST,
    PARTS,
    Label,
    LedgerLabel,
    Listed,
    Manifest,
    Missing,
    TableLabel,
)
from autocode.jobs.operations.backup.ledger_part import spooled, write_ledger
from autocode.jobs.operations.backup.settings_part import write_settings
from autocode.jobs.operations.backup.store_part import note_needed, noted, write_store
from autocode.jobs.operations.backup.tar import Writer, Written
from autocode.jobs.operations.partial import explained, partial_file, sweep, sync_folder
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore

__all__ = ["BackedUp", "Progress", "back_up", "check_place"]

Progress = Callable[[int, int], None]
"""Told the bytes done and about how many there are; may raise to stop."""

_NAMED: Final = 3
"""How many missing objects an error names in its text; its data names all."""


@dataclass(frozen=True, slots=True)
class BackedUp:
    """A backup that was written."""

    file: Path
    size: int
    label: Label
    manifest: Manifest

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "file": str(self.file),
            "size": self.size,
            "created_at": self.label.created_at,
            "schema": self.label.ledger.revision,
            "epoch": self.label.ledger.epoch,
            "rows": self.manifest.rows,
            "objects": self.manifest.store.objects,
            "object_bytes": self.manifest.store.bytes,
            "missing": [each.model_dump() for each in self.manifest.store.missing],
            "left_out": list(LEFT_OUT),
        }


def check_place(file: Path, *, force: bool) -> None:
    """Return if a backup may be written as *file*.

    Raises:
        UsageError: something is there that may not be replaced, or its folder doesn't exist.
    """
    if not file.parent.is_dir():
        raise UsageError(f"{file.parent} is no folder.", hint="Make it first, or name another place.")
    if os.path.lexists(file) and (not force or not file.is_file() or file.is_symlink()):
        raise UsageError(
            f"{file} is there already.", hint="Name another file, or replace a file with --force."
        )


def back_up(
    home: Home,
    db: Database,
    store: LocalStore,
    file: Path,
    *,
    force: bool = False,
    allow_missing: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> BackedUp:
    """Write ledger, settings and objects of *home* as of one moment into the tar archive *file*.

    Others may use the home meanwhile: the ledger is read in one snapshot, and an object never changes. Each
    object is proven as it is in the archive. Atomic: the file appears whole and durable, or not at all; what
    killed runs left in its folder is removed first. Only the owner may read it.

    Args:
        home: whose settings.
        db: the ledger.
        store: the objects.
        file: the backup.
        force: replace a file of this name.
        allow_missing: leave out objects that are missing or damaged, and say so in the manifest.
        progress: told how far it is.

    Raises:
        BackupIncomplete: the store lacks objects that the ledger needs; nothing was written.
        UsageError: *file* is there, its folder can't be written to, or ``config.toml`` can't be read.
        DiskFull: there is no room; nothing is left behind.
        LedgerUnavailable: the ledger can't be read; nothing is left behind.
    """
    check_place(file, force=force)
    parent = file.parent
    with explained(parent):
        sweep(parent)
        with partial_file(parent, "backup") as (temporary, descriptor):
            with os.fdopen(descriptor, "r+b", closefd=False) as output:
                label, manifest = _write(home, db, store, output, scratch=parent, progress=progress)
                size = output.tell()
            if manifest.store.missing and not allow_missing:
                raise _incomplete(manifest.store.missing)
            _publish(temporary, file, force=force)
            sync_folder(parent)
    return BackedUp(file, size, label, manifest)


def _write(
    home: Home, db: Database, store: LocalStore, output: BinaryIO, *, scratch: Path, progress: Progress
) -> tuple[Label, Manifest]:
    total = done = 0

    def moved(count: int) -> None:
        nonlocal done
        done += count
        progress(done, max(done, total))

    now = db.clock.now()
    writer = Writer(output, at=int(now.timestamp()), moved=moved)
    with spooled(scratch) as wanted:
        with db.read(patient=True) as tx:
            # the first statement fixes the moment
            label = _label(tx, rfc3339(now) or "")
            members = [writer.add_bytes(LABEL, _document(label))]
            tables, rows = write_ledger(writer, tx, label.ledger, scratch)
            total = done + note_needed(wanted, portable.needed(tx))
        # read after the ledger: folders that jobs name are never taken away, only added
        members += [*tables, *write_settings(writer, home)]
        index, totals = write_store(
            writer, store, noted(wanted), whose=lambda digest: portable.whose(db, digest), scratch=scratch
        )
    manifest = Manifest(format=FORMAT, members=_listed([*members, index]), rows=rows, store=totals)
    writer.add_bytes(MANIFEST, _document(manifest))
    writer.end()
    return label, manifest


def _label(tx: sa.Connection, created_at: str) -> Label:
    epoch = tx.execute(sa.select(t.meta.c.value).where(t.meta.c.key == "epoch")).scalar_one()
    revision = schema_revision(tx)
    assert revision is not None, "an open ledger has a schema"
    tables = [TableLabel(name=name, columns=forms) for name, forms in portable.columns().items()]
    ledger = LedgerLabel(revision=revision, epoch=epoch, tables=tables)
    return Label(format=FORMAT, program=__version__, created_at=created_at, parts=list(PARTS), ledger=ledger)


def _document(value: Label | Manifest) -> bytes:
    return canonical_json(value.model_dump()) + b"\n"


def _listed(members: Sequence[Written]) -> list[Listed]:
    return [Listed(name=each.name, size=each.size, sha256=each.sha256) for each in members]


def _incomplete(missing: Sequence[Missing]) -> BackupIncomplete:
    jobs = sorted({job for each in missing for job in each.jobs})
    named = " ".join(each.reason for each in missing[:_NAMED])
    more = f" And {len(missing) - _NAMED} more." if len(missing) > _NAMED else ""
    whose = (
        f" Needed by {', '.join(jobs[:_NAMED])}{' and others' if len(jobs) > _NAMED else ''}." if jobs else ""
    )
    return BackupIncomplete(
        f"No backup was written: {named}{more}{whose}", missing=[each.model_dump() for each in missing]
    )


def _publish(temporary: Path, file: Path, *, force: bool) -> None:
    if force:
        temporary.replace(file)
        return
    # looked at again: a backup takes its time, and a rename would replace what came meanwhile
    check_place(file, force=False)
    temporary.rename(file)
