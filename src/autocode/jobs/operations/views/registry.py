"""Every view of an export by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export.views import Progress, bag_name, write_folder, write_zip
from autocode.jobs.operations.views.html import write_html
from autocode.jobs.operations.views.markdown import write_markdown
from autocode.jobs.operations.views.sqlite import DATABASE, write_sqlite
from autocode.jobs.store import ObjectStore

__all__ = ["VIEWS", "View", "Writer", "view_named"]

Writer = Callable[[ObjectStore, str, Path, Progress | None], Path]
"""Writes the view of an artifact below an existing folder, and returns the file or folder that it made.

Given the store, the artifact's digest, the folder, and whom to tell the bytes done and in all. What every
writer keeps: the result appears whole or not at all, replaces nothing, and is the same for the same artifact;
what is there already and is the same is returned as it is.
"""


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at an export.

    Args:
        name: what ``--as`` calls it.
        summary: what one gets, in a few words.
        write: makes it.
        opens: the file to open, seen from what was made; empty where that is the thing itself.
        checkable: whether ``sha256sum -c manifest-sha256.txt`` proves it.
        revision: raised when a changed program makes other bytes of the same artifact.
    """

    name: str
    summary: str
    write: Writer
    opens: str = ""
    checkable: bool = False
    revision: int = 1


def _folder(store: ObjectStore, digest: str, parent: Path, progress: Progress | None) -> Path:
    return write_folder(store, digest, parent, progress=progress)


def _zip(store: ObjectStore, digest: str, parent: Path, progress: Progress | None) -> Path:
    return write_zip(store, digest, parent / f"{bag_name(digest)}.zip", progress=progress)


def _sqlite(store: ObjectStore, digest: str, parent: Path, progress: Progress | None) -> Path:
    return write_sqlite(store, digest, parent, progress=progress)


_ALL: Final = (
    View("folder", "the bundle, checkable with sha256sum", _folder, checkable=True),
    View("zip", "the bundle in one .zip file", _zip, checkable=True),
    View("html", "offline pages to read in a browser", write_html, opens="index.html"),
    View("markdown", "a Markdown file a session, with an index", write_markdown, opens="index.md"),
    View("sqlite", "tables in a SQLite file, ready for datasette", _sqlite, opens=DATABASE),
)

VIEWS: Final[Mapping[str, View]] = MappingProxyType({view.name: view for view in _ALL})
"""Every view by its name, in the order in which they are shown."""


def view_named(name: str) -> View:
    """Return the view *name*.

    Raises:
        UsageError: there is none of that name.
    """
    view = VIEWS.get(name)
    if view is None:
        raise UsageError(f"There is no view {name!r}.", hint=f"The views are: {', '.join(VIEWS)}.")
    return view
