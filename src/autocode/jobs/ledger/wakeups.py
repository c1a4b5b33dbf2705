"""Being woken by committed facts: notifications on PostgreSQL, the file's version on SQLite.

A wake-up is a hint and never a fact: whoever is woken reads the ledger. One that is lost, for instance while
the database was away, costs the time to the next look that comes by itself.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.events import CHANNEL, STAMPED

__all__ = ["Listener"]

_POLL_SECONDS: Final = 0.05
"""Pause between two looks at the version of a SQLite file."""

_RECONNECT_SECONDS: Final = 0.5
"""Pause before a connection that was lost is tried again."""


_LOST: Final = (psycopg.Error, sqlite3.Error, DBAPIError, OSError)
"""What the drivers raise, and SQLAlchemy for them, where a connection is gone or can't be had."""


class _Source(Protocol):
    def wait(self, timeout: float) -> bool: ...

    def close(self) -> None: ...


class Listener:
    """Waits for committed facts, on a connection of its own. Use it as a context manager, in one thread.

    A database that goes away is connected to again for as long as it takes; being back counts as a wake-up,
    since what happened meanwhile is unknown.

    Args:
        db: the ledger.
        stamps: be woken by stamped events too, as those who tell people are; without them, by facts alone.
            SQLite can't tell them apart: any commit wakes.
    """

    def __init__(self, db: Database, *, stamps: bool = True) -> None:
        self._db = db
        self._stamps = stamps
        self._source: _Source | None = None

    def __enter__(self) -> Self:
        self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()

    def wait(self, timeout: float) -> bool:
        """Wait for a fact for *timeout* seconds at most; return whether one was committed. Never raises.

        A fact that was committed since the last call counts, so that nothing is missed in between.
        """
        deadline = time.monotonic() + timeout
        if self._source is None:
            return self._reconnected(timeout)
        try:
            return self._source.wait(max(0.0, deadline - time.monotonic()))
        except _LOST:
            self._disconnect()
            return self._reconnected(max(0.0, deadline - time.monotonic()))

    def _reconnected(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while not self._connect():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_RECONNECT_SECONDS, left))
        return True

    def _connect(self) -> bool:
        try:
            connection = self._db.own_connection()
            postgres = isinstance(connection, psycopg.Connection)
            self._source = _Notifications(connection, self._stamps) if postgres else _Version(connection)
        except (*_LOST, sa.exc.TimeoutError):
            return False
        return True

    def _disconnect(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            with suppress(*_LOST):
                source.close()


class _Notifications:
    """PostgreSQL's LISTEN; notifications that come between two waits are kept by the connection."""

    def __init__(self, connection: psycopg.Connection[Any], stamps: bool) -> None:
        self._connection = connection
        self._stamps = stamps
        connection.autocommit = True
        connection.execute(f"LISTEN {CHANNEL}")

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            got = list(self._connection.notifies(timeout=left, stop_after=1))
            if any(self._wakes(each) for each in got):
                # one wake-up for all that came together
                list(self._connection.notifies(timeout=0))
                return True
            if not got:
                return False

    def close(self) -> None:
        self._connection.close()

    def _wakes(self, notification: psycopg.Notify) -> bool:
        return self._stamps or notification.payload != STAMPED


class _Version:
    """SQLite's ``PRAGMA data_version``, which moves with every commit of another connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._seen = self._version()

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while (version := self._version()) == self._seen:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_POLL_SECONDS, left))
        self._seen = version
        return True

    def close(self) -> None:
        self._connection.close()

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
