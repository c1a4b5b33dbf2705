"""The file behind :mod:`~autocode.jobs.operations.export.seen`: values by path.

It is a cache. Whatever is wrong with it (no room, no permission, damage, a lock that somebody holds, a newer
version) costs reading sources again, and nobody is told.
"""

from __future__ import annotations

import hashlib
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

__all__ = ["SeenFile", "today"]

T = TypeVar("T")

_FORMAT: Final = 1
"""Version of the file's layout; one with a higher number is left alone, one with a lower is begun anew."""

_LOCK_SECONDS: Final = 0.2
"""How long another export may hold the file; it holds it for milliseconds."""

_DAYS: Final = 90
"""A file that no scan has met for so long is forgotten."""

_MOST: Final = 500_000
"""Rows that are kept; about 200 MB."""

_SUM_BYTES: Final = 16

_ENDINGS: Final = ("", "-journal", "-wal", "-shm")
"""Of the files that SQLite opens."""

_NO_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOLFS,
    }
)
"""Errors after which the file may be as good as ever; all others say that its content is."""


class SeenFile:
    """Values by path, with the day on which each was last used. Safe for threads and for several processes.

    No call raises or waits for more than a moment. After trouble that may pass, it does nothing any more; a
    damaged file is replaced by an empty one, once.

    Args:
        path: where the file is, or will be; its folder is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._may_replace = True
        self._is_changed = False
        self._open()

    def get(self, path: bytes) -> tuple[bytes, int] | None:
        """Return value and day of *path*, or ``None`` where no sound row is known."""
        rows = self._try(
            lambda db: db.execute("SELECT sum, value, day FROM seen WHERE path = ?", (path,)).fetchall()
        )
        for checksum, value, day in rows or ():
            if isinstance(value, bytes) and isinstance(day, int) and checksum == _sum(path, value):
                return value, day
        return None

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Remember *values* as used today. Atomic."""
        day = today()
        rows = [(path, _sum(path, value), value, day) for path, value in values.items()]

        def write(db: sqlite3.Connection) -> None:
            with _transaction(db):
                db.executemany(
                    "INSERT OR REPLACE INTO seen (path, sum, value, day) VALUES (?, ?, ?, ?)", rows
                )
            self._is_changed = True

        if rows:
            self._try(write)

    def drop(self, path: bytes) -> None:
        """Forget *path*. Idempotent, atomic."""
        self._try(lambda db: db.execute("DELETE FROM seen WHERE path = ?", (path,)))

    def close(self) -> None:
        """Drop what is too old or too much, if anything was written, and close the file. Idempotent."""
        if self._is_changed:
            self._try(_prune)
        with self._lock:
            self._let_go()

    def _open(self) -> None:
        if not all(_is_plain(self._path.with_name(self._path.name + end)) for end in _ENDINGS):
            return
        try:
            db = sqlite3.connect(
                self._path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error:
            return
        self._db = db
        self._try(self._prepare)

    def _prepare(self, db: sqlite3.Connection) -> None:
        # nothing waits for the disk: what a power cut leaves is checked row by row
        db.execute("PRAGMA synchronous = OFF")
        version = _version(db)
        if version < _FORMAT:
            with _transaction(db):
                # another export may have been here first
                if _version(db) < _FORMAT:
                    db.execute("DROP TABLE IF EXISTS seen")
                    db.execute("CREATE TABLE seen (path BLOB PRIMARY KEY, sum BLOB, value BLOB, day INTEGER)")
                    db.execute(f"PRAGMA user_version = {_FORMAT}")
        elif version > _FORMAT:
            self._let_go()

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        with self._lock:
            if self._db is None:
                return None
            try:
                return work(self._db)
            except Exception as error:  # noqa: BLE001 - sqlite3 meets damage with a UnicodeDecodeError, too
                self._let_go()
                # the code of an error that Python itself raises is missing
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF
            if code in _NO_DAMAGE or not self._may_replace:
                return None
            self._may_replace = False
            self._remove()
        self._open()
        return None

    def _let_go(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _remove(self) -> None:
        # the journal first: one without its database would be played back into the next
        for name in (f"{self._path.name}-journal", self._path.name):
            with suppress(OSError):
                self._path.with_name(name).unlink()


def _is_plain(path: Path) -> bool:
    """Say whether SQLite may open *path*: it would wait for ever for somebody at the other end of a pipe."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def today() -> int:
    """Return the number of this day."""
    return int(time.time()) // 86_400


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    yield
    # not reached after an error: the connection is closed then, which rolls back
    db.execute("COMMIT")


def _prune(db: sqlite3.Connection) -> None:
    day = today()
    with _transaction(db):
        # a day to come was written under a clock that was wrong
        db.execute("DELETE FROM seen WHERE day NOT BETWEEN ? AND ?", (day - _DAYS, day + 1))
        excess = db.execute("SELECT count(*) FROM seen").fetchone()[0] - _MOST
        if excess > 0:
            db.execute(
                "DELETE FROM seen WHERE path IN (SELECT path FROM seen ORDER BY day LIMIT ?)", (excess,)
            )


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def _sum(path: bytes, value: bytes) -> bytes:
    checksum = hashlib.blake2b(len(path).to_bytes(8, "big"), digest_size=_SUM_BYTES)
    checksum.update(path)
    checksum.update(value)
    return checksum.digest()
