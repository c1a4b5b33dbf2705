"""Alembic's entry point: it runs inside the transaction that :meth:`Database.migrate` opened."""

from __future__ import annotations

from alembic import context

from autocode.jobs.ledger.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table="schema_version",
    transaction_per_migration=False,
)
context.run_migrations()
