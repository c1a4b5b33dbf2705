"""The part of a backup that is the ledger: a file of JSON lines a table, as of one moment."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final, cast

import sqlalchemy as sa

from autocode.jobs.errors import BackupDamaged, LedgerUnavailable
from autocode.jobs.ledger import portable
from autocode.jobs.ledger.database import Database
from autocode.jobs.operations.backup.label import LedgerLabel
from autocode.jobs.operations.backup.tar import Reader, Writer, Written

__all__ = ["read_ledger", "spooled", "write_ledger"]

_SPOOLED: Final = 1 << 20
"""Bytes that are kept in memory before a temporary file is made."""


def write_ledger(
    writer: Writer, tx: sa.Connection, label: LedgerLabel, scratch: Path
) -> tuple[list[Written], dict[str, int]]:
    """Write every table as the transaction sees it; return the members, and the rows of each table.

    Args:
        writer: the archive.
        tx: a snapshot of the ledger.
        label: what tables there are.
        scratch: a folder for temporary files without names.
    """
    members, rows = [], {}
    for table in (each.name for each in label.tables):
        with spooled(scratch) as file:
            rows[table] = _fill(file, portable.lines(tx, table))
            size = file.tell()
            file.seek(0)
            members.append(writer.add(_name(table), size, file))
    return members, rows


def read_ledger(reader: Reader, label: LedgerLabel, db: Database) -> tuple[list[Written], dict[str, int]]:
    """Load every table into the empty database *db*, which gets the schema that the tables had.

    Raises:
        BackupDamaged: a table holds what it can't hold, or can't be read.
        DiskFull: there is no room.
    """
    members, rows = [], {}
    try:
        portable.begin_load(db, label.revision, [each.name for each in label.tables])
        for table in label.tables:
            member = reader.take(_name(table.name))
            rows[table.name] = portable.load(db, table.name, table.columns, member.lines())
            members.append(member.seen())
    except (sa.exc.SQLAlchemyError, LedgerUnavailable, ValueError, TypeError, RecursionError) as error:
        # nobody else uses this database: if it refuses, it refuses what it was given
        raise BackupDamaged(f"The ledger in the backup can't be read: {_first_line(error)}.") from error
    return members, rows


def spooled(scratch: Path) -> BinaryIO:
    """Return a temporary file in *scratch* that has no name, so that nothing is left of it after a kill."""
    return cast("BinaryIO", tempfile.SpooledTemporaryFile(_SPOOLED, dir=str(scratch)))


def _fill(file: BinaryIO, lines: Iterable[bytes]) -> int:
    count = 0
    for line in lines:
        file.write(line)
        count += 1
    return count


def _name(table: str) -> str:
    return f"ledger/{table}.jsonl"


def _first_line(error: BaseException) -> str:
    # SQLAlchemy adds the statement and its values
    return str(getattr(error, "orig", None) or error).partition("\n")[0].rstrip(".")
