"""The setting ``kinds``: modules with job kinds of a team's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs import configuration, kinds
from autocode.jobs.errors import UsageError
from autocode.jobs.plugins import load_kinds
from autocode.jobs.settings import Home

TEAM = """
from pydantic import BaseModel
from autocode.jobs.kinds import Kind

class Payload(BaseModel):
    name: str

TIDY = Kind("team-tidy", payload=Payload, flow="tidy.py:tidy")
SORT = ALIAS = Kind("team-sort", payload=Payload, flow="sort.py:sort")
NOTHING = 1
"""


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder with a team's module that can be imported; what it registers is forgotten again."""
    (tmp_path / "team_of_ada.py").write_text(TEAM)
    (tmp_path / "team_of_bob.py").write_text(TEAM)
    (tmp_path / "team_broken.py").write_text("1 / 0")
    (tmp_path / "team_empty.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(kinds, "_REGISTRY", dict(kinds._REGISTRY))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("team_")]:
        del sys.modules[name]


def test_a_module_brings_all_its_kinds_once(team: Path) -> None:
    """Each kind in the module is known afterwards, and loading it again changes nothing."""
    loaded = load_kinds(" team_of_ada ,")

    assert [kind.name for kind in loaded] == ["team-tidy", "team-sort"]
    assert kinds.get("team-sort") is loaded[1]
    assert load_kinds("team_of_ada") == loaded


def test_one_kind_of_a_module_can_be_named(team: Path) -> None:
    """The others stay unknown."""
    assert [kind.name for kind in load_kinds("team_of_ada:TIDY")] == ["team-tidy"]
    assert "team-sort" not in {kind.name for kind in kinds.registered()}


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("team_of_nobody", "ModuleNotFoundError"),
        ("team_broken", "ZeroDivisionError"),
        ("team_empty", "there is no job kind in it"),
        ("team_of_ada:NOTHING", "there is no job kind in it"),
        ("team_of_ada:MISSING", "AttributeError"),
        ("team_of_ada,team_of_bob", "there is a job kind 'team-tidy' already"),
    ],
)
def test_what_brings_no_kind_is_refused(team: Path, names: str, why: str) -> None:
    """The error names the setting, the module and the cause."""
    with pytest.raises(UsageError, match=why) as refused:
        load_kinds(names)

    assert names.rsplit(",", maxsplit=1)[-1] in refused.value.detail


@pytest.mark.parametrize("value", ["team jobs", "team:", ":TIDY", "a/b.py", "a:b:c"])
def test_what_names_no_module_is_refused_as_a_setting(tmp_path: Path, value: str) -> None:
    """It is told what the setting takes."""
    with pytest.raises(UsageError, match="MODULE or MODULE:KIND"):
        configuration.load(Home(tmp_path), environ={"AUTOCODE_KINDS": value})


def test_several_modules_are_one_setting(tmp_path: Path) -> None:
    """Names are separated by commas, with or without blanks."""
    loaded = configuration.load(Home(tmp_path), environ={"AUTOCODE_KINDS": "team.jobs:TIDY, other"})

    assert loaded.values.kinds == "team.jobs:TIDY, other"
