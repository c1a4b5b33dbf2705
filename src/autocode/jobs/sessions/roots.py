"""Roots: the folders, known by name, in which the tools keep their sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Root", "usual_roots"]


@dataclass(frozen=True, slots=True)
class Root:
    """A folder with sessions.

    Args:
        name: what payloads call it; a tool's name, with ``-2``, ``-3`` where a tool has several folders.
        path: the folder, absolute.
    """

    name: str
    path: Path


def usual_roots(environ: Mapping[str, str], home: Path) -> list[Root]:
    """Return the folders that exist among those in which the known tools keep sessions.

    Names follow the fixed order in which the places are looked at, so a name means the same folder for as
    long as the earlier ones stay. A folder that can't be looked at counts as absent; one that
    is reached by two names is given once.

    Args:
        environ: the environment; ``CLAUDE_CONFIG_DIR`` and ``CODEX_HOME`` move the tools' folders, an
            empty value counts as unset, and ``~`` means *home*.
        home: the user's home folder.
    """
    claude = _folder(environ.get("CLAUDE_CONFIG_DIR", ""), home, ".claude")
    codex = _folder(environ.get("CODEX_HOME", ""), home, ".codex")
    places = {
        "claude-code": [claude / "projects", home / ".config" / "claude" / "projects"],
        "codex": [codex / "sessions", codex / "archived_sessions"],
        "gemini-cli": [home / ".gemini" / "tmp"],
    }
    return [
        Root(name if number == 1 else f"{name}-{number}", path)
        for name, paths in places.items()
        for number, path in enumerate(_existing(paths), start=1)
    ]


def _folder(value: str, home: Path, default: str) -> Path:
    if not value:
        return home / default
    if value == "~" or value.startswith("~/"):
        return home / value[2:]
    # A relative value is relative to the folder that the tool was started in; home is the best guess left.
    return home / value


def _existing(paths: Iterable[Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for path in paths:
        try:
            if path.is_dir():
                found.setdefault(path.resolve(), path)
        except (OSError, RuntimeError, ValueError):
            continue
    return list(found.values())
