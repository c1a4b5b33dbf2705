"""The database of a new home, made from a dump instead of by all the migrations that Prefect ever had.

``prefect_schema.sql`` says what the migrations of one version of Prefect make of an empty SQLite file. Any
other version migrates by itself; a test compares the dump with what the installed version's own migrations
make. Nothing here imports Prefect.
"""

from __future__ import annotations

import importlib.metadata
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Final

from autocode.jobs.settings import rename_durably

__all__ = ["DATABASE", "FILE", "dump", "lay", "text"]

DATABASE: Final = "prefect.db"
"""Name of the server's database in its folder."""

FILE: Final = "prefect_schema.sql"
"""Name of the dump, beside this module."""

_HEADER: Final = """\
-- prefect {version}
-- Its SQLite schema after all migrations: tables by name, each with its rows and its indexes.
-- Written by `make prefect-schema`; a new home starts with it.
"""


def text() -> str:
    """Return the dump that this package carries."""
    return (resources.files(__package__) / FILE).read_text("utf-8")


def lay(folder: Path) -> bool:
    """Make the database in *folder* from the dump, unless there is one; return whether it was made.

    Atomic, and idempotent; two at once are kept apart by the caller. Where the dump is of another version of
    Prefect than the installed one, or SQLite refuses it, nothing is made: Prefect migrates by itself.
    """
    database, new = folder / DATABASE, folder / f"{DATABASE}.new"
    script = text()
    if database.exists() or not script.startswith(_header(importlib.metadata.version("prefect"))):
        return False
    new.unlink(missing_ok=True)
    new.touch(0o600)
    try:
        with closing(sqlite3.connect(new)) as connection:
            # until it has its name, nobody misses it after a crash
            connection.executescript(f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {script}")
    except sqlite3.Error:
        new.unlink()
        return False
    # SQLite would play the log of a database that was removed into this one
    for suffix in ("-journal", "-shm", "-wal"):
        (folder / f"{DATABASE}{suffix}").unlink(missing_ok=True)
    rename_durably(new, database)
    return True


def dump(database: Path, version: str) -> str:
    """Return what is in the SQLite file *database*, as a script that the same content always gives.

    Args:
        database: what the migrations of Prefect left.
        version: of that Prefect, for the header.
    """
    with closing(sqlite3.connect(database)) as connection:
        return "\n".join([f"{_header(version)}BEGIN;", *_statements(connection), "COMMIT;", ""])


def _header(version: str) -> str:
    return _HEADER.format(version=version)


def _statements(connection: sqlite3.Connection) -> Iterator[str]:
    objects = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*'"
        " ORDER BY tbl_name, type <> 'table', type, name"
    ).fetchall()
    for kind, name, sql in objects:
        yield f"{_canonical(sql)};"
        if kind == "table":
            yield from _rows(connection, name)


def _rows(connection: sqlite3.Connection, table: str) -> list[str]:
    names = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    values = " || ', ' || ".join(f'quote("{name}")' for name in names)
    # the names are the schema's own
    rows = connection.execute(f'SELECT {values} FROM "{table}"')  # noqa: S608
    return sorted(f'INSERT INTO "{table}" VALUES ({row});' for (row,) in rows)  # noqa: S608


def _canonical(sql: str) -> str:
    """Return a statement of the schema without spaces at ends of lines, its table constraints in order.

    Alembic copies a table to change it, and takes the constraints from a set: their order is chance.
    """
    lines = [line.rstrip() for line in sql.strip().splitlines()]
    places = [number for number, line in enumerate(lines) if line.startswith("\tCONSTRAINT ")]
    constraints = sorted(lines[place].removesuffix(",") for place in places)
    for place, constraint in zip(places, constraints, strict=True):
        last = place == places[-1] and not lines[place].endswith(",")
        lines[place] = constraint if last else f"{constraint},"
    return "\n".join(lines)
