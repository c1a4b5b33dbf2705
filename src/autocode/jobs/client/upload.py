"""Sending files to a service as a snapshot: what it has from us already isn't sent again."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from autocode.jobs.client.transport import Transport
from autocode.jobs.errors import SourceChanged, SourceUnreadable, UsageError
from autocode.jobs.operations.paths import source_path
from autocode.jobs.operations.snapshots import MOST_MEMBERS
from autocode.jobs.request_errors import DigestMismatch
from autocode.jobs.sessions.discover import discover

__all__ = ["Uploaded", "send_files"]

_BLOCK: Final = 1 << 18
_TRIES: Final = 3
"""How often a file is begun anew that changes while it is sent."""

_FINISH_SECONDS: Final = 120.0
"""How long the service may take to write a large object to the disk after the last byte."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What was sent.

    Args:
        snapshots: the digests to name in a payload; several where there are very many files.
        files: how many files they have.
        bytes: and how many bytes.
        sent: how many of these bytes had to be sent.
        left_out: what could not be read, by reason.
    """

    snapshots: tuple[str, ...]
    files: int
    bytes: int
    sent: int
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Frozen:
    """A file as it was read: this many bytes, with this digest; what is appended later isn't of it."""

    path: Path
    size: int
    digest: str


def send_files(
    transport: Transport,
    source: Path | Mapping[str, Path],
    *,
    session_id: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Uploaded:
    """Upload files, and name them as a snapshot. Idempotent: interrupted, the same call goes on.

    Each file is read twice: for its digest, by which the service says whether it needs the bytes, and to send
    it. What is appended to a file meanwhile isn't sent.

    Args:
        transport: to the service.
        source: a folder, of which every file is sent; or files by the paths that the snapshot gives them.
        session_id: whose session the snapshot belongs to.
        progress: told the bytes done and in all; may raise to stop.

    Raises:
        SourceChanged: a file changes faster than it can be sent.
        SourceUnreadable: a file that was named can't be read.
        UsageError: the folder doesn't exist, or there is no file.
    """
    files, left_out = _listed(source)
    if not files:
        raise UsageError("There is no file to upload.", hint="Name a folder with sessions.")
    total = sum(size for _, size in files.values())
    done = sent = 0

    def tell(count: int) -> None:
        if progress is not None:
            progress(min(done + count, total), total)

    members: list[dict[str, str]] = []
    size = 0
    for name, (path, listed) in files.items():
        try:
            frozen, count = _send(transport, path, tell)
        except SourceUnreadable:
            if isinstance(source, Mapping):
                raise
            left_out["unreadable-file"] += 1
            continue
        members.append({"path": name, "digest": frozen.digest})
        size += frozen.size
        sent += count
        done += listed
        tell(0)
    named = tuple(
        _name(transport, members[start : start + MOST_MEMBERS], session_id)
        for start in range(0, len(members), MOST_MEMBERS)
    )
    return Uploaded(named, len(members), size, sent, dict(sorted(left_out.items())))


def _listed(source: Path | Mapping[str, Path]) -> tuple[dict[str, tuple[Path, int]], Counter[str]]:
    """Return the files with their sizes by the paths that they get, and what was left out."""
    names = _Names()
    if isinstance(source, Mapping):
        sizes = {name: path.stat().st_size if path.is_file() else 0 for name, path in source.items()}
        return {names.take(name): (path, sizes[name]) for name, path in source.items()}, Counter()
    walk = discover(source)
    found = {names.take(each.relative): (each.path, each.size) for each in walk}
    return found, Counter(walk.reasons)


class _Names:
    """Gives each file a path that a snapshot takes; the content decides what is exported, never the path."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def take(self, relative: str) -> str:
        # what stands for a byte that is no text is written with a backslash
        name = relative.replace("\\", "%5C")
        try:
            free = self._is_free(source_path(name))
        except (ValueError, UnicodeEncodeError):
            free = False
        if not free:
            digest = hashlib.sha256(relative.encode("utf-8", "surrogatepass")).hexdigest()
            name = f"renamed/{digest}"
        folded = name.casefold()
        self._files.add(folded)
        self._folders.update(_above(folded))
        return name

    def _is_free(self, name: str) -> bool:
        folded = name.casefold()
        return (
            folded not in self._files
            and folded not in self._folders
            and self._files.isdisjoint(_above(folded))
        )


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _send(transport: Transport, path: Path, tell: Callable[[int], None]) -> tuple[_Frozen, int]:
    """Send a file unless the service has it; return it as it was sent, and how many bytes were."""
    for left in reversed(range(_TRIES)):
        frozen = _freeze(path)
        address = f"/v1/objects/{frozen.digest}"
        # the answer to HEAD has no problem in it: what is wrong, the upload tells
        known = transport.send("HEAD", address, again=True, also=(401, 403, 404))
        if known.status_code == httpx.codes.OK:
            return frozen, 0
        try:
            transport.send(
                "PUT",
                address,
                again=True,
                content=lambda frozen=frozen: _bytes_of(frozen, tell),  # type: ignore[misc]
                headers={"Content-Length": str(frozen.size), "Content-Type": "application/octet-stream"},
                wait=_FINISH_SECONDS,
            )
        except (DigestMismatch, SourceChanged) as error:
            if not left:
                raise SourceChanged(f"{path} changes faster than it can be sent.") from error
        else:
            return frozen, frozen.size
    raise AssertionError("unreachable: the last try returns or raises")


def _freeze(path: Path) -> _Frozen:
    digest = hashlib.sha256()
    size = 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise SourceUnreadable(f"{path} can't be read: {error.strerror or error}.") from error
    return _Frozen(path, size, f"sha256:{digest.hexdigest()}")


def _bytes_of(frozen: _Frozen, tell: Callable[[int], None]) -> Iterator[bytes]:
    left = frozen.size
    with frozen.path.open("rb") as file:
        while left:
            block = file.read(min(_BLOCK, left))
            if not block:
                raise SourceChanged(f"{frozen.path} became shorter while it was sent.")
            left -= len(block)
            yield block
            tell(frozen.size - left)


def _name(transport: Transport, members: list[dict[str, str]], session_id: str | None) -> str:
    body: dict[str, object] = {"members": members}
    if session_id is not None:
        body["session_id"] = session_id
    answer = transport.send("POST", "/v1/snapshots", again=True, json=body, wait=_FINISH_SECONDS)
    return str(answer.json()["digest"])
