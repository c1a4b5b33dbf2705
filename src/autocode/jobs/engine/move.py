"""The move of a home's ledger from its SQLite file into the home's own PostgreSQL.

Three steps: copy everything in one transaction, note durably that PostgreSQL has the ledger now, set
the file aside. Before the note the file is the ledger, after it PostgreSQL is. Killed at any
line, the next call copies anew, or finishes.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from autocode.jobs import locks
from autocode.jobs.engine import databases
from autocode.jobs.engine.databases import Choice, ledger_lock
from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger.transfer import copy_ledger
from autocode.jobs.settings import Home, sync_folder

__all__ = ["use_embedded"]

_WAIT_SECONDS: Final = 60.0
"""How long to wait for commands that have the ledger open."""


def use_embedded(
    home: Home, *, within: float = _WAIT_SECONDS, waiting: Callable[[str], None] = lambda _what: None
) -> bool:
    """Let the ledger of *home* be in the home's own PostgreSQL, moving it there if need be. Idempotent.

    Nothing else may have the ledger open: such commands are waited for, and new ones wait for the move. The
    file stays beside the store as ``ledger.db.moved``.

    Args:
        home: the home; prepared here.
        within: seconds to wait for other commands.
        waiting: told what runs, several times a second while that is waited for.

    Returns:
        Whether there was anything to do.

    Raises:
        LedgerUnavailable: other commands went on, and the detail names them; or PostgreSQL couldn't be
            started. Nothing was moved.
        HomeUnusable: the home can't be written, or its PostgreSQL holds another ledger. Nothing was moved.
        DiskFull: there is no room. Nothing was moved.
    """
    home.prepare()
    if databases.own(home).kind == "embedded" and not home.ledger.exists():
        return False
    lock = ledger_lock(home)
    try:
        with locks.exclusive(lock, within=within, waiting=lambda: waiting(_who_holds(lock))):
            _move(home)
    except TimeoutError as error:
        raise LedgerUnavailable(
            f"The ledger can't be moved to PostgreSQL while it is open: {_who_holds(lock)}.",
            hint="End that, or wait for its end, then try again.",
        ) from error
    return True


def _move(home: Home) -> None:
    if databases.own(home).kind != "embedded":
        if _has_ledger(home):
            with (
                databases.opened(home, Choice("sqlite")) as old,
                databases.opened(home, Choice("embedded")) as new,
            ):
                copy_ledger(old, new)
        databases.note_embedded(home)
    _set_aside(home)


def _has_ledger(home: Home) -> bool:
    files = (home.ledger, home.ledger.with_name(f"{home.ledger.name}-wal"))
    return any(file.exists() and file.stat().st_size for file in files)


def _set_aside(home: Home) -> None:
    if not home.ledger.exists():
        return
    with closing(sqlite3.connect(home.ledger)) as connection:
        # whoever keeps the file as a backup has all of it in one
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    target = databases.moved_ledger(home)
    number = 1
    while target.exists():
        number += 1
        target = databases.moved_ledger(home).with_name(f"{home.ledger.name}.moved-{number}")
    home.ledger.rename(target)
    sync_folder(home.path)


def _who_holds(lock: Path) -> str:
    """Name the commands that hold *lock*, as far as the system tells."""
    found = []
    for pid in locks.holders(lock):
        if pid == os.getpid():
            found.append("this very process")
            continue
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        found.append(f"process {pid} ({' '.join(words).strip()[:120]})")
    return ", ".join(found) or "another command of this home"
