"""One ledger a home: commands use that of the running service, and no second one is begun after it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from autocode.jobs.cli import main as command
from autocode.jobs.engine import databases, serving
from autocode.jobs.engine.databases import VARIABLE, Choice, chosen
from autocode.jobs.errors import HomeUnusable, UsageError
from autocode.jobs.settings import Home

HERS = "postgresql+psycopg://ada:s3cret@db.example/jobs"
OTHER = "postgresql://bob:hunter2@db.example:5433/jobs"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Give a prepared home that the environment names."""
    monkeypatch.setenv("AUTOCODE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(VARIABLE, raising=False)
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture
def service(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """Let a service run on the home whose own environment named a database; close it to stop it."""
    with ExitStack() as stack:
        monkeypatch.setenv(VARIABLE, HERS)
        stack.enter_context(databases.serving(home))
        monkeypatch.delenv(VARIABLE)
        yield stack


def test_a_command_uses_the_ledger_of_the_service(home: Home, service: ExitStack) -> None:
    """A command that was told nothing goes where the service has its ledger, password included."""
    choice = chosen(home, {})

    assert choice == Choice("url", HERS)


@pytest.mark.parametrize(
    "named",
    [
        "postgresql://carol:other@db.example:5432/jobs",
        "postgres://ada@DB.example/jobs",
        "postgresql+asyncpg://ada@db.example/jobs?sslmode=require",
    ],
)
def test_another_account_of_the_same_database_is_kept(home: Home, service: ExitStack, named: str) -> None:
    """Host, port and name tell a database from others: who enters, and how, is the command's affair."""
    choice = chosen(home, {VARIABLE: named})

    assert choice == chosen(Home(home.path / "other"), {VARIABLE: named})


def test_a_command_that_names_another_database_is_refused(home: Home, service: ExitStack) -> None:
    """The error names both databases without their passwords, and says how to go on."""
    with pytest.raises(UsageError) as caught:
        chosen(home, {VARIABLE: OTHER})

    told = caught.value.detail + caught.value.hint
    assert "postgresql://ada:***@db.example/jobs" in told
    assert "postgresql://bob:***@db.example:5433/jobs" in told
    assert f"Unset {VARIABLE}" in told
    assert "s3cret" not in told
    assert "hunter2" not in told


def test_a_service_on_the_homes_own_ledger_is_not_left_either(home: Home) -> None:
    """While it runs, a command that names somebody else's database is refused; others use the home's own."""
    with databases.serving(home):
        with pytest.raises(UsageError, match=r"data folder's own.*bob:\*\*\*@db\.example"):
            chosen(home, {VARIABLE: OTHER})
        choice = chosen(home, {})

    assert choice == Choice("sqlite")
    assert chosen(home, {VARIABLE: OTHER}).kind == "url"


def test_a_second_part_joins_the_ledger_of_the_first(
    home: Home, service: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that was told nothing serves the same, also once the first has left; another one is refused."""
    with databases.serving(home) as choice:
        service.close()
        afterwards = chosen(home, {})
        monkeypatch.setenv(VARIABLE, OTHER)
        with pytest.raises(UsageError), databases.serving(home):
            pass

    assert choice == afterwards == Choice("url", HERS)


def test_the_password_is_for_its_owner_alone_and_goes_with_the_service(
    home: Home, service: ExitStack
) -> None:
    """Only a file of mode 0600 in a folder of mode 0700 has it, and none once the service has stopped."""
    having = [path for path in home.path.rglob("*") if path.is_file() and "s3cret" in path.read_text("utf-8")]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in having}
    folders = {stat.S_IMODE(path.parent.stat().st_mode) for path in having}
    serving.remember(home, HERS)

    service.close()

    assert (len(having), modes, folders) == (1, {0o600}, {0o700})
    assert not [
        path for path in home.path.rglob("*") if path.is_file() and "s3cret" in path.read_text("utf-8")
    ]


def test_what_a_killed_service_left_counts_for_nothing_and_is_swept(home: Home) -> None:
    """A word without a living process behind it is no service; the next one removes it."""
    left = home.run / "serving-dead.json"
    left.write_text('{"pid": 1, "url": "postgresql+psycopg://ada:s3cret@db.example/old"}')
    left.with_suffix(".lock").touch()

    before = chosen(home, {})
    with databases.serving(home):
        pass

    assert before == Choice("sqlite")
    assert not list(home.run.glob("serving-*"))


def test_no_second_ledger_is_begun_after_the_service(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that was told nothing ends with status 2, names the database, and says two ways to go on."""
    serving.remember(home, HERS)

    status = command.run(["jobs", "list"])

    told = capsys.readouterr().err
    assert status == command.USAGE
    assert "was last in postgresql://ada:***@db.example/jobs" in told
    assert f"Set {VARIABLE}" in told
    assert str(home.path / "config.toml") in told
    assert str(home.path / "served.json") in told
    assert not home.ledger.exists()


def test_a_home_remembers_until_it_is_told_otherwise(home: Home) -> None:
    """The database by name is used again, another one too; without the note the home's own ledger is."""
    serving.remember(home, HERS)
    named = [chosen(home, {VARIABLE: url}).url for url in (HERS, HERS.replace("jobs", "others"))]
    serving.memory(home).unlink()

    assert named == [HERS, HERS.replace("jobs", "others")]
    assert chosen(home, {}) == Choice("sqlite")


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_damaged_note_is_told(home: Home, text: str) -> None:
    """What can't be read is named; nothing is begun instead."""
    serving.memory(home).write_text(text)

    with pytest.raises(HomeUnusable, match=r"served\.json"):
        chosen(home, {})


def test_up_starts_no_ledger_of_its_own_beside_parts_that_have_another(
    home: Home, service: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where parts run alone on a database by URL, ``up`` without it is refused and names it."""
    status = command.run(["up", "--port", "0"])

    told = capsys.readouterr().err
    assert status == command.USAGE
    assert "postgresql://ada:***@db.example/jobs" in told
    assert "--database-url" in told
    assert not (home.path / "database.json").exists()


def test_up_starts_no_second_ledger_either(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """A home that was served from a database by URL isn't served from another until somebody says so."""
    serving.remember(home, HERS)

    status = command.run(["up", "--port", "0"])

    assert status == command.USAGE
    assert "was last in postgresql://ada:***@db.example/jobs" in capsys.readouterr().err
    assert not (home.path / "database.json").exists()
