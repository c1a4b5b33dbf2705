"""An export as a SQLite file, with a description for Datasette beside it."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export.bag import bag_name
from autocode.jobs.operations.export.folder import Progress
from autocode.jobs.operations.partial import explained, partial_folder, sweep, sync_folder
from autocode.jobs.operations.views.bundles import Bundle, StoredBundle
from autocode.jobs.operations.views.counting import Row
from autocode.jobs.operations.views.datasette import metadata
from autocode.jobs.operations.views.rows import rows_of, size_of
from autocode.jobs.operations.views.sqlite_schema import (
    APPLICATION_ID,
    SEARCH,
    SQL_VIEWS,
    index_statements,
    table_statement,
)
from autocode.jobs.operations.views.tables import SCHEMA_VERSION, TABLES
from autocode.jobs.store import ObjectStore

__all__ = ["DATABASE", "METADATA", "write_sqlite"]

DATABASE: Final = "export.db"
METADATA: Final = "metadata.json"

_BATCH: Final = 500
_BATCH_CHARS: Final = 4 << 20
_INSTRUCTIONS: Final = 200_000
"""SQLite calls back after so many of its instructions, some milliseconds."""

_SETTINGS: Final = (
    "PRAGMA page_size = 8192",
    # the file has a temporary name until it is whole and synced: no journal could protect anything
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA cache_size = -32768",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def write_sqlite(store: ObjectStore, digest: str, parent: Path, *, progress: Progress | None = None) -> Path:
    """Write the export *digest* as a SQLite file in a folder of its own below *parent*; return the folder.

    The folder ``autocode-export-…-sqlite`` holds ``export.db`` and ``metadata.json``, and is what
    ``datasette`` takes as it is. docs/tables.md has the schema. The rows depend on the export alone; the
    file's bytes depend on the release of SQLite too.

    Atomic: the folder appears when both files are whole and durable, or not at all. Idempotent: one that is
    there and holds this export in this schema is returned. What killed runs left in *parent* is
    removed first.
    Only the owner may read the files. Memory is bounded by the longest record.

    Args:
        store: where the export's objects are.
        digest: the artifact.
        parent: an existing folder.
        progress: told the bytes done and in all; the index counts as half of them.

    Raises:
        UsageError: *digest* is no export, *parent* can't be written to, or something else has the name.
        DiskFull: there is no room; nothing is left behind.
        ObjectMissing: an object of the export isn't in the store; nothing is left behind.
        ObjectCorrupt: an object of the export is damaged; nothing is left behind.
    """
    bundle = StoredBundle(store, digest)
    target = parent / f"{bag_name(digest)}-sqlite"
    with explained(parent):
        sweep(parent)
        if os.path.lexists(target):
            return _known(target, digest)
        with partial_folder(parent) as temporary:
            _fill(temporary / DATABASE, bundle, progress)
            _write_private(temporary / METADATA, metadata(digest, DATABASE.removesuffix(".db")))
            for name in (DATABASE, METADATA):
                _sync(temporary / name)
            sync_folder(temporary)
            try:
                temporary.rename(target)
            except OSError:
                # somebody else was faster; if it is the same export, theirs is as good
                if not os.path.lexists(target):
                    raise
                return _known(target, digest)
            sync_folder(parent)
    return target


def _fill(path: Path, bundle: Bundle, progress: Progress | None) -> None:
    size = size_of(bundle.manifest)
    told = _Told(progress, size, size + size // 2)
    _write_private(path, b"")
    with closing(sqlite3.connect(path, isolation_level=None)) as db, _sqlite_errors(told):
        for setting in _SETTINGS:
            db.execute(setting)
        db.set_progress_handler(told.still, _INSTRUCTIONS)
        db.execute("BEGIN")
        for table in TABLES.values():
            db.execute(table_statement(table))
        _insert(db, rows_of(bundle, read=told.read))
        statements = [
            *index_statements(),
            *SEARCH,
            "INSERT INTO search(search) VALUES ('rebuild')",
            "INSERT INTO search(search) VALUES ('optimize')",
            *(f"CREATE VIEW {view.name} AS -- {view.about}\n{view.sql}" for view in SQL_VIEWS),
            "COMMIT",
            "PRAGMA analysis_limit = 1000",
            "ANALYZE",
        ]
        for number, statement in enumerate(statements, 1):
            db.execute(statement)
            told.indexed(number, len(statements))


def _insert(db: sqlite3.Connection, rows: Iterator[tuple[str, Row]]) -> None:
    pending: dict[str, list[Row]] = {name: [] for name in TABLES}
    inserts = {
        table.name: f"INSERT INTO {table.name} VALUES ({', '.join(f':{name}' for name in table.names)})"  # noqa: S608 - names of our own
        for table in TABLES.values()
    }
    count = chars = 0

    def flush() -> None:
        for name, waiting in pending.items():
            db.executemany(inserts[name], waiting)
            waiting.clear()

    for name, row in rows:
        pending[name].append(row)
        count += 1
        chars += sum(len(value) for value in row.values() if isinstance(value, str))
        if count >= _BATCH or chars >= _BATCH_CHARS:
            flush()
            count = chars = 0
    flush()


class _Told:
    """Tells whoever waits how far it is; an exception of theirs stops SQLite, too."""

    def __init__(self, progress: Progress | None, size: int, total: int) -> None:
        self._progress = progress
        self._size = size
        self._total = total
        self._done = 0
        self.raised: BaseException | None = None

    def read(self, count: int) -> None:
        self._done += count
        self._tell()

    def indexed(self, number: int, of: int) -> None:
        self._done = self._size + (self._total - self._size) * number // of
        self._tell()

    def still(self) -> int:
        """SQLite's progress handler: a true value interrupts the statement."""
        try:
            self._tell()
        except BaseException as error:  # noqa: BLE001 - SQLite would swallow it; it is raised again outside
            self.raised = error
            return 1
        return 0

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total)


@contextmanager
def _sqlite_errors(told: _Told) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if told.raised is not None:
            raise told.raised from None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, "SQLite says that the disk is full") from error
        if code == sqlite3.SQLITE_IOERR:
            raise OSError(errno.EIO, f"SQLite could not write: {error}") from error
        raise


def _known(target: Path, digest: str) -> Path:
    """Return *target* if it holds this export in this schema.

    Raises:
        UsageError: it doesn't.
    """
    held = _held(target / DATABASE) if target.is_dir() and not target.is_symlink() else None
    if held == (APPLICATION_ID, SCHEMA_VERSION, digest):
        return target
    raise UsageError(
        f"{target} is there already and isn't this export"
        + (f" in version {SCHEMA_VERSION} of the schema." if held is not None else "."),
        hint="Move it away.",
    )


def _held(path: Path) -> tuple[int, int, str] | None:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            (digest,) = db.execute("SELECT digest FROM bundle").fetchone()
    except (sqlite3.Error, TypeError, ValueError):
        return None
    return application, version, digest


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
