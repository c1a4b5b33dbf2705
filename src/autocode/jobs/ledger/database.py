"""One database, SQLite or PostgreSQL, behind two kinds of transaction: ``read`` and ``write``."""

from __future__ import annotations

import copy
import errno
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as postgresql_dialect
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from autocode.jobs.clock import Clock, SystemClock
from autocode.jobs.errors import DiskFull, HomeUnusable, JobsError, LedgerUnavailable
from autocode.jobs.ledger import (
    schema,
    schema_notifications,  # noqa: F401 - its tables belong to the schema
    schema_scopes,  # noqa: F401 - as above
    schema_uploads,  # noqa: F401 - as above
)
from autocode.jobs.ledger.words import sentence

__all__ = ["SCHEMA_REVISION", "Database", "insert_missing", "new_epoch", "schema_revision", "sqlite_url"]

SCHEMA_REVISION: Final = "0006"
"""The newest migration under ``migrations/versions``; revisions are numbers and sort as text."""

_MIGRATION_LOCK: Final = 0x6175746F636F6465
"""Advisory lock key on PostgreSQL: the letters "autocode"."""

_BUSY_SECONDS: Final = 15.0
"""How long a statement waits for SQLite's write lock: longer than any transaction of ours may take."""

_POLL_SECONDS: Final = 0.02

_POOLED: Final = 8
_OVERFLOW: Final = 7
"""Connections that are kept once they were needed, and those beyond that are closed after use."""


def sqlite_url(path: Path) -> str:
    """Return the SQLAlchemy URL of the SQLite file at *path*."""
    return str(sa.URL.create("sqlite", database=str(path)))


class Database:
    """A connection pool with this project's transaction rules.

    SQLite runs in WAL mode with ``synchronous=FULL``: an acknowledged commit survives a power cut. Writers
    take the lock at once (``BEGIN IMMEDIATE``), so that no transaction fails half-way for want of it.

    Args:
        url: ``sqlite:///…`` or ``postgresql+psycopg://…``.
        clock: where time-stamps come from.
    """

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock if clock is not None else SystemClock()
        self._engine = _postgresql(url) if url.startswith("postgresql") else _sqlite(url)
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        self._writer = self._engine.execution_options(autocode_write=True)
        # several statements of one reader see one moment, as they do by themselves on SQLite
        snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._reader = self._engine.execution_options(**snapshot if self.dialect == "postgresql" else {})
        self._guard: Callable[[sa.Connection], None] | None = None

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    @property
    def connections(self) -> int:
        """How many connections are kept open: more threads than these gain nothing."""
        return _POOLED

    @contextmanager
    def read(self, *, patient: bool = False) -> Iterator[sa.Connection]:
        """Open a transaction that only reads; all of its statements see the database as of one moment.

        Args:
            patient: as for :meth:`write`; for what reads a whole ledger.

        Raises:
            LedgerUnavailable: the database can't be reached, or didn't answer within 5 s.
        """
        with _translated(), self._reader.begin() as tx, self._hurry(tx, patient=patient):
            yield tx

    @contextmanager
    def write(self, *, patient: bool = False) -> Iterator[sa.Connection]:
        """Open a transaction that writes; it commits when the block ends, and rolls back when it raises.

        Args:
            patient: let statements take as long as they need, even if nobody can tell whether the server has
                stopped; for migrations and moves.

        Raises:
            LedgerUnavailable: the database can't be reached, or didn't answer within 5 s; SQLite: its lock
                was held for 15 s.
            DiskFull: the disk is full; nothing was written.
            HomeUnusable: the database file is read-only.
        """
        with _translated(), self._writer.begin() as tx, self._hurry(tx, patient=patient):
            if self._guard is not None:
                self._guard(tx)
            yield tx

    def guarded(self, guard: Callable[[sa.Connection], None]) -> Database:
        """Return this database with *guard* before every write, in its transaction; what it raises undoes it.

        Both share their connections, so only one of them is closed.
        """
        twin = copy.copy(self)
        twin._guard = guard  # noqa: SLF001 - its own class
        return twin

    def own_connection(self) -> Any:
        """Return a driver's connection that the pool knows nothing of; the caller closes it.

        Raises:
            sqlalchemy.exc.DBAPIError: the database can't be reached.
        """
        connection = self._engine.raw_connection()
        connection.detach()
        return connection.dbapi_connection

    def exists(self) -> bool:
        """Say whether a ledger was ever begun in this database.

        Raises:
            LedgerUnavailable: the database can't be reached.
        """
        with self.read() as tx:
            return schema_revision(tx) is not None

    def migrate(self, revision: str = SCHEMA_REVISION) -> None:
        """Bring the schema up to date; safe when several processes do it at once. Idempotent.

        Args:
            revision: an earlier one, for rows that were written under it; a schema that is newer stays.

        Raises:
            HomeUnusable: a newer version of this program wrote the database.
        """
        with self.read() as tx:
            current = schema_revision(tx)
        if current == revision:
            return
        with self.write(patient=True) as tx:
            if self.dialect == "postgresql":
                tx.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            current = schema_revision(tx)
            if current is not None and current > SCHEMA_REVISION:
                raise HomeUnusable(
                    f"The ledger has schema {current}, and this version knows {SCHEMA_REVISION} at most.",
                    hint="Upgrade autocode-jobs, or point AUTOCODE_HOME at another folder.",
                )
            if current is None or current < revision:
                _upgrade(tx, revision)
                _seed(tx)

    def _hurry(self, tx: sa.Connection, *, patient: bool) -> AbstractContextManager[None]:
        if not patient or self.dialect != "postgresql":
            return nullcontext()
        from autocode.jobs.ledger import postgresql  # noqa: PLC0415 - see _postgresql

        return postgresql.unhurried(tx)

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


def _sqlite(url: str) -> sa.Engine:
    return sa.create_engine(url, pool_size=_POOLED, max_overflow=_OVERFLOW)


def _postgresql(url: str) -> sa.Engine:
    from autocode.jobs.ledger import postgresql as driver  # noqa: PLC0415 - slow to load, and a file needs none

    return driver.create_engine(url, pooled=_POOLED)


def insert_missing(tx: sa.Connection, table: sa.Table, **values: Any) -> bool:
    """Insert a row unless its key exists; return whether it was inserted. Atomic."""
    insert = postgresql_dialect.insert if tx.dialect.name == "postgresql" else sqlite.insert
    statement = insert(table).values(**values).on_conflict_do_nothing()
    # the row count of an INSERT isn't reported on PostgreSQL
    return tx.execute(statement.returning(sa.literal(1))).first() is not None


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # the driver's own transaction handling commits before DDL; ours is explicit
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={int(_BUSY_SECONDS * 1000)}")
    _enter_wal_mode(cursor)
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _enter_wal_mode(cursor: Any) -> None:
    """Switch a new file to WAL mode; while others do the same, SQLite refuses at once instead of waiting."""
    give_up = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return


def _begin_sqlite(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("autocode_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise LedgerUnavailable("Every connection to the ledger's database stayed in use.") from error
    except DBAPIError as error:
        translated = _translate(error)
        if translated is None:
            raise
        raise translated from error


def _translate(error: DBAPIError) -> JobsError | None:
    text = str(error.orig)
    if "disk is full" in text or "No space left" in text or getattr(error.orig, "errno", 0) == errno.ENOSPC:
        return DiskFull("The ledger could not be written: the disk is full.")
    if "readonly database" in text or "unable to open database" in text:
        return HomeUnusable(f"The ledger can't be opened for writing: {sentence(text)}")
    if "malformed" in text or "not a database" in text:
        return HomeUnusable(
            f"The ledger's file is damaged: {sentence(text)}",
            hint="Move the file away or restore a backup; the store's objects are not affected.",
        )
    if "locked" in text or error.connection_invalidated or isinstance(error, sa.exc.OperationalError):
        return LedgerUnavailable(f"The ledger's database did not answer: {sentence(text)}")
    return None


def schema_revision(tx: sa.Connection) -> str | None:
    """Return the newest migration that the database had; ``None`` where no ledger was ever begun."""
    if not sa.inspect(tx).has_table("schema_version"):
        return None
    row = tx.execute(sa.text("SELECT version_num FROM schema_version")).first()
    return None if row is None else str(row[0])


def _upgrade(tx: sa.Connection, revision: str) -> None:
    # Alembic is slow to import and needed once in the life of a database
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = tx
    command.upgrade(config, revision)


def new_epoch() -> str:
    """Return a name for a ledger that no other has: 12 hexadecimal digits."""
    return uuid.uuid4().hex[:12]


def _seed(tx: sa.Connection) -> None:
    insert_missing(tx, schema.meta, key="epoch", value=new_epoch())
    for name in ("cursor", "fence", "audit"):
        insert_missing(tx, schema.counters, name=name, value=0)
