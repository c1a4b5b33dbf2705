"""What earlier scans read, so that a file which nobody has touched since needn't be read again.

A file counts as untouched while device, inode, size, mtime and ctime are those under which it was read, and
its ctime was two minutes old when that scan began. The second half is what git calls racily clean: a file
that is written twice within a tick of its file system's clock has one ctime for two contents, and only a
ctime that was over before the first byte was read belongs to one. What is trusted: ``docs/decisions/0013``.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote_from_bytes

from autocode.jobs._version import __version__
from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.operations.export.payload import FilePart, FoundFile
from autocode.jobs.operations.export.seen_file import SeenFile, today
from autocode.jobs.sessions import HEAD_BYTES, PART, READERS
from autocode.jobs.sessions.discover import Candidate

__all__ = ["Moment", "Seen", "Stamp", "clock_of", "forget", "stamp_of"]

_FILE: Final = "scan.db"

_RULES: Final = 1
"""Raise it when the same bytes get another label, reader or cut though no reader's revision grew."""

_SETTLED: Final = 120_000_000_000
"""Nanoseconds that a ctime must be old.

A tick of a clock has some milliseconds, of a bad one two seconds. But a store through a memory map leaves the
ctime alone while the page waits to be written, half a minute by Linux' default, and a long ``write`` has the
ctime of its begin.
"""

_SETTLED_ELSEWHERE: Final = 3600 * 1_000_000_000
"""The same on other devices than the cache's: their clock may be another machine's, and isn't known."""

_COARSE: Final = 10_000_000
"""A ctime that is a multiple of this may come from a clock of seconds, and is never old enough."""

_FLUSH_SECONDS: Final = 1.0


class Moment(NamedTuple):
    """A moment by the clock of a file system.

    Args:
        device: the device that the file system is on.
        ns: nanoseconds since the epoch.
    """

    device: int
    ns: int


class Stamp(NamedTuple):
    """What a file system says of a file: as long as all of it stays, so does the content."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    def is_settled(self, began: Moment) -> bool:
        """Say whether a write after *began* is bound to give another stamp."""
        margin = _SETTLED if self.device == began.device else _SETTLED_ELSEWHERE
        return bool(self.inode and self.ctime_ns % _COARSE) and self.ctime_ns + margin <= began.ns


def stamp_of(facts: os.stat_result) -> Stamp:
    """Return the stamp in *facts*."""
    return Stamp(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def clock_of(folder: Path) -> Moment:
    """Return what time it is for the file system of *folder*, by a file that is made there and vanishes.

    Raises:
        OSError: no file can be made there.
    """
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        facts = os.fstat(file.fileno())
    return Moment(facts.st_dev, facts.st_ctime_ns)


class Seen:
    """The memory of one scan, which begins when this is made. For threads; never raises nor waits long.

    Args:
        folder: where the file is kept, made if it is missing; ``None``: nothing is known, nothing is kept.
        rehash: know nothing, but keep what is read now.
        clock: gives the moment at which the scan begins.
    """

    def __init__(
        self, folder: Path | None, *, rehash: bool = False, clock: Callable[[Path], Moment] = clock_of
    ) -> None:
        self._rehash = rehash
        self._rules = _rules()
        self._lock = threading.Lock()
        self._new: dict[bytes, bytes] = {}
        self._due = time.monotonic() + _FLUSH_SECONDS
        self._file: SeenFile | None = None
        if folder is None:
            return
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            self._began = clock(folder)
            self._file = SeenFile(folder / _FILE)

    def __enter__(self) -> Self:
        """Give this memory."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is new, also after an error, and close the file."""
        if self._file is not None:
            self._flush()
            self._file.close()

    def recall(self, candidate: Candidate) -> FoundFile | None:
        """Return *candidate* as an earlier scan froze it, if nobody has touched it since."""
        if self._file is None or self._rehash:
            return None
        path = os.fsencode(candidate.path)
        row = self._file.get(path)
        if row is None:
            return None
        value, day = row
        with suppress(OSError, ValueError, TypeError, KeyError):
            facts = os.lstat(path)
            known = json.loads(value)
            # a scan that began later than now began under another clock
            if not stat.S_ISREG(facts.st_mode) or known["began"] > self._began.ns:
                return None
            if known["rules"] != self._rules or known["stamp"] != list(stamp_of(facts)):
                return None
            found = _found(known["file"], candidate, facts.st_size)
            if day != today():
                self._later(path, value)
            return found
        return None

    def keep(self, found: FoundFile, candidate: Candidate, stamp: Stamp | None) -> None:
        """Remember what *candidate* was *found* to be, if *stamp* tells that from all that may come.

        Args:
            found: what it was found to be.
            candidate: where it was found.
            stamp: the file's, the same before its first byte was read and after its last; ``None`` where it
                changed meanwhile.
        """
        if self._file is None or stamp is None or not stamp.is_settled(self._began):
            return
        known = {
            "rules": self._rules,
            "began": self._began.ns,
            "stamp": list(stamp),
            "file": found.model_dump(mode="json", exclude={"path", "name", "size"}),
        }
        self._later(os.fsencode(candidate.path), canonical_json(known))

    def _later(self, path: bytes, value: bytes) -> None:
        with self._lock:
            self._new[path] = value
            is_due = time.monotonic() > self._due
        if is_due:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            new, self._new = self._new, {}
            self._due = time.monotonic() + _FLUSH_SECONDS
        if self._file is not None:
            self._file.put(new)


def forget(folder: Path | None, path: bytes) -> None:
    """Forget the file at *path*, which isn't what it was taken for. Idempotent; never raises."""
    with suppress(OSError):
        if folder is not None and (folder / _FILE).exists():
            file = SeenFile(folder / _FILE)
            file.drop(path)
            file.close()


def _found(known: dict[str, Any], candidate: Candidate, size: int) -> FoundFile:
    return FoundFile(
        path=quote_from_bytes(os.fsencode(candidate.path)),
        name=candidate.relative,
        size=size,
        sha256=known["sha256"],
        reader=known["reader"],
        revision=known["revision"],
        label=known["label"],
        parts=tuple(FilePart(**part) for part in known["parts"]),
    )


def _rules() -> str:
    """Return the digest of all that decides what a file is found to be, beside its bytes."""
    readers = [[reader.name, reader.revision, reader.in_parts] for reader in READERS]
    return digest_of(canonical_json([_RULES, __version__, HEAD_BYTES, PART, readers]))
