"""From the paths of a command line to the folders, and the selections in them, that an export reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export import Source
from autocode.jobs.sessions.discover import discover
from autocode.jobs.sessions.roots import Root, usual_roots

__all__ = ["Place", "Selection", "as_sources", "everything_in", "files_of", "selected_by", "usual_places"]


@dataclass(frozen=True, slots=True)
class Place:
    """A folder where a tool usually keeps its sessions, and how much lies in it."""

    name: str
    path: Path
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class Selection:
    """A folder, and what is selected in it by paths from there; everything where nothing is named."""

    folder: Path
    select: tuple[str, ...] = ()


def usual_places(looked_at: Callable[[int], None] = lambda _files: None) -> list[Place]:
    """Return the tools' usual folders that exist, with the number and size of their files.

    Args:
        looked_at: told the number of files so far, for each of them; may raise to stop.
    """
    places: list[Place] = []
    before = 0
    for root in _roots():
        found = discover(root.path)
        for _ in found:
            looked_at(before + found.files)
        before += found.files
        places.append(Place(root.name, root.path, found.files, found.size))
    return places


def everything_in(places: Iterable[Place]) -> list[Selection]:
    """Return everything in the usual places.

    Raises:
        UsageError: no such place exists, or none has a file in it.
    """
    found = [Selection(place.path.resolve()) for place in places if place.files]
    if not found:
        raise UsageError(
            "No agent's usual folder has files in it.",
            hint="`autocode-jobs doctor` shows where was looked. Name a folder: autocode-jobs export PATH",
        )
    return found


def selected_by(paths: Iterable[Path]) -> list[Selection]:
    """Return what *paths* select; a path inside a tool's usual folder is selected from that folder.

    No session is read and nothing is written here.

    Raises:
        UsageError: a path doesn't exist, is no file or folder, can't be read, or has a name that isn't text.
    """
    roots = [root.path.resolve() for root in _roots()]
    return [_selection(path, roots) for path in paths]


def as_sources(selections: Iterable[Selection], name: Callable[[Path], str]) -> tuple[Source, ...]:
    """Return *selections* as sources of a payload; *name* gives the name of a folder as a root."""
    return tuple(Source(root=name(each.folder), select=each.select) for each in selections)


def files_of(selections: Iterable[Selection]) -> dict[str, Path]:
    """Return the files of *selections* by paths that tell them apart, to be uploaded.

    What can't be read is left out here; the walk's own reasons stay on this machine.
    """
    files: dict[str, Path] = {}
    seen: set[Path] = set()
    for number, each in enumerate(selections):
        before = f"{number}/" if number else ""
        for selected in each.select or ("",):
            walk = discover(each.folder / selected)
            above = selected if walk.root.is_dir() else selected.rpartition("/")[0]
            for candidate in walk:
                if candidate.path not in seen:
                    seen.add(candidate.path)
                    files[f"{before}{above}/{candidate.relative}".replace("//", "/").lstrip("/")] = (
                        candidate.path
                    )
    return files


def _selection(path: Path, roots: Iterable[Path]) -> Selection:
    # says what is wrong with the path, and what it may have meant
    resolved = discover(path).root
    if not os.access(resolved, os.R_OK | (os.X_OK if resolved.is_dir() else 0)):
        raise UsageError(
            f"{path} can't be read: permission denied.",
            hint="Change its permissions, or run this as a user who may read it.",
        )
    for folder in roots:
        if resolved != folder and resolved.is_relative_to(folder):
            return Selection(folder, (_text(resolved.relative_to(folder).as_posix()),))
    if resolved.is_dir():
        return Selection(resolved)
    return Selection(resolved.parent, (_text(resolved.name),))


def _roots() -> list[Root]:
    try:
        home = Path.home()
    except RuntimeError:
        # no HOME and no entry in the list of users: such a user has no usual folders
        return []
    return usual_roots(os.environ, home)


def _text(name: str) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise UsageError(
            f"{shown} isn't valid text, so a job can't name it.",
            hint="Export the folder that it lies in, or rename it.",
        ) from None
    return name
