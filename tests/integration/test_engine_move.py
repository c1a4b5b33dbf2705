"""The move of a ledger from its file into the home's PostgreSQL: excluded, complete, and completed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from autocode.jobs import locks
from autocode.jobs.engine import databases, move, prefect_postgresql
from autocode.jobs.engine.server import private_server
from autocode.jobs.engine.system import open_system, use_embedded
from autocode.jobs.errors import HomeUnusable, LedgerUnavailable
from autocode.jobs.ledger import jobs, schema, transfer
from autocode.jobs.ledger.database import Database, sqlite_url
from autocode.jobs.ledger.transfer import copy_ledger
from autocode.jobs.postgres.client import running
from autocode.jobs.settings import Home
from autocode.jobs.store import put_bytes
from engine_world import SOURCES, until
from ledger_world import begin, new_job, started
from postgres_world import pids, temporary_home

pytest_plugins = ["fixtures_postgres"]

_OPEN = """
import sys
from pathlib import Path
from autocode.jobs.engine.system import open_system
from autocode.jobs.settings import Home

with open_system(Home(Path(sys.argv[1]))):
    print("open", flush=True)
    sys.stdin.read()
"""


_NEW_EVENT = sa.insert(schema.events).returning(schema.events.c.id)


class _Killed(BaseException):
    """Stands for a death of the process: nothing may handle it."""


def _rows(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    with db.read() as tx:
        return {
            table.name: sorted((tuple(row) for row in tx.execute(sa.select(table))), key=repr)
            for table in schema.metadata.sorted_tables
        }


def _fill(db: Database) -> None:
    db.migrate()
    started(db, "one", session_id="session")
    jobs.enqueue(db, new_job("two"))
    begin(db, "two")


@pytest.fixture
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Give a SQLite ledger with some jobs."""
    db = Database(sqlite_url(tmp_path_factory.mktemp("ledger") / "ledger.db"))
    _fill(db)
    yield db
    db.close()


@contextmanager
def _dying_at(db: Database, number: int) -> Iterator[list[str]]:
    """Die before the statement of that number on *db*."""
    seen: list[str] = []

    def count(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        seen.append(statement)
        if len(seen) == number:
            raise _Killed

    sa.event.listen(db._engine, "before_cursor_execute", count)
    try:
        yield seen
    finally:
        sa.event.remove(db._engine, "before_cursor_execute", count)


def test_every_row_is_copied_and_numbers_go_on(ledger: Database, postgres_url: str) -> None:
    """Both ledgers hold the same rows; a copy again changes nothing; numbers are never given twice."""
    with ledger.write() as tx:
        last = tx.execute(
            sa.insert(schema.events).values(_event()).returning(schema.events.c.id)
        ).scalar_one()
        tx.execute(sa.delete(schema.events).where(schema.events.c.id == last))
    target = Database(postgres_url)

    copied = copy_ledger(ledger, target)
    again = copy_ledger(ledger, target)
    rows = _rows(target)
    with target.write() as tx:
        following = tx.execute(_NEW_EVENT.values(_event())).scalar_one()
    target.close()

    assert copied == again == sum(map(len, rows.values()))
    assert rows == _rows(ledger)
    assert following > last


def _event() -> dict[str, Any]:
    with_time = sa.select(schema.jobs.c.enqueued_at).limit(1).scalar_subquery()
    return {"job_id": "one", "fact": "progress", "detail": {}, "at": with_time}


def test_a_copy_that_dies_at_any_statement_leaves_the_target_as_it_was(
    ledger: Database, postgres_url: str
) -> None:
    """Killed before any statement, the target's ledger is empty as before; the next copy is complete."""
    target = Database(postgres_url)
    target.migrate()
    empty = _rows(target)
    with _dying_at(target, 10_000) as seen:
        copy_ledger(ledger, target)
    statements = len(seen)
    with target.write() as tx:
        for table in reversed(schema.metadata.sorted_tables):
            tx.execute(sa.delete(table))
        for name, rows in empty.items():
            for row in rows:
                tx.execute(sa.insert(schema.metadata.tables[name]).values(row))
    left = []

    for number in range(2, statements + 1):
        with pytest.raises(_Killed), _dying_at(target, number):
            copy_ledger(ledger, target)
        left.append(_rows(target) == empty)
    copy_ledger(ledger, target)
    complete = _rows(target) == _rows(ledger)
    target.close()

    assert statements > 20
    assert left == [True] * (statements - 1)
    assert complete is True


def test_jobs_of_another_ledger_are_not_overwritten(ledger: Database, postgres_url: str) -> None:
    """Where PostgreSQL holds jobs that the file knows nothing of, nothing is moved."""
    target = Database(postgres_url)
    _fill(target)
    before = _rows(target)

    with pytest.raises(HomeUnusable, match="another ledger"):
        copy_ledger(ledger, target)

    assert _rows(target) == before
    target.close()


def test_a_row_that_does_not_arrive_stops_the_move(
    ledger: Database, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are counted on both sides before the commit."""
    target = Database(postgres_url)
    monkeypatch.setattr(transfer, "_BATCH", 1)
    skipped = sa.insert
    lost: list[sa.Table] = []

    def insert(table: sa.Table) -> Any:
        if table is schema.attempts and not lost:
            lost.append(table)
            return sa.text("SELECT 1")
        return skipped(table)

    monkeypatch.setattr(sa, "insert", insert)

    with pytest.raises(LedgerUnavailable, match="attempts"):
        copy_ledger(ledger, target)

    assert lost == [schema.attempts]
    target.close()


@pytest.fixture(scope="module")
def moving_home() -> Iterator[Home]:
    """Give a home whose PostgreSQL runs, for moves that are repeated."""
    with temporary_home() as home, running(home):
        yield home


def _begin_with_a_file(home: Home) -> None:
    """Put the home back to a SQLite ledger with two jobs and an object in the store."""
    (home.path / "database.json").unlink(missing_ok=True)
    for file in home.path.glob("ledger.db*"):
        file.unlink()
    with running(home) as url:
        target = Database(url)
        if target.exists():
            with target.write() as tx:
                for table in reversed(schema.metadata.sorted_tables):
                    tx.execute(sa.delete(table))
                tx.execute(sa.insert(schema.meta).values(key="epoch", value="none"))
        target.close()
    db = Database(sqlite_url(home.ledger))
    _fill(db)
    db.close()


_STEPS: list[tuple[str, Any, str]] = [
    ("before the copy", move, "copy_ledger"),
    ("before the note", databases, "note_embedded"),
    ("before the file is set aside", move, "_set_aside"),
    ("before its name is durable", move, "sync_folder"),
]


@pytest.mark.parametrize(("when", "module", "function"), _STEPS, ids=[step[0] for step in _STEPS])
def test_a_move_that_was_interrupted_is_completed(
    moving_home: Home, monkeypatch: pytest.MonkeyPatch, when: str, module: Any, function: str
) -> None:
    """Whenever the process dies, every job is there once: before the next call, and after it."""
    home = moving_home
    _begin_with_a_file(home)

    def die(*_arguments: Any) -> None:
        raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, function, die)
        with pytest.raises(_Killed):
            use_embedded(home)
    with open_system(home) as system:
        put_bytes(system.store, b"an export")
        between = _rows(system.db)
    use_embedded(home)
    again = use_embedded(home)
    with open_system(home) as system:
        after, dialect = _rows(system.db), system.db.dialect

    assert between["jobs"] != []
    assert after == between
    assert dialect == "postgresql"
    assert again is False
    assert sorted(path.name for path in home.path.glob("ledger.db*")) == ["ledger.db.moved"]


def test_a_command_that_has_the_ledger_open_is_named_and_waited_for(moving_home: Home) -> None:
    """The move waits with a word, gives up with the command's name, and works once that has ended."""
    home = moving_home
    _begin_with_a_file(home)
    words: list[str] = []
    command = subprocess.Popen(
        [sys.executable, "-c", _OPEN, str(home.path)],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    assert command.stdout.readline() == "open\n"

    with pytest.raises(LedgerUnavailable) as caught:
        use_embedded(home, within=0.1, waiting=words.append)
    untouched = databases.chosen(home).kind
    command.communicate()
    moved = use_embedded(home, within=0.1)

    assert f"process {command.pid} " in caught.value.detail
    assert f"process {command.pid} " in words[0]
    assert untouched == "sqlite"
    assert moved is True


def test_an_empty_database_is_not_taken_for_a_new_ledger(
    moving_home: Home, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With objects in the store, a PostgreSQL without a ledger is an accident, and nothing is begun there."""
    home = moving_home
    with open_system(home) as system:
        put_bytes(system.store, b"an export")
    monkeypatch.setenv("AUTOCODE_DATABASE_URL", postgres_url.replace("+psycopg", ""))

    with pytest.raises(HomeUnusable, match="holds no ledger"), open_system(home):
        pass

    untouched = Database(postgres_url)
    assert untouched.exists() is False
    untouched.close()


def test_the_prefect_server_of_such_a_home_is_on_postgresql(moving_home: Home) -> None:
    """It answers, has its scheduler and its UI, keeps its tables there, and survives a kill of PostgreSQL."""
    home = moving_home
    use_embedded(home)

    with private_server(home) as address:
        login = tuple(address.auth.split(":", 1))
        root = address.url.removesuffix("/api")
        with httpx.Client(auth=(login[0], login[1]), timeout=30.0, trust_env=False) as client:
            made = client.post(f"{address.url}/flows/", json={"name": "one"}).status_code
            services = client.get(f"{address.url}/admin/settings").json()["server"]["services"]
            shown = client.get(f"{root}/ui-settings").json()
            os.kill(pids(home)[1], 9)
            until(lambda: _flows(client, address.url) == ["one"], within=60)
    until(lambda: not locks.is_held(home.run / "server.lock"), within=30)

    assert made == 201
    assert services["scheduler"]["enabled"] is services["event_persister"]["enabled"] is True
    assert shown["api_url"] == address.url
    assert not (home.prefect / "prefect.db").exists()


def _flows(client: httpx.Client, url: str) -> list[str]:
    try:
        answer = client.post(f"{url}/flows/filter", json={})
    except httpx.TransportError:
        # after an answer of 500 the server cuts the connection
        return []
    return [flow["name"] for flow in answer.json()] if answer.status_code == 200 else []


def test_the_dump_is_of_the_newest_schema_of_the_installed_prefect() -> None:
    """The revision in the dump is the head of Prefect's own migrations for PostgreSQL."""
    import prefect.server.database

    folder = Path(prefect.server.database.__file__).parent / "_migrations"
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("version_locations", str(folder / "versions" / "postgresql"))
    config.set_main_option("path_separator", "os")

    head = ScriptDirectory.from_config(config).get_current_head()

    assert f"public.alembic_version VALUES ('{head}')" in prefect_postgresql.text()
