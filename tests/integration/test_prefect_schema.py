"""The dump that new homes start with, beside what the installed Prefect makes and takes."""

from __future__ import annotations

import importlib.metadata
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from autocode.jobs.engine import prefect_schema
from autocode.jobs.engine.environment import child_environment
from autocode.jobs.engine.prefect_schema import DATABASE, dump, lay, text
from autocode.jobs.engine.server import private_server
from autocode.jobs.settings import Home

pytest_plugins = ["fixtures_engine"]

VERSION = importlib.metadata.version("prefect")

DOWN_AND_UP = """
import asyncio
from prefect.server.database.dependencies import provide_database_interface

async def main():
    database = provide_database_interface()
    await database.run_migrations_downgrade("-8")
    async with (await database.engine()).connect() as connection:
        print((await connection.exec_driver_sql("SELECT version_num FROM alembic_version")).scalar_one())
    await database.run_migrations_upgrade()

asyncio.run(main())
"""


@pytest.fixture
def home(tmp_path: Path, own_sources: None) -> Home:
    """Give a home in which nothing ran."""
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def tables(home: Home) -> list[str]:
    """Return the tables of Prefect's database in the order in which they were made."""
    with closing(sqlite3.connect(home.prefect / DATABASE)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")
        return [name for (name,) in rows]


def test_the_dump_is_what_the_installed_prefect_migrates_to(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Prefect that the dump isn't of migrates by itself; the installed one comes to the very same."""
    monkeypatch.setattr(prefect_schema, "text", lambda: "-- prefect 0\n")

    with private_server(home):
        pass

    assert tables(home) != sorted(tables(home))
    assert dump(home.prefect / DATABASE, VERSION) == text(), "run make prefect-schema"


def test_a_new_home_starts_from_the_dump(home: Home) -> None:
    """Its tables were made in the order of the dump, which is none that migrations come to."""
    with private_server(home):
        pass

    assert tables(home) == sorted(tables(home)), "run make prefect-schema"
    assert dump(home.prefect / DATABASE, VERSION) == text()


def test_migrations_take_a_database_that_the_dump_made(home: Home) -> None:
    """Prefect's own migrations, undone and done again on it, end where they end on one of their own."""
    lay(home.prefect)

    done = subprocess.run(
        [sys.executable, "-c", DOWN_AND_UP],
        cwd=home.prefect,
        env=child_environment(home),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )

    assert re.fullmatch(r"[0-9a-f]{12}\n", done.stdout)
    assert done.stdout.strip() not in text()
    assert dump(home.prefect / DATABASE, VERSION) == text()
