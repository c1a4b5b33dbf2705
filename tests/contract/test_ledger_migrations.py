"""The schema: made once, by whoever comes first, and never by an older program."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from autocode.jobs.errors import HomeUnusable, LedgerUnavailable
from autocode.jobs.ledger import (
    attempts,
    audit,
    checkpoints,
    effects,
    jobs,
    queries,
    results,
    retries,
    schema,
    scopes,
)
from autocode.jobs.ledger.database import SCHEMA_REVISION, Database, sqlite_url
from autocode.jobs.projection import Outcome
from ledger_operations import Stopped, stopping_at
from ledger_world import (
    TickingClock,
    begin,
    commit,
    contents,
    in_threads,
    look,
    memo_key,
    new_job,
    problem,
    produced,
    started,
)


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


Raw = dict[str, list[dict[str, object]]]
"""Every row of some tables, as the database has it."""


def raw(database: Database) -> tuple[sa.MetaData, Raw]:
    """Return the tables of a database as they are, and their rows, without this project's schema."""
    found = sa.MetaData()
    with database.read() as tx:
        found.reflect(tx)
        rows = {
            table.name: [
                dict(row._mapping) for row in tx.execute(sa.select(table).order_by(*table.primary_key))
            ]
            for table in found.sorted_tables
        }
    return found, rows


def live(database: Database) -> None:
    """Fill a ledger with jobs in several states, and with everything that they leave behind."""
    attempt = started(database, "complete", session_id="s-1")
    commit(database, attempt, "a")
    effects.intend(database, attempt, "mail")
    results.commit_result(database, attempt, produced("r"))
    results.mark_verified(database, "complete", produced("r").digest)
    started(database, "dead", max_attempts=1)
    attempts.end(database, "dead", 1, Outcome.FAILED, error=problem())
    started(database, "retrying", max_attempts=7)
    attempts.end(database, "retrying", 1, Outcome.LOST)
    started(database, "running")
    jobs.enqueue(database, new_job("cancelled"))
    results.request_cancel(database, "cancelled")
    for job_id in ("complete", "dead", "retrying", "cancelled"):
        look(database, job_id)
    audit.append(database, actor="ann", action="verify", target="complete", reason="", outcome="done")


@pytest.fixture(params=["0001", "0003"])
def older(
    empty_url: str, database: Database, request: pytest.FixtureRequest
) -> Iterator[tuple[Database, Raw]]:
    """Give a ledger with an older schema and what a program of that time left in it, with its rows."""
    live(database)
    _, rows = raw(database)
    old = Database(empty_url, clock=TickingClock())
    config = Config()
    folder = Path(schema.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    with old.write() as tx:
        config.attributes["connection"] = tx
        command.upgrade(config, request.param)
    tables_then, _ = raw(old)
    with old.write() as tx:
        for table in tables_then.sorted_tables:
            kept = [{column.name: row[column.name] for column in table.columns} for row in rows[table.name]]
            if kept and table.name != "schema_version":
                tx.execute(sa.insert(table), kept)
    yield old, raw(old)[1]
    old.close()


def test_an_older_schema_keeps_its_rows(older: tuple[Database, Raw], database: Database) -> None:
    """A ledger of an older schema becomes one of the newest, and every row is there with every value."""
    old, before = older
    (version,) = before["schema_version"]
    assert all(
        before[name] for name in ("jobs", "statuses", "attempts", "checkpoints", "memo", "events", "audit")
    )

    old.migrate()

    _, after = raw(old)
    for name in before.keys() - {"schema_version"}:
        kept = [
            {column: row[column] for column in was}
            for row, was in zip(after[name], before[name], strict=True)
        ]
        assert kept == before[name]
    assert after["schema_version"] == [{"version_num": SCHEMA_REVISION}]
    # written by today's program from the same facts: what was added has the value that it would have had
    assert {**raw(database)[1], "memo": [], "meta": []} == {**after, "memo": [], "meta": []}
    first = version == {"version_num": "0001"}
    assert [row["fence"] for row in after["memo"]] == ([0] if first else [before["memo"][0]["fence"]])


def test_jobs_from_before_scopes_are_hidden(older: tuple[Database, Raw]) -> None:
    """Nobody said what an older job reads, so no token for some sessions sees it, also one of its session."""
    old, _ = older
    old.migrate()

    with old.read() as tx:
        found = {job_id: scopes.of_job(tx, job_id) for job_id in ("complete", "running")}
        seen = tx.execute(sa.select(schema.jobs).where(*scopes.conditions(frozenset({"s-1"})))).all()

    assert found == {"complete": {"s-1", scopes.EVERYTHING}, "running": frozenset()}
    assert not any(scopes.covers(frozenset({"s-1"}), sessions) for sessions in found.values())
    assert seen == []


def test_an_older_ledger_goes_on(older: tuple[Database, Raw], database: Database) -> None:
    """After the migration jobs look as they did, nothing is told anew, and they can be retried."""
    old, _ = older
    old.migrate()
    everyone = ("complete", "dead", "retrying", "running", "cancelled")

    shown = [queries.get(old, job_id) for job_id in everyone]
    told_anew = [look(old, job_id) for job_id in everyone if job_id != "running"]
    retries.request_retry(old, "dead", actor="ann", reason="upgrade", start="start")
    look(old, "dead")
    known = checkpoints.lookup(old, memo_key(inputs="a"))

    assert shown == [queries.get(database, job_id) for job_id in everyone]
    assert told_anew == [False] * 4
    assert queries.get(old, "dead").max_attempts == 1 + retries.ATTEMPTS
    assert known == produced("a")
    assert begin(old, "dead", 2).fresh_fence == 4
    assert audit.broken_link(old) is None


def test_an_upgrade_that_fails_anywhere(older: tuple[Database, Raw]) -> None:
    """An upgrade that fails after any of its statements leaves the older schema; done again, it succeeds."""
    old, before = older

    def stop() -> None:
        raise Stopped

    k, finished = 0, False
    while not finished:
        k += 1
        with stopping_at(old, k, stop) as seen:
            try:
                old.migrate()
            except Stopped:
                assert raw(old)[1] == before, f"stopped after {seen[-1]}"
            else:
                finished = True

    assert k > 10
    assert raw(old)[1]["schema_version"] == [{"version_num": SCHEMA_REVISION}]
