"""Fixtures for tests of the HTTP interface.

Loaded with ``pytest_plugins = ["fixtures_api"]``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from api_world import Api, opened
from autocode.jobs.ledger.database import Database, sqlite_url


@pytest.fixture(scope="session")
def migrated_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SQLite ledger that is migrated and empty, to be copied."""
    path = tmp_path_factory.mktemp("api-template") / "ledger.db"
    database = Database(sqlite_url(path))
    database.migrate()
    database.close()
    return path


@pytest.fixture
def sqlite_ledger(migrated_ledger: Path, tmp_path: Path) -> Iterator[Database]:
    """Give an empty SQLite ledger."""
    database = Database(sqlite_url(Path(shutil.copy(migrated_ledger, tmp_path / "ledger.db"))))
    yield database
    database.close()


@pytest.fixture
def api(sqlite_ledger: Database, tmp_path: Path) -> Iterator[Api]:
    """Give an application over an empty SQLite ledger."""
    with opened(sqlite_ledger, tmp_path) as running:
        yield running
