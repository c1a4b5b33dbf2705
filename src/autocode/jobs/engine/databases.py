"""Which database the ledger of a home is in, and opening it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import sqlalchemy as sa

from autocode.jobs.errors import HomeUnusable, UsageError
from autocode.jobs.ledger.database import Database, sqlite_url
from autocode.jobs.settings import Home, write_durably

__all__ = ["VARIABLE", "Choice", "chosen", "ledger_lock", "moved_ledger", "note_embedded", "opened"]

VARIABLE: Final = "AUTOCODE_DATABASE_URL"
"""Names a PostgreSQL of somebody else's that holds the ledger; whatever the home says."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the ledger is: in a PostgreSQL by its URL, in the home's own PostgreSQL, or in its file."""

    kind: Literal["url", "embedded", "sqlite"]
    url: str = ""


def chosen(home: Home, environ: Mapping[str, str] = os.environ) -> Choice:
    """Return where the ledger of *home* is: as :data:`VARIABLE` says, else the home, else in its file.

    Raises:
        UsageError: the variable names no PostgreSQL.
        HomeUnusable: what the home says can't be read.
    """
    named = environ.get(VARIABLE)
    if named:
        return Choice("url", _driven(named))
    file = _pointer(home)
    try:
        kind = json.loads(file.read_text("utf-8"))["kind"]
    except FileNotFoundError:
        return Choice("sqlite")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HomeUnusable(
            f"{file}, which says where the ledger is, can't be read: {error}.",
            hint='Write {"kind": "embedded"} into it if the ledger was moved to PostgreSQL; else remove it.',
        ) from error
    if kind not in ("embedded", "sqlite"):
        raise HomeUnusable(
            f"{file} says that the ledger is in {kind!r}, which this version doesn't know.",
            hint="Upgrade autocode-jobs, or point AUTOCODE_HOME at another folder.",
        )
    return Choice(kind)


@contextmanager
def opened(home: Home, choice: Choice) -> Iterator[Database]:
    """Open the database of the ledger; what it needs to run does so at least until the block ends.

    Raises:
        LedgerUnavailable: the home's PostgreSQL couldn't be started.
    """
    if choice.kind == "embedded":
        from autocode.jobs.postgres.client import running  # noqa: PLC0415 - a driver that a file doesn't need

        with running(home) as url, _closed(Database(url)) as db:
            yield db
        return
    if choice.kind == "sqlite":
        # SQLite gives its files the mode of the umask; -wal and -shm take that of the database
        home.ledger.touch(mode=0o600)
    with _closed(Database(choice.url or sqlite_url(home.ledger))) as db:
        yield db


def note_embedded(home: Home) -> None:
    """Note durably that the ledger is in the home's own PostgreSQL. Atomic."""
    write_durably(_pointer(home), json.dumps({"kind": "embedded"}).encode())


def moved_ledger(home: Home) -> Path:
    """Return the name that the SQLite ledger gets once everything in it is in PostgreSQL."""
    return home.ledger.with_name(f"{home.ledger.name}.moved")


def ledger_lock(home: Home) -> Path:
    """Return the lock that everybody shares who has the ledger open; a move holds it alone."""
    return home.run / "ledger.lock"


@contextmanager
def _closed(db: Database) -> Iterator[Database]:
    try:
        yield db
    finally:
        db.close()


def _pointer(home: Home) -> Path:
    return home.path / "database.json"


def _driven(named: str) -> str:
    """Return the URL with the driver that the ledger uses."""
    if named.startswith("postgres://"):
        named = named.replace("postgres", "postgresql", 1)
    try:
        url = sa.make_url(named)
    except (sa.exc.ArgumentError, ValueError):
        # not quoted: it may hold a password
        raise UsageError(f"{VARIABLE} is no URL.", hint=_FORM) from None
    if url.get_backend_name() != "postgresql":
        raise UsageError(f"{VARIABLE} names a database of {url.get_backend_name()!r}.", hint=_FORM)
    return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


_FORM: Final = (
    "Set it to postgresql://user:password@host:port/database, or unset it to use the home's own ledger."
)
