"""Roots: where the tools keep their sessions."""

from __future__ import annotations

from pathlib import Path

from autocode.jobs.sessions.roots import Root, usual_roots


def folder(path: Path) -> Path:
    """Make *path* and return it."""
    path.mkdir(parents=True)
    return path


def test_only_folders_that_exist_are_roots(tmp_path: Path) -> None:
    """A home without any tool has no root, and a file in a folder's place is none."""
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "sessions").write_text("no folder")

    assert usual_roots({}, tmp_path) == []


def test_the_usual_places_are_found_in_a_fixed_order(tmp_path: Path) -> None:
    """Every tool's folders get the tool's name, numbered from the second one on."""
    gemini = folder(tmp_path / ".gemini" / "tmp")
    archived = folder(tmp_path / ".codex" / "archived_sessions")
    sessions = folder(tmp_path / ".codex" / "sessions")
    other = folder(tmp_path / ".config" / "claude" / "projects")
    projects = folder(tmp_path / ".claude" / "projects")

    assert usual_roots({}, tmp_path) == [
        Root("claude-code", projects),
        Root("claude-code-2", other),
        Root("codex", sessions),
        Root("codex-2", archived),
        Root("gemini-cli", gemini),
    ]


def test_variables_move_the_folders_of_the_tools(tmp_path: Path) -> None:
    """CLAUDE_CONFIG_DIR and CODEX_HOME win over the usual place; empty counts as unset, ~ is home."""
    moved = folder(tmp_path / "moved" / "projects")
    folder(tmp_path / ".claude" / "projects")
    codex = folder(tmp_path / "cx" / "sessions")
    environ = {"CLAUDE_CONFIG_DIR": str(tmp_path / "moved"), "CODEX_HOME": "~/cx"}

    assert usual_roots(environ, tmp_path) == [Root("claude-code", moved), Root("codex", codex)]
    assert [root.name for root in usual_roots({"CLAUDE_CONFIG_DIR": ""}, tmp_path)] == ["claude-code"]


def test_a_folder_reached_by_two_names_is_one_root(tmp_path: Path) -> None:
    """A symbolic link between two usual places doesn't double the sessions."""
    projects = folder(tmp_path / ".claude" / "projects")
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config" / "claude").symlink_to(tmp_path / ".claude")

    assert usual_roots({}, tmp_path) == [Root("claude-code", projects)]
