"""The database of the Prefect server in a home's PostgreSQL: made from a dump, and known by a note.

``prefect_postgresql.sql`` says what all migrations of one version of Prefect make of an empty database: a
tenth of a second instead of ten. Any other version migrates by itself. Nothing here imports Prefect.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any, Final

import psycopg
import sqlalchemy as sa

from autocode.jobs.engine.databases import chosen
from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger.words import sentence
from autocode.jobs.postgres.place import PREFECT_DATABASE, url_of
from autocode.jobs.settings import Home, write_durably

__all__ = ["FILE", "SCHEMA", "dump", "lay", "note_schema", "server_environment", "text"]

FILE: Final = "prefect_postgresql.sql"
"""Name of the dump, beside this module."""

SCHEMA: Final = "prefect"
"""The schema of Prefect's tables in a database that holds the ledger as well: both have a table `events`."""

_HEADER: Final = """\
-- prefect {version}
-- Its PostgreSQL schema after all migrations.
-- Written by scripts/prefect_postgresql.py; a new home starts with it.
"""

_LOCK: Final = 0x70726566656374
"""Advisory lock key: the letters "prefect"."""


def server_environment(home: Home) -> dict[str, str]:
    """Return what a Prefect server on the home's PostgreSQL has to know; make its schema if need be.

    The home's own PostgreSQL must run; see :mod:`autocode.jobs.postgres.client`. One that is named by its URL
    gets Prefect's tables beside the ledger's, in a schema of their own.

    Raises:
        LedgerUnavailable: PostgreSQL doesn't answer.
    """
    choice = chosen(home)
    if choice.kind == "url":
        return _beside_ledger(choice.url)
    try:
        with _connected(home) as connection:
            if lay(connection):
                _write_note(home, connection)
            current = _schema(connection) == _noted(home)
    except psycopg.OperationalError as error:
        raise LedgerUnavailable(f"The home's PostgreSQL did not answer: {sentence(error)}") from error
    url = url_of(home, PREFECT_DATABASE, driver="asyncpg")
    assert url is not None
    return {
        "PREFECT_API_DATABASE_CONNECTION_URL": url,
        "PREFECT_API_DATABASE_MIGRATE_ON_START": "false" if current else "true",
    }


def _beside_ledger(url: str) -> dict[str, str]:
    """Make the schema that Prefect's tables lie in; its own migrations do the rest."""
    parsed = sa.make_url(url)
    try:
        libpq = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(libpq, autocommit=True, connect_timeout=5) as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    except psycopg.Error as error:
        raise LedgerUnavailable(
            f"Prefect's schema can't be made where AUTOCODE_DATABASE_URL says: {sentence(error)}",
            hint="Let its user create schemas there, or name a Prefect server of your own: PREFECT_API_URL.",
        ) from error
    # asyncpg has another name for it than libpq
    query = {("ssl" if name == "sslmode" else name): value for name, value in parsed.query.items()}
    driven = parsed.set(drivername="postgresql+asyncpg", query=query)
    return {
        "PREFECT_API_DATABASE_CONNECTION_URL": driven.render_as_string(hide_password=False),
        # extensions that somebody installed before are found where they are
        "PREFECT_SERVER_DATABASE_SQLALCHEMY_CONNECT_ARGS_SEARCH_PATH": f"{SCHEMA},public",
        "PREFECT_API_DATABASE_MIGRATE_ON_START": "true",
    }


def note_schema(home: Home) -> None:
    """Note that the installed Prefect brought its database in PostgreSQL up to date. Idempotent, atomic."""
    with _connected(home) as connection:
        _write_note(home, connection)


def text() -> str:
    """Return the dump that this package carries."""
    return (resources.files(__package__) / FILE).read_text("utf-8")


def lay(connection: psycopg.Connection[Any]) -> bool:
    """Make Prefect's tables from the dump in an empty database; return whether they were made. Atomic.

    Where the dump is of another version of Prefect than the installed one nothing is made.
    """
    script = text()
    if not script.startswith(_header(importlib.metadata.version("prefect"))):
        return False
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        if connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public' LIMIT 1").fetchone():
            return False
        connection.execute(script.encode())
        # the dump names every table in full and empties the path
        connection.execute("RESET search_path")
    return True


def dump(program: Path, url: str, version: str) -> str:
    """Return the schema and the few rows in the database at *url* as a script.

    Args:
        program: ``pg_dump``.
        url: for libpq, without a driver.
        version: of the Prefect that made it.
    """
    options = ["--inserts", "--no-comments", "--no-owner", "--no-privileges"]
    done = subprocess.run([program, *options, url], check=True, capture_output=True, text=True)
    # what only psql understands, and what this very run chose at random
    lines = (line for line in done.stdout.splitlines() if line and not line.startswith(("--", "\\")))
    return "\n".join([_header(version).rstrip(), *(line.rstrip() for line in lines), ""])


def _header(version: str) -> str:
    return _HEADER.format(version=version)


def _connected(home: Home) -> psycopg.Connection[Any]:
    url = url_of(home, PREFECT_DATABASE, driver="psycopg")
    assert url is not None
    return psycopg.connect(url.replace("+psycopg", "", 1), autocommit=True, connect_timeout=5)


def _schema(connection: psycopg.Connection[Any]) -> dict[str, str | None]:
    revision = None
    if connection.execute("SELECT to_regclass('public.alembic_version')").fetchone() != (None,):
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        revision = None if row is None else str(row[0])
    return {"prefect": importlib.metadata.version("prefect"), "revision": revision}


def _noted(home: Home) -> object:
    try:
        return json.loads(_note(home).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _write_note(home: Home, connection: psycopg.Connection[Any]) -> None:
    write_durably(_note(home), json.dumps(_schema(connection)).encode())


def _note(home: Home) -> Path:
    return home.prefect / "schema-postgresql.json"
