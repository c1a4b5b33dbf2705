"""What an engine process works with: the home, the ledger and the store, opened once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from autocode.jobs import locks
from autocode.jobs.engine import databases
from autocode.jobs.engine.databases import Choice, ledger_lock
from autocode.jobs.engine.move import use_embedded
from autocode.jobs.engine.serving import remember
from autocode.jobs.errors import HomeUnusable, LedgerUnavailable
from autocode.jobs.ledger.database import Database
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore, ObjectStore

__all__ = ["System", "current_system", "open_system", "use_embedded"]

_opening: Final = threading.Lock()

_MOVE_SECONDS: Final = 600.0
"""How long to wait for the end of a move of the ledger."""


@dataclass(frozen=True, slots=True)
class System:
    """An opened home."""

    home: Home
    db: Database
    store: ObjectStore


@contextmanager
def open_system(home: Home) -> Iterator[System]:
    """Prepare *home*, open its ledger and store, and close them when the block ends. Idempotent.

    The ledger is where :func:`databases.chosen` says; it can't be moved within the block. The home's own
    PostgreSQL is started if nobody has, and kept alive. A home that has no ledger of its own remembers the
    database of somebody else's that holds it, so that no later command begins a second one.

    Raises:
        HomeUnusable: the home can't be written, or a newer version wrote it.
        LedgerUnavailable: the ledger's database doesn't answer.
        DiskFull: there is no room.
        UsageError: ``AUTOCODE_DATABASE_URL`` names no PostgreSQL, or not the one that it has to.
    """
    home.prepare()
    with ExitStack() as stack:
        try:
            stack.enter_context(locks.shared(ledger_lock(home), within=_MOVE_SECONDS))
        except TimeoutError as error:
            raise LedgerUnavailable(
                "The ledger is being moved to PostgreSQL by another command.",
                hint="Try again when it has ended.",
            ) from error
        # read under the lock: it can't change any more
        choice = databases.chosen(home)
        store = LocalStore(home.store)
        if choice.kind == "sqlite":
            _same_file(home, store)
        db = stack.enter_context(databases.opened(home, choice))
        if choice.kind != "sqlite":
            _same_database(home, db, choice, store)
        db.migrate()
        if choice.kind == "url" and not _has_own(home):
            remember(home, choice.url)
        yield System(home, db, store)


def current_system(path: Path) -> System:
    """Return the system of the home at *path*, opened at most once in this process and closed with it.

    Whoever asks while another thread opens it waits for that one.
    """
    with _opening:
        return _held(path)[0]


@cache
def _held(path: Path) -> tuple[System, ExitStack]:
    # the stack is kept: what isn't reachable any more is closed
    stack = ExitStack()
    return stack.enter_context(open_system(Home(path))), stack


def _has_own(home: Home) -> bool:
    return home.ledger.exists() or databases.own(home).kind == "embedded"


def _same_file(home: Home, store: ObjectStore) -> None:
    """Refuse to begin a new ledger where the store shows that there was one."""
    gone = not home.ledger.exists() or home.ledger.stat().st_size == 0
    # SQLite keeps what isn't in the file yet in its log
    log = home.ledger.with_name(home.ledger.name + "-wal")
    if not gone or (log.exists() and log.stat().st_size):
        return
    if databases.moved_ledger(home).exists():
        raise HomeUnusable(
            f"The ledger of {home.path} was moved to PostgreSQL, but the file that says so is gone.",
            hint=f'Write {{"kind": "embedded"}} into {home.path / "database.json"}.',
        )
    if next(store.list(), None) is not None:
        raise HomeUnusable(
            f"The ledger {home.ledger} is gone or empty, but the store beside it holds objects.",
            hint=f"Put a backup of ledger.db in its place; or move {home.path} away to begin anew.",
        )


def _same_database(home: Home, db: Database, choice: Choice, store: ObjectStore) -> None:
    """Refuse to begin a new ledger in an empty database where the store shows that there was another."""
    if db.exists() or next(store.list(), None) is None:
        return
    named = f"that {databases.VARIABLE} names" if choice.kind == "url" else f"of {home.path}"
    raise HomeUnusable(
        f"The PostgreSQL database {named} holds no ledger, but the home's store holds objects.",
        hint=f"Restore the database, or correct {databases.VARIABLE}; "
        f"or move {home.path} away to begin anew.",
    )
