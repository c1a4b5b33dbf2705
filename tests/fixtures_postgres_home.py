"""Fixtures for tests that need a home with a PostgreSQL of its own.

Loaded with ``pytest_plugins = ["fixtures_postgres_home"]``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autocode.jobs.postgres.client import running
from autocode.jobs.settings import Home
from postgres_world import temporary_home


@pytest.fixture
def new_home() -> Iterator[Home]:
    """Give a home of the test's own."""
    with temporary_home() as home:
        yield home


@pytest.fixture(scope="module")
def postgres_home() -> Iterator[tuple[Home, str]]:
    """Give a home whose PostgreSQL runs while the tests of the module do, and the URL of its ledger."""
    with temporary_home() as home, running(home) as url:
        yield home, url
