"""Moving a whole ledger from one database into another, in one transaction of the other."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from autocode.jobs.errors import HomeUnusable, LedgerUnavailable
from autocode.jobs.ledger import schema
from autocode.jobs.ledger.database import Database

__all__ = ["copy_ledger"]

_BATCH: Final = 1000
"""Rows read and written at a time: the memory that a move needs doesn't grow with the ledger."""


def copy_ledger(source: Database, target: Database) -> int:
    """Make *target* hold exactly the rows of *source*, which nobody may write to meanwhile.

    What an earlier copy of the same ledger left in *target* is replaced. Idempotent, atomic: before its
    commit *target* is what it was.

    Args:
        source: the ledger; brought up to date first.
        target: a PostgreSQL; brought up to date first.

    Returns:
        The number of rows.

    Raises:
        HomeUnusable: *target* holds jobs of another ledger; nothing was changed.
        LedgerUnavailable: a database can't be reached, or not every row arrived; nothing was changed.
    """
    source.migrate()
    target.migrate()
    with source.read() as old, target.write(patient=True) as new:
        _check_target(old, new)
        tables = schema.metadata.sorted_tables
        names = ", ".join(new.dialect.identifier_preparer.format_table(table) for table in tables)
        new.exec_driver_sql(f"TRUNCATE {names}")
        total = sum(_copy(old, new, table) for table in tables)
        _continue_numbers(old, new)
    return total


def _check_target(old: sa.Connection, new: sa.Connection) -> None:
    epoch = sa.select(schema.meta.c.value).where(schema.meta.c.key == "epoch")
    if old.execute(epoch).scalar_one() == new.execute(epoch).scalar_one():
        return
    if new.execute(sa.select(schema.jobs.c.job_id).limit(1)).first() is not None:
        raise HomeUnusable(
            "The PostgreSQL database holds jobs of another ledger, which a move would destroy.",
            hint="Move that database away, or open it with AUTOCODE_DATABASE_URL and a home of its own.",
        )


def _copy(old: sa.Connection, new: sa.Connection, table: sa.Table) -> int:
    copied = 0
    with old.execution_options(yield_per=_BATCH).execute(sa.select(table)) as rows:
        for batch in rows.mappings().partitions():
            new.execute(sa.insert(table), [dict(row) for row in batch])
            copied += len(batch)
    arrived = new.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    there = old.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    if not copied == arrived == there:
        raise LedgerUnavailable(
            f"Of {there} rows of {table.name} {copied} were read and {arrived} arrived; nothing was moved.",
            hint="End whatever else uses this home, then try again.",
        )
    return copied


def _continue_numbers(old: sa.Connection, new: sa.Connection) -> None:
    """Let the database number rows from where the other one stopped; a number is never given twice."""
    for table in schema.metadata.sorted_tables:
        column = table.autoincrement_column
        if column is None or not isinstance(column.type, sa.Integer):
            continue
        last = new.execute(sa.select(sa.func.coalesce(sa.func.max(column), 0))).scalar_one()
        if old.dialect.name == "sqlite" and sa.inspect(old).has_table("sqlite_sequence"):
            # rows that were removed since had numbers too
            query = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name")
            last = max(last, old.execute(query, {"name": table.name}).scalar() or 0)
        sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
        new.execute(sa.select(sa.func.setval(sequence, last + 1, sa.false())))
