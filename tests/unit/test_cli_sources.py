"""From paths to selections: what a command line means, and what is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autocode.jobs.cli.sources import (
    Place,
    Selection,
    as_sources,
    everything_in,
    files_of,
    selected_by,
    usual_places,
)
from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export import Source


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home folder of a user without any agent."""
    home = tmp_path / "ada"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def test_a_folder_is_selected_whole(user: Path, tmp_path: Path) -> None:
    """A folder that isn't inside an agent's is a root of its own."""
    folder = tmp_path / "some where#%"
    folder.mkdir()

    assert selected_by([folder]) == [Selection(folder)]


def test_a_file_is_selected_in_its_folder(user: Path, tmp_path: Path) -> None:
    """A file names its folder as the root, and itself in it."""
    file = tmp_path / "a session.jsonl"
    file.write_bytes(b"{}")

    assert selected_by([file]) == [Selection(tmp_path, ("a session.jsonl",))]


def test_a_path_inside_a_usual_folder_is_selected_from_there(user: Path) -> None:
    """A project of Claude Code is selected in the folder of all projects."""
    project = user / ".claude" / "projects" / "-home-ada-parser"
    project.mkdir(parents=True)

    assert selected_by([project]) == [Selection(project.parent, ("-home-ada-parser",))]
    assert selected_by([project.parent]) == [Selection(project.parent)]


def test_a_link_means_what_it_leads_to(user: Path, tmp_path: Path) -> None:
    """A symbolic link that is named is followed, so that one folder has one name."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    assert selected_by([tmp_path / "link"]) == [Selection(tmp_path / "real")]


def test_a_missing_path_gets_a_near_match(user: Path, tmp_path: Path) -> None:
    """A typo is answered with what lies there."""
    (tmp_path / "sessions").mkdir()

    with pytest.raises(UsageError) as caught:
        selected_by([tmp_path / "sesions"])

    assert str(tmp_path / "sesions") in caught.value.detail
    assert caught.value.hint == f"Did you mean {tmp_path / 'sessions'}?"


def test_a_device_is_refused(user: Path) -> None:
    """What is neither file nor folder is a mistake of the command line."""
    with pytest.raises(UsageError, match="neither a folder nor a regular file"):
        selected_by([Path("/dev/null")])


def test_a_file_whose_name_is_no_text_is_refused(user: Path, tmp_path: Path) -> None:
    """Such a file can't be named in a payload; its folder can."""
    name = os.fsdecode(b"bad\xff.jsonl")
    (tmp_path / name).write_bytes(b"{}")

    with pytest.raises(UsageError) as caught:
        selected_by([tmp_path / name])

    assert "bad\\xff.jsonl" in caught.value.detail
    assert selected_by([tmp_path]) == [Selection(tmp_path)]


def test_usual_places_come_with_counts_and_sizes(user: Path) -> None:
    """Each usual folder that exists is told with its files and bytes, and the walk is told on the way."""
    project = user / ".claude" / "projects" / "p"
    codex = user / ".codex" / "sessions"
    for folder in (project, codex):
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_bytes(b"12345")
    (project / "b.jsonl").write_bytes(b"1")
    seen: list[int] = []

    places = usual_places(seen.append)

    assert places == [Place("claude-code", project.parent, 2, 6), Place("codex", codex, 1, 5)]
    assert seen == [1, 2, 3]


def test_usual_places_without_files_select_nothing(user: Path) -> None:
    """Empty folders count as none, and none at all is an error that says what to do."""
    empty = Place("codex", user / "codex", 0, 0)
    full = Place("claude-code", user, 3, 10)

    assert everything_in([empty, full]) == [Selection(user)]
    with pytest.raises(UsageError, match="No agent's usual folder has files in it") as caught:
        everything_in([empty])
    assert "autocode-jobs export PATH" in caught.value.hint


def test_selections_become_sources_by_name(user: Path) -> None:
    """A payload names roots; their paths stay at home."""
    selections = [Selection(Path("/a")), Selection(Path("/b"), ("x",))]

    sources = as_sources(selections, lambda folder: f"root-{folder.name}")

    assert sources == (Source(root="root-a"), Source(root="root-b", select=("x",)))


def test_files_to_upload_have_paths_of_their_own(user: Path, tmp_path: Path) -> None:
    """Files of several selections are told apart, and one that was selected twice is there once."""
    for name in ("a/one.jsonl", "a/sub/two.jsonl", "b/one.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")

    found = files_of(
        [
            Selection(tmp_path / "a"),
            Selection(tmp_path / "b", ("one.jsonl",)),
            Selection(tmp_path / "a", ("sub",)),
            Selection(tmp_path, ("b",)),
        ]
    )

    assert found == {
        "one.jsonl": tmp_path / "a/one.jsonl",
        "sub/two.jsonl": tmp_path / "a/sub/two.jsonl",
        "1/one.jsonl": tmp_path / "b/one.jsonl",
    }
    assert files_of([Selection(tmp_path, ("b",))]) == {"b/one.jsonl": tmp_path / "b/one.jsonl"}
