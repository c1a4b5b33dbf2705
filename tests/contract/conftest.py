"""The ledger on each database that it supports: every test that takes ``database`` runs once on each."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autocode.jobs.ledger.database import Database, sqlite_url
from autocode.jobs.testing.postgres import PostgresServer
from fixtures_postgres import postgres_server
from ledger_world import TickingClock, wipe

__all__ = ["postgres_server"]

NewUrl = Callable[[], str]


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SQLite ledger that is migrated and empty, to be copied."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    database = Database(sqlite_url(path))
    database.migrate()
    database.close()
    return path


@pytest.fixture(scope="session")
def free_databases(postgres_server: PostgresServer) -> list[str]:
    """Return the names of migrated PostgreSQL ledgers that no test uses; making one takes half a second."""
    return []


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    """Name the database under test."""
    return str(request.param)


@pytest.fixture
def empty_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give the URL of a database without any table."""
    if dialect == "sqlite":
        yield sqlite_url(tmp_path / "empty.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def new_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewUrl]:
    """Give a maker of migrated, empty ledgers, all dropped after the test."""
    if dialect == "sqlite":
        template: Path = request.getfixturevalue("migrated_file")

        def copy_file() -> str:
            path = tmp_path / f"{secrets.token_hex(8)}.db"
            shutil.copy(template, path)
            return sqlite_url(path)

        yield copy_file
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    free: list[str] = request.getfixturevalue("free_databases")
    used: list[str] = []

    def take_database() -> str:
        name = free.pop() if free else server.create_database()
        used.append(name)
        database = Database(server.url(name))
        database.migrate()
        wipe(database)
        database.close()
        return server.url(name)

    yield take_database
    free.extend(used)


@pytest.fixture
def ledger_url(new_url: NewUrl) -> str:
    """Give the URL of one migrated, empty ledger."""
    return new_url()


@pytest.fixture
def database(ledger_url: str) -> Iterator[Database]:
    """Give one migrated, empty ledger with a clock that ticks a millisecond a look."""
    database = Database(ledger_url, clock=TickingClock())
    yield database
    database.close()
