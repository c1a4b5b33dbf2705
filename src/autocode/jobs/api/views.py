"""Views of results, made when somebody asks and kept while there is room: a cache, and nothing more.

Below its folder each view of each artifact has a folder of its own, named by what it is made of: artifact,
view, its revision, this program and the libraries that decide the bytes. ``ready.json`` in it comes last.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import posixpath
import re
import shutil
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from autocode.jobs import __version__
from autocode.jobs.api.content import damage_told
from autocode.jobs.api.files import FileThreads
from autocode.jobs.errors import DiskFull, HomeUnusable, UsageError
from autocode.jobs.request_errors import MemberNotFound, ViewNotReady
from autocode.jobs.settings import has_room, write_durably
from autocode.jobs.store import ObjectStore

__all__ = ["PAGES", "Made", "Views"]

PAGES: Final = {"html": ".html", "markdown": ".md"}
"""The views that are folders of pages, with the ending of a page."""

_BUILDERS: Final = 2
_READY: Final = "ready.json"
_LIBRARIES: Final = ("Pygments", "markdown-it-py", "nh3", "Jinja2")
_KEPT_SECONDS: Final = 7 * 86_400.0
"""How long a view is kept that nobody asks for."""

_USED_SECONDS: Final = 600.0
"""What was asked for within this time is never removed: it may be on its way to somebody."""

_LARGEST_FRONT: Final = 32 << 20
_RETRY_SECONDS: Final = 5
_SANDBOX: Final = "; frame-ancestors 'none'; sandbox allow-scripts allow-same-origin"
"""Without ``allow-same-origin`` a browser would send no cookie along a link from one page to the next, and
nothing is given away by it: of scripts only the view's own run, by their digests."""


@dataclass(frozen=True, slots=True)
class Made:
    """A view that is there.

    Args:
        key: names everything that its bytes depend on.
        place: the file or folder.
        folder: where the file lies that a view begins with, if it has pages.
        front: the name of that file.
        digest: of a view that is one file.
        policy: the policy of its pages.
    """

    key: str
    place: Path
    folder: Path
    front: str
    digest: str | None
    policy: str | None

    def tag(self, page: str = "") -> str:
        """Return the entity tag of the view, or of one of its pages."""
        return f'"{hashlib.sha256(f"{self.key}/{page}".encode()).hexdigest()[:40]}"'

    def page(self, path: str) -> Path:
        """Return where a page of the view lies.

        Raises:
            MemberNotFound: it has no such page.
        """
        parts = path.split("/")
        if path.isprintable() and not {"", ".", ".."}.intersection(parts) and "\\" not in path:
            place = self.place.joinpath(*parts)
            with suppress(OSError):
                if place.is_file() and place.resolve().is_relative_to(self.place.resolve()):
                    return place
        raise MemberNotFound("The view has no such page.", hint="Follow the links of its first page.")


class Views:
    """Makes views of artifacts, each once, and keeps them.

    Args:
        store: where the artifacts are.
        folder: where the views go; made when the first one is.
        room: bytes that they may take.
    """

    def __init__(self, store: ObjectStore, folder: Path, room: int) -> None:
        self._store = store
        self._folder = folder
        self._room = room
        self._builders = FileThreads(_BUILDERS, "view")
        self._making: dict[str, asyncio.Task[Made]] = {}

    def close(self) -> None:
        """Let the threads end once they are free; waits for none."""
        self._builders.close()

    async def get(self, files: FileThreads, view: str, artifact: str, *, seconds: float) -> Made:
        """Return the view *view* of *artifact*; whoever asks meanwhile gets the same.

        Args:
            files: where is looked whether it is there.
            view: its name.
            artifact: the digest of an export.
            seconds: how long to wait for one that has to be made; the making goes on afterwards.

        Raises:
            DiskFull: there is no room; nothing is left behind.
            HomeUnusable: the folder can't be written to.
            ResultDamaged: an object of the artifact is damaged or missing.
            ViewNotReady: it isn't complete after *seconds*.
        """
        key = await files(_key, view, artifact)
        found = await files(self._find, key)
        if found is not None:
            return found
        making = self._making.get(key)
        if making is None:
            making = asyncio.create_task(self._builders(self._make, view, artifact, key))
            self._making[key] = making
            making.add_done_callback(lambda done: self._made(key, done))
        done, _ = await asyncio.wait({making}, timeout=seconds)
        if not done:
            raise ViewNotReady(f"The view {view} is being made.", retry_after=_RETRY_SECONDS)
        return making.result()

    def _made(self, key: str, done: asyncio.Task[Made]) -> None:
        self._making.pop(key, None)
        if not done.cancelled():
            # told to those who wait; where nobody does, to whoever asks next
            done.exception()

    def _find(self, key: str) -> Made | None:
        folder = self._folder / key
        try:
            facts = json.loads((folder / _READY).read_text("utf-8"))
            made = Made(
                key, folder / "made" / facts["name"], folder, facts["front"], facts["digest"], facts["policy"]
            )
            made.place.lstat()
            os.utime(folder)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return made

    def _make(self, view: str, artifact: str, key: str) -> Made:
        # it takes half a second to import, and most services never show one
        from autocode.jobs.operations.views.html.assets import load_assets  # noqa: PLC0415 - see above
        from autocode.jobs.operations.views.registry import view_named  # noqa: PLC0415 - see above

        folder = self._folder / key
        if not has_room(self._folder.parent.parent):
            raise DiskFull("The data folder has no room for a view.")
        try:
            with damage_told():
                (folder / "made").mkdir(mode=0o700, parents=True, exist_ok=True)
                place = view_named(view).write(self._store, artifact, folder / "made", None)
            front = _front(place, folder, view) if view in PAGES else ""
            digest = _digest(place) if place.is_file() else None
            policy = load_assets().policy + _SANDBOX if view == "html" else None
            facts = {"name": place.name, "front": front, "digest": digest, "policy": policy}
            write_durably(folder / _READY, json.dumps(facts).encode())
        except UsageError as error:
            # the artifact is an export, so it is the folder that refuses
            raise HomeUnusable(error.detail, hint=error.hint) from error
        finally:
            self._sweep(key)
        return Made(key, place, folder, front, digest, policy)

    def _sweep(self, but: str) -> None:
        """Remove views that nobody asked for in a while, and the oldest beyond the room for all."""
        now = time.time()
        left = self._room
        with suppress(OSError):
            found = sorted(((_used(each), each) for each in self._folder.iterdir()), reverse=True)
            for used, each in found:
                left -= _size(each)
                busy = each.name == but or each.name in self._making or now - used < _USED_SECONDS
                if not busy and (left < 0 or now - used > _KEPT_SECONDS):
                    shutil.rmtree(each, ignore_errors=True)


def _key(view: str, artifact: str) -> str:
    from autocode.jobs.operations.views.registry import view_named  # noqa: PLC0415 - as above

    facts: list[Any] = [artifact, view, view_named(view).revision, __version__, zlib.ZLIB_RUNTIME_VERSION]
    facts += [version(name) for name in _LIBRARIES]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:40]


def _front(place: Path, folder: Path, view: str) -> str:
    """Write the file that the view begins with at an address above those of its pages; return its name.

    A view of one session begins with that session's page, any other with the index.
    """
    ending = PAGES[view]
    index = f"index{ending}"
    pages = [path for path in sorted(place.rglob(f"*{ending}")) if path != place / index]
    single = len(pages) == 1 and pages[0].stat().st_size <= _LARGEST_FRONT
    first = pages[0] if single else place / index
    text = first.read_text("utf-8")
    base = f"result/{view}/"
    if single:
        # one link leads out of the page of an only session, and it stands before everything that was said
        up = posixpath.relpath(index, first.relative_to(place).parent.as_posix())
        text = text.replace(f'href="{up}"', f'href="{base}{index}"', 1) if view == "html" else text
    else:
        text = _linked(view)(text, base)
    write_durably(folder / f"front{ending}", text.encode("utf-8"))
    return f"front{ending}"


_HREF: Final = re.compile(r'href="(sessions/[A-Za-z0-9._~/-]+\.html)"')
_LINK: Final = re.compile(r"\]\((sessions/[A-Za-z0-9._~/-]+\.md)\)")


def _linked(view: str) -> Callable[[str, str], str]:
    if view == "html":
        return lambda text, base: _HREF.sub(rf'href="{base}\1"', text)
    return lambda text, base: _LINK.sub(rf"]({base}\1)", text)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _used(folder: Path) -> float:
    return folder.stat().st_mtime


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
