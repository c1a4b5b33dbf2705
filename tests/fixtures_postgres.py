"""Fixtures for tests that need a PostgreSQL: one server a test process, a fresh database a test.

Loaded with ``pytest_plugins = ["fixtures_postgres"]``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autocode.jobs.testing.postgres import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Run one server for all tests of this process (each xdist worker has its own); fsync is off."""
    with running_postgres(durable=False) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Give the URL of an empty database, and drop the database afterwards."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)
