"""``autocode-jobs doctor``: where the ledger is, which service runs, and whose data nobody needs."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from autocode.jobs import locks
from autocode.jobs.cli import main as command
from autocode.jobs.engine import serving
from autocode.jobs.postgres.orphans import orphans
from autocode.jobs.service.single import announce, only_supervisor
from autocode.jobs.settings import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Give a prepared home that the environment names, on a machine where homes' data lie apart."""
    monkeypatch.setenv("AUTOCODE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AUTOCODE_POSTGRES_FOLDER", str(tmp_path / "apart"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def data_of(home: Home, name: str, folder: Path, *, noted: bool = True) -> Path:
    """Make the folder of a home's data, and the home's note of it."""
    made = folder / name
    made.mkdir(parents=True)
    (made / "home").write_text(f"{home.path}\n")
    if noted:
        (home.path / "postgres").mkdir(parents=True)
        (home.path / "postgres" / "place.json").write_text(json.dumps({"name": name, "folder": str(made)}))
    return made


def doctor(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what the command prints."""
    assert command.run(["doctor"]) == 0
    return capsys.readouterr().out


def test_it_says_where_the_ledger_is_and_that_no_service_runs(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """The database is named, and how to start a service."""
    told = doctor(capsys)

    assert f"the ledger is in {home.ledger}" in told
    assert "no service runs on this data folder (autocode-jobs up starts one)" in told


def test_it_says_where_the_service_answers(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """The process, the address of the API and that of the Prefect UI are named."""
    with only_supervisor(home):
        waiting = doctor(capsys)
        announce(home, url="http://127.0.0.1:4280", prefect_url="http://127.0.0.1:4200/api")
        ready = doctor(capsys)

    assert "its API doesn't answer yet" in waiting
    assert "a service runs on this data folder, as process" in ready
    assert "its API is at http://127.0.0.1:4280 " in ready
    assert "its Prefect UI is at http://127.0.0.1:4200\n" in ready


def test_it_says_which_parts_run_alone(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Parts that no supervisor started are named."""
    with locks.owned(home.run / "reconcile.lock", within=1), locks.owned(home.run / "api.lock", within=1):
        told = doctor(capsys)

    assert "parts of a service run on this data folder: api, reconcile" in told


def test_a_database_that_is_not_named_any_more_is_a_failure(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the ledger was is told without the password, with what to do; the status is 1."""
    serving.remember(home, "postgresql+psycopg://ada:s3cret@db.example/jobs")

    status = command.run(["doctor"])

    told = capsys.readouterr().out
    assert status == 1
    assert "was last in postgresql://ada:***@db.example/jobs" in told
    assert "next: Set AUTOCODE_DATABASE_URL" in told


def test_data_of_a_home_that_is_gone_are_named_with_what_to_do(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An orphan is told with the home that it had and the command that removes it; others aren't told."""
    data_of(home, "autocode-1", tmp_path / "apart")
    left = data_of(Home(tmp_path / "gone"), "autocode-2", tmp_path / "apart", noted=False)

    told = doctor(capsys)

    assert f"{left} has the PostgreSQL data of {tmp_path / 'gone'}" in told
    assert f"rm -r {left}" in told
    assert "autocode-1" not in told


def test_what_a_home_may_still_need_is_no_orphan(home: Home, tmp_path: Path) -> None:
    """A folder is left alone while a keeper uses it, and when this home took it along to another path."""
    apart = tmp_path / "apart"
    moved = data_of(home, "autocode-moved", apart)
    (moved / "home").write_text(f"{tmp_path / 'before'}\n")
    used = data_of(Home(tmp_path / "gone"), "autocode-used", apart, noted=False)
    older = data_of(Home(tmp_path / "again"), "autocode-older", apart, noted=False)
    data_of(Home(tmp_path / "again"), "autocode-again", apart)

    keeper = os.open(used, os.O_RDONLY)
    fcntl.flock(keeper, fcntl.LOCK_EX)
    meanwhile = [each.folder for each in orphans(home)]
    os.close(keeper)
    afterwards = [each.folder for each in orphans(home)]

    assert meanwhile == [older]
    assert afterwards == [older, used]
