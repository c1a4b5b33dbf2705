"""From the paths of a command line to the roots and selections of a payload."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autocode.jobs.errors import NoSessions, UsageError
from autocode.jobs.operations.export import Source
from autocode.jobs.sessions.discover import discover
from autocode.jobs.sessions.roots import usual_roots
from autocode.jobs.settings import Home

__all__ = ["Place", "sources_of", "usual_places"]


@dataclass(frozen=True, slots=True)
class Place:
    """A folder where a tool usually keeps its sessions, and how much lies in it."""

    name: str
    path: Path
    files: int
    size: int


def usual_places() -> list[Place]:
    """Return the tools' usual folders that exist, with the number and size of their files."""
    places: list[Place] = []
    for root in usual_roots(os.environ, Path.home()):
        found = discover(root.path)
        for _ in found:
            pass
        places.append(Place(root.name, root.path, found.files, found.size))
    return places


def sources_of(home: Home, paths: Iterable[Path]) -> list[Source]:
    """Return what *paths* select, as roots and paths within them.

    A path inside a known root is named by that root; any other folder becomes a root of this home. Nothing is
    read here. Idempotent: the same paths give the same sources.

    Raises:
        UsageError: a path doesn't exist, is no file or folder, or has a name that isn't text.
    """
    return [_source(home, path) for path in paths]


def all_sources(places: Iterable[Place]) -> list[Source]:
    """Return everything in the usual places.

    Raises:
        NoSessions: no such place exists.
    """
    found = [Source(root=place.name) for place in places if place.files]
    if not found:
        raise NoSessions(
            "No agent's usual folder has files in it.",
            hint="Name a folder: autocode-jobs export PATH. `autocode-jobs doctor` shows where was looked.",
        )
    return found


def _source(home: Home, path: Path) -> Source:
    # says what is wrong with the path, and what it may have meant
    discover(path)
    resolved = path.resolve()
    known = {root.name: root.path.resolve() for root in usual_roots(os.environ, Path.home())}
    for name, folder in known.items():
        if resolved == folder:
            return Source(root=name)
        if resolved.is_relative_to(folder):
            return Source(root=name, select=(_text(resolved.relative_to(folder).as_posix()),))
    if resolved.is_dir():
        return Source(root=home.add_root(Path(_text(str(resolved)))))
    return Source(root=home.add_root(Path(_text(str(resolved.parent)))), select=(_text(resolved.name),))


def _text(name: str) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise UsageError(
            f"{shown} isn't valid text, so a payload can't name it.",
            hint="Export the folder above it, or rename it.",
        ) from None
    return name
