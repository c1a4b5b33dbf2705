"""What an engine process works with: the home, the ledger and the store, opened once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autocode.jobs.errors import HomeUnusable
from autocode.jobs.ledger.database import Database, sqlite_url
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore, ObjectStore

__all__ = ["System", "current_system", "open_system"]


@dataclass(frozen=True, slots=True)
class System:
    """An opened home."""

    home: Home
    db: Database
    store: ObjectStore


@contextmanager
def open_system(home: Home) -> Iterator[System]:
    """Prepare *home*, open its ledger and store, and close them when the block ends. Idempotent.

    Raises:
        HomeUnusable: the home can't be written, or a newer version wrote it.
        DiskFull: there is no room.
    """
    system = _open(home)
    try:
        yield system
    finally:
        system.db.close()


@cache
def current_system(path: Path) -> System:
    """Return the system of the home at *path*, opened at most once in this process."""
    return _open(Home(path))


def _open(home: Home) -> System:
    home.prepare()
    store = LocalStore(home.store)
    _same_ledger(home, store)
    # SQLite gives its files the mode of the umask; -wal and -shm take that of the database
    home.ledger.touch(mode=0o600)
    db = Database(sqlite_url(home.ledger))
    db.migrate()
    return System(home, db, store)


def _same_ledger(home: Home, store: ObjectStore) -> None:
    """Refuse to begin a new ledger where the store shows that there was one."""
    gone = not home.ledger.exists() or home.ledger.stat().st_size == 0
    # SQLite keeps what isn't in the file yet in its log
    log = home.ledger.with_name(home.ledger.name + "-wal")
    if gone and not (log.exists() and log.stat().st_size) and next(store.list(), None) is not None:
        raise HomeUnusable(
            f"The ledger {home.ledger} is gone or empty, but the store beside it holds objects.",
            hint=f"Put a backup of ledger.db in its place; or move {home.path} away to begin anew.",
        )
