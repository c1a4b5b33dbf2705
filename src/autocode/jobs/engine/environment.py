"""Prefect's settings for our processes. Nothing here imports Prefect, which reads them on its import."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from autocode.jobs.engine.databases import chosen
from autocode.jobs.settings import Home, write_durably

__all__ = ["child_environment", "configure_client", "leave_out_grammar", "note_schema", "on_postgresql"]

_SERVICES_OFF: Final = (
    "SCHEDULER",
    "LATE_RUNS",
    "FOREMAN",
    "PAUSE_EXPIRATIONS",
    "CANCELLATION_CLEANUP",
    "REPOSSESSOR",
    "CLEANUP_RECONCILER",
    "EVENT_PERSISTER",
    "TRIGGERS",
)


def child_environment(home: Home) -> dict[str, str]:
    """Return the environment of the private server's process, whose working folder is ``home.prefect``.

    SQLite takes one writer at a time, and Prefect's client sleeps for seconds when it is told to come back.
    So every service that a one-shot run doesn't need is off; the recorder of task runs stays, in batches.

    Where the ledger is in a PostgreSQL the server's tables are there too, every service is on, and so is the
    UI. The server's process finds out the rest (:mod:`prefect_postgresql`), once it holds what
    keeps PostgreSQL running.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {
        **inherited,
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
        # else every start loads Prefect's plugins, our worker among them, to compare what it won't register
        "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
        # whole seconds: Prefect cuts a fraction to 0, and then its recorder never sleeps
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
        **(_with_postgresql(home) if on_postgresql(home) else _with_sqlite(home)),
    }


def on_postgresql(home: Home) -> bool:
    """Say whether the home's Prefect server has its tables in a PostgreSQL: the home's own, or one by URL."""
    return chosen(home).kind != "sqlite"


def _with_sqlite(home: Home) -> dict[str, str]:
    return {
        # relative: a path with '?', '%' or '#' in it would be read as part of a URL
        "PREFECT_API_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:///prefect.db",
        "PREFECT_API_DATABASE_MIGRATE_ON_START": "false" if _schema_current(home) else "true",
        "PREFECT_UI_ENABLED": "false",
        **{f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in _SERVICES_OFF},
    }


def _with_postgresql(home: Home) -> dict[str, str]:
    from autocode.jobs.postgres.place import PREFECT_DATABASE, url_of  # noqa: PLC0415 - loads a driver

    own = chosen(home).kind == "embedded"
    url = url_of(home, PREFECT_DATABASE, driver="asyncpg") if own else None
    return {
        **({"PREFECT_API_DATABASE_CONNECTION_URL": url} if url is not None else {}),
        "PREFECT_UI_ENABLED": "true",
        # by default it is copied into Prefect's own package
        "PREFECT_UI_STATIC_DIRECTORY": str(home.prefect / "ui"),
    }


def configure_client(home: Home) -> None:
    """Set what Prefect reads when it is imported into this process; call it before that import.

    Logs stay local and quiet: a transcript's text must not reach Prefect's database through a log line.
    """
    leave_out_grammar()
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[name]
    os.environ.update(
        {
            "PREFECT_HOME": str(home.prefect),
            "PREFECT_LOGGING_LEVEL": "CRITICAL",
            "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
            "PREFECT_LOGGING_TO_API_ENABLED": "false",
            "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false",
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
            # Prefect would tell its makers about this installation, and say so in the middle of our screen
            "DO_NOT_TRACK": "1",
        }
    )
    # the server is on the loopback interface, and its password is for nobody's proxy
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1", "localhost")))
    # the one logger of Prefect's that isn't named after it (prefect/_internal/concurrency/services.py)
    logging.getLogger("EventsWorker").setLevel(logging.CRITICAL)


def leave_out_grammar() -> None:
    """Spare this process a grammar that takes 2 s to build; call it before Prefect is imported. Idempotent.

    Prefect imports jsonschema, and that ``rfc3987_syntax`` where Jupyter brought it along, to check JSON
    Schema's format ``iri``. jsonschema does without (jsonschema/_format.py), and nothing here checks IRIs.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def note_schema(home: Home) -> None:
    """Note that the installed Prefect brought this home's database up to date. Idempotent, atomic."""
    write_durably(_schema_note(home), json.dumps(_schema(home)).encode())


def _schema_current(home: Home) -> bool:
    """Say whether this very version of Prefect left the database as it is, so that it needs no migration.

    The database is asked itself, not just the note: somebody may have removed or replaced it since.
    """
    try:
        noted = json.loads(_schema_note(home).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(noted == _schema(home) and noted["revision"])


def _schema(home: Home) -> dict[str, str | None]:
    revision = None
    database = home.prefect / "prefect.db"
    if database.is_file():
        try:
            with closing(sqlite3.connect(database, timeout=1.0)) as connection:
                row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            revision = None if row is None else str(row[0])
        except sqlite3.Error:
            revision = None
    return {"prefect": importlib.metadata.version("prefect"), "revision": revision}


def _schema_note(home: Home) -> Path:
    return home.prefect / "schema.json"
