"""The schema: made once, by whoever comes first, and never by an older program."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from autocode.jobs.errors import HomeUnusable, LedgerUnavailable
from autocode.jobs.ledger import jobs, schema
from autocode.jobs.ledger.database import SCHEMA_REVISION, Database, sqlite_url
from ledger_world import contents, in_threads, new_job


def tables(database: Database) -> set[str]:
    """Return the names of the tables that exist."""
    with database.read() as tx:
        return set(sa.inspect(tx).get_table_names())


def migrate_elsewhere(url: str, gate: multiprocessing.synchronize.Barrier) -> None:  # type: ignore[name-defined, unused-ignore]
    """Migrate the database at *url* in this process, together with others."""
    database = Database(url)
    gate.wait()
    database.migrate()
    jobs.enqueue(database, new_job())
    database.close()


def test_migrate_makes_every_table(empty_url: str) -> None:
    """An empty database gets every table and its counters."""
    database = Database(empty_url)

    database.migrate()

    assert tables(database) == {*schema.metadata.tables, "schema_version"}
    assert [tuple(row) for row in contents(database)["counters"]] == [
        ("audit", 0),
        ("cursor", 0),
        ("fence", 0),
    ]
    database.close()


def test_the_migrations_make_the_schema(database: Database) -> None:
    """What the migrations make is what the code declares: columns, types, keys and indexes."""

    def compare(tx: sa.Connection) -> list[object]:
        options = {"compare_type": True, "version_table": "schema_version"}
        return list(compare_metadata(MigrationContext.configure(tx, opts=options), schema.metadata))

    with database.read() as tx:
        differences = compare(tx)

    assert differences == []


def test_migrate_again_changes_nothing(database: Database) -> None:
    """Migrating a ledger that is up to date changes no row."""
    jobs.enqueue(database, new_job())
    before = contents(database)

    database.migrate()

    assert contents(database) == before


def test_ledgers_have_epochs_of_their_own(empty_url: str, database: Database) -> None:
    """Each ledger gets an epoch of its own, so that a cursor of one means nothing in another."""
    other = Database(empty_url)
    other.migrate()

    assert contents(other)["meta"] != contents(database)["meta"]
    other.close()


def test_threads_migrate_together(empty_url: str) -> None:
    """Several threads that open an empty database together all find it ready."""
    databases = [Database(empty_url) for _ in range(4)]

    outcomes = in_threads(4, lambda number: databases[number].migrate())

    assert outcomes == [None] * 4
    assert len(contents(databases[0])["meta"]) == 1
    for database in databases:
        database.close()


def test_processes_migrate_together(empty_url: str) -> None:
    """Several processes that open an empty database together all find it ready, and one makes the job."""
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(3)
    processes = [context.Process(target=migrate_elsewhere, args=(empty_url, gate)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    database = Database(empty_url)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(contents(database)["jobs"]) == 1
    assert len(contents(database)["meta"]) == 1
    database.close()


def test_a_newer_schema_is_left_alone(empty_url: str) -> None:
    """A ledger that a newer program wrote is refused and not changed."""
    database = Database(empty_url)
    database.migrate()
    jobs.enqueue(database, new_job())
    with database.write() as tx:
        tx.execute(sa.text("UPDATE schema_version SET version_num = '0999'"))
    before = contents(database)

    with pytest.raises(HomeUnusable, match=f"0999.*{SCHEMA_REVISION}"):
        database.migrate()

    assert contents(database) == before
    database.close()


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """A file with something else in it is refused and left as it was."""
    path = tmp_path / "ledger.db"
    path.write_bytes(b"This is no database at all.\n" * 100)
    database = Database(sqlite_url(path))

    with pytest.raises(HomeUnusable):
        database.migrate()

    assert path.read_bytes() == b"This is no database at all.\n" * 100
    database.close()


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    """A ledger can't be opened in a folder that isn't there."""
    database = Database(sqlite_url(tmp_path / "nowhere" / "ledger.db"))

    with pytest.raises(HomeUnusable):
        database.migrate()


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    """A PostgreSQL that isn't there makes the ledger unavailable, which is worth another try."""
    database = Database(f"postgresql+psycopg://nobody@/none?host={tmp_path}")

    with pytest.raises(LedgerUnavailable):
        database.migrate()


def test_odd_paths_are_fine(tmp_path: Path) -> None:
    """A ledger's folder may have any name that the file system allows."""
    folder = tmp_path / "a %41 #?&=é dir"
    folder.mkdir()
    database = Database(sqlite_url(folder / "ledger.db"))

    database.migrate()

    assert (folder / "ledger.db").exists()
    assert tables(database) == {*schema.metadata.tables, "schema_version"}
    database.close()


def test_sqlite_keeps_its_promises(tmp_path: Path) -> None:
    """SQLite runs in WAL mode, syncs every commit and checks references."""
    database = Database(sqlite_url(tmp_path / "ledger.db"))
    pragmas = ("journal_mode", "synchronous", "foreign_keys")

    with database.read() as tx:
        values = [tx.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]

    assert values == ["wal", 2, 1]
    database.close()
