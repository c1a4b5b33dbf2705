"""Where a home's PostgreSQL has its data and its socket, whoever runs it and however long the path is."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs.errors import HomeUnusable, LedgerUnavailable
from autocode.jobs.postgres import place
from autocode.jobs.postgres.accounts import Account
from autocode.jobs.postgres.place import Place, cluster_of, url_of
from autocode.jobs.settings import Home

_SELF = Account("self", os.geteuid(), os.getegid(), drop=False)
_OTHER = Account("other", 54_321, 54_321, drop=True)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Give a prepared home."""
    home = Home(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder that everybody may enter, and name it as the place for data."""
    with tempfile.TemporaryDirectory(prefix="autocode-") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("AUTOCODE_POSTGRES_FOLDER", str(Path(folder) / "data"))
        yield Path(folder)


def test_an_ordinary_user_has_everything_in_the_home(home: Home) -> None:
    """Nothing is noted but the name, so that a home that is moved still finds its data."""
    chosen = place._new_place(home, _SELF)

    assert chosen == Place(chosen.name)
    assert chosen.folder_in(home) == home.path / "postgres" / "cluster"


def test_data_of_a_closed_home_lie_where_the_account_can_enter(home: Home, open_folder: Path) -> None:
    """Where another account runs PostgreSQL and can't enter the home, a folder of its own is chosen."""
    chosen = place._new_place(home, _OTHER)

    assert chosen.folder_in(home) == open_folder / "data" / chosen.name
    assert stat.S_IMODE((open_folder / "data").stat().st_mode) == 0o755


def test_two_homes_never_share_a_folder(home: Home, open_folder: Path) -> None:
    """A home that is made anew at the same path doesn't get the data of the old one."""
    folders = {place._new_place(home, _OTHER).folder_in(home) for _ in range(2)}

    assert len(folders) == 2


def test_a_folder_that_others_may_write_to_is_refused(home: Home, open_folder: Path) -> None:
    """Whoever can write there could put other data in our data's place."""
    (open_folder / "data").mkdir()
    (open_folder / "data").chmod(0o777)

    with pytest.raises(HomeUnusable, match="others may write there") as caught:
        place._new_place(home, _OTHER)

    assert "AUTOCODE_POSTGRES_FOLDER" in caught.value.hint


def test_a_path_too_long_for_a_socket_gets_a_short_one(home: Home) -> None:
    """The short folder is closed, noted, and found again; also after somebody's sweep removed it."""
    deep = Home(home.path / ("long-" * 20))
    deep.prepare()
    (deep.path / "postgres").mkdir()

    first = place._with_socket(deep, Place("autocode-test"), _SELF)
    socket = first.socket_in(deep)
    socket.rmdir()
    second = place._with_socket(deep, first, _SELF)
    mode = stat.S_IMODE(socket.stat().st_mode)
    noted = place._noted(deep)
    socket.rmdir()

    assert first == second == noted
    assert len(os.fsencode(socket)) < 90
    assert mode == 0o700


def test_a_socket_folder_that_somebody_else_made_is_not_used(home: Home, tmp_path: Path) -> None:
    """A link, or a folder that others may enter, in the place of a folder that was swept isn't ours."""
    (home.path / "postgres").mkdir()
    link, opened = tmp_path / "link", tmp_path / "open"
    opened.mkdir()
    opened.chmod(0o755)
    link.symlink_to(tmp_path)

    assert place._closed_folder(link, _SELF) is False
    assert place._closed_folder(opened, _SELF) is False


def test_data_that_are_gone_are_a_loss_and_no_beginning(home: Home) -> None:
    """Once the data folder was complete, its absence is told, and no empty one is put in its place."""
    (home.path / "postgres").mkdir()
    place._note(home, Place("autocode-test", made=True))

    with pytest.raises(HomeUnusable, match="is gone"):
        cluster_of(home)

    assert not (home.path / "postgres" / "cluster").exists()


def test_a_damaged_note_is_told(home: Home) -> None:
    """A note that can't be read names its file, and isn't written anew."""
    (home.path / "postgres").mkdir()
    (home.path / "postgres" / "place.json").write_text("{")

    with pytest.raises(LedgerUnavailable, match=r"place\.json"):
        cluster_of(home)

    assert (home.path / "postgres" / "place.json").read_text() == "{"


def test_the_address_is_known_without_a_server(home: Home) -> None:
    """Before the first start there is none; after it, note and password make the URL."""
    before = url_of(home)
    (home.path / "postgres").mkdir()
    place._note(home, Place("autocode-test", socket="/run/short folder"))
    password = place._password(home)

    url = url_of(home, "prefect", driver="asyncpg")

    assert before is None
    assert url == (
        f"postgresql+asyncpg://autocode:{password}@/prefect?host=%2Frun%2Fshort%20folder&port=5432"
    )
    assert place._password(home) == password
    assert json.loads((home.path / "postgres" / "place.json").read_text())["name"] == "autocode-test"
