"""Which database the ledger of a home is in, and opening it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import sqlalchemy as sa

from autocode.jobs import locks
from autocode.jobs.engine.serving import Served, held, memory, remembered, served
from autocode.jobs.errors import HomeUnusable, UsageError
from autocode.jobs.ledger.database import Database, sqlite_url
from autocode.jobs.settings import Home, write_durably
from autocode.jobs.urls import masked, plain_url

__all__ = [
    "VARIABLE",
    "Choice",
    "chosen",
    "ledger_lock",
    "moved_ledger",
    "note_embedded",
    "opened",
    "own",
    "serving",
    "shown",
]

VARIABLE: Final = "AUTOCODE_DATABASE_URL"
"""Names a PostgreSQL of somebody else's that holds the ledger; whatever the home says."""

_SERVING_SECONDS: Final = 10.0
"""How long another part of the service may take to say which ledger it uses."""

_PORT: Final = 5432
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class Choice:
    """Where the ledger is: in a PostgreSQL by its URL, in the home's own PostgreSQL, or in its file."""

    kind: Literal["url", "embedded", "sqlite"]
    url: str = ""


def chosen(home: Home, environ: Mapping[str, str] = os.environ) -> Choice:
    """Return where the ledger of *home* is.

    While a service runs on the home, that is where the service has it. Else it is where :data:`VARIABLE`
    says, else where the home says, else in its file.

    Raises:
        UsageError: the variable names no PostgreSQL, or another than the running service uses; or it names
            none, and the ledger was in one of somebody else's.
        HomeUnusable: what the home says can't be read.
    """
    variable = environ.get(VARIABLE)
    named = _driven(variable) if variable else None
    service = served(home)
    if service is not None:
        return _as_served(home, service, named)
    if named is not None:
        return Choice("url", named)
    last = remembered(home)
    if last is not None:
        raise UsageError(
            f"The ledger of {home.path} was last in {last}, and {VARIABLE} doesn't name it now.",
            hint=f"Set {VARIABLE} to it, or database_url in {home.path / 'config.toml'}; "
            f"or remove {memory(home)} to use a ledger of the data folder's own.",
        )
    return own(home)


def own(home: Home) -> Choice:
    """Return where the ledger is by the word of the home alone: in its own PostgreSQL, or in its file.

    Raises:
        HomeUnusable: what the home says can't be read.
    """
    file = _pointer(home)
    try:
        kind = json.loads(file.read_text("utf-8"))["kind"]
    except (FileNotFoundError, NotADirectoryError):
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
def serving(home: Home) -> Iterator[Choice]:
    """Be a process of the home's service within the block: other commands use the ledger that this one uses.

    Raises:
        UsageError: see :func:`chosen`.
        HomeUnusable: see :func:`chosen`.
    """
    with ExitStack() as stack:
        # so that of two that start at once with different databases one is refused
        with locks.exclusive(home.run / "serving.lock", within=_SERVING_SECONDS):
            choice = chosen(home)
            stack.enter_context(held(home, choice.url or None))
        yield choice


def shown(home: Home, choice: Choice) -> str:
    """Name the database of *choice* to people, without its password."""
    if choice.kind == "url":
        return masked(plain_url(choice.url))
    return f"the PostgreSQL of {home.path}" if choice.kind == "embedded" else str(home.ledger)


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


def _as_served(home: Home, service: Served, named: str | None) -> Choice:
    """Return the service's choice, by the account that *named* has for the very same database."""
    if named is None:
        return own(home) if service.url is None else Choice("url", service.url)
    if service.url is not None and _place(service.url) == _place(named):
        return Choice("url", named)
    its = own(home) if service.url is None else Choice("url", service.url)
    told = "a ledger of the data folder's own" if service.url is None else shown(home, its)
    raise UsageError(
        f"The service of {home.path} (process {service.pid}) has its ledger in {told}, "
        f"and {VARIABLE} names {shown(home, Choice('url', named))}.",
        hint=f"Unset {VARIABLE} (or database_url in {home.path / 'config.toml'}) to use the service's; "
        "or stop the service and start it with the other one.",
    )


def _place(url: str) -> tuple[str, int, str | None]:
    """Return what tells a database from all others: host, port and name."""
    parts = sa.make_url(url)
    host, port = (parts.query.get(name) for name in ("host", "port"))
    host = str(parts.host or host or "localhost").lower()
    return "localhost" if host in _LOOPBACK else host, int(parts.port or str(port or _PORT)), parts.database


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
