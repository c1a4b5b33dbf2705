"""Which database a home's ledger is in, and what is said when that can't be told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autocode.jobs import locks
from autocode.jobs.engine import databases
from autocode.jobs.engine.databases import Choice, chosen
from autocode.jobs.engine.environment import child_environment
from autocode.jobs.engine.system import open_system, use_embedded
from autocode.jobs.errors import HomeUnusable, UsageError
from autocode.jobs.settings import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Give a prepared home."""
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.mark.parametrize(
    "named",
    [
        "postgresql://me:p%40ss@host:5433/ledger",
        "postgres://me:p%40ss@host:5433/ledger",
        "postgresql+asyncpg://me:p%40ss@host:5433/ledger",
        "postgresql+psycopg://me:p%40ss@host:5433/ledger",
    ],
)
def test_the_environment_comes_first_with_any_driver(home: Home, named: str) -> None:
    """A plain URL, as every tool takes it, gets the driver that the ledger uses; the home isn't asked."""
    databases.note_embedded(home)

    choice = chosen(home, {"AUTOCODE_DATABASE_URL": named})

    assert choice == Choice("url", "postgresql+psycopg://me:p%40ss@host:5433/ledger")


@pytest.mark.parametrize(
    "named", ["secret", "mysql://me:secret@host/x", "postgresql://me:secret@host:port/x"]
)
def test_another_kind_of_address_is_refused_without_its_password(home: Home, named: str) -> None:
    """What isn't the URL of a PostgreSQL is told by the variable's name, with the right form as the hint."""
    with pytest.raises(UsageError) as caught:
        chosen(home, {"AUTOCODE_DATABASE_URL": named})

    assert "AUTOCODE_DATABASE_URL" in caught.value.detail
    assert "secret" not in caught.value.detail
    assert "postgresql://" in caught.value.hint


def test_without_a_word_the_ledger_is_a_file_and_with_one_it_is_postgresql(home: Home) -> None:
    """A home that says nothing has a SQLite ledger."""
    before = chosen(home, {})
    databases.note_embedded(home)

    after = chosen(home, {})

    assert (before, after) == (Choice("sqlite"), Choice("embedded"))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"kind": "oracle"}', '{"kind": ["embedded"]}'])
def test_a_home_whose_word_cannot_be_read_is_not_opened(home: Home, text: str) -> None:
    """Nothing is begun in the wrong database: the error names the file."""
    (home.path / "database.json").write_text(text)

    with pytest.raises(HomeUnusable, match=r"database\.json"), open_system(home):
        pass

    assert not home.ledger.exists()


def test_a_new_home_gets_the_word_and_nothing_else(home: Home) -> None:
    """Where there is no ledger, nothing is moved and nothing started."""
    first, second = use_embedded(home), use_embedded(home)

    assert (first, second) == (True, False)
    assert chosen(home, {}) == Choice("embedded")
    assert not (home.path / "postgres").exists()


def test_a_ledger_that_was_moved_is_missed(home: Home) -> None:
    """When the word that it is in PostgreSQL is gone, no new file is begun; the hint says how to mend it."""
    databases.moved_ledger(home).write_bytes(b"everything")

    with pytest.raises(HomeUnusable) as caught, open_system(home):
        pass

    assert '{"kind": "embedded"}' in caught.value.hint
    assert not home.ledger.exists()


def test_who_holds_a_lock_is_known(tmp_path: Path) -> None:
    """A shared lock names its holders too, which the file itself doesn't."""
    path = tmp_path / "some.lock"

    with locks.shared(path, within=1.0):
        held = locks.holders(path)

    assert held == [os.getpid()]
    assert locks.holders(path) == []
    assert locks.holders(tmp_path / "none.lock") == []


def test_prefect_has_its_services_where_postgresql_has_its_tables(home: Home) -> None:
    """With SQLite the server runs the least it can; with PostgreSQL it runs everything, the UI included."""
    with_file = child_environment(home)
    databases.note_embedded(home)

    with_postgresql = child_environment(home)

    scheduler = "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED"
    assert (with_file[scheduler], with_file["PREFECT_UI_ENABLED"]) == ("false", "false")
    assert scheduler not in with_postgresql
    assert with_postgresql["PREFECT_UI_ENABLED"] == "true"
    assert "sqlite" not in "".join(with_postgresql.values())
