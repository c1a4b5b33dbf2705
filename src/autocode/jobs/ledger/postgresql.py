"""Connections to PostgreSQL that never wait for ever.

A server that was stopped (SIGSTOP, a frozen machine) still takes connections and never answers.
Neither the kernel nor PostgreSQL's own time-outs help there: a time-out of the server needs a server that
runs, and a local socket has no time-out at all. So every wait has an end on our side. The server's own
time-outs are a little shorter, so that a server that does run says itself what it didn't get.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg.abc import RV, PQGen
from sqlalchemy.exc import InvalidatePoolError

__all__ = ["create_engine", "unhurried"]

_PATIENCE: Final = 5.0
"""Seconds that a statement may stay unanswered."""

_PING_SECONDS: Final = 1.5
"""Seconds that the first look at a pooled connection may take; the new connection after it takes more."""

_CONNECT_SECONDS: Final = 3
"""Seconds that a new connection may take."""

_POOL_SECONDS: Final = 10.0
"""Seconds to wait for one of the pool's connections, which are held for milliseconds."""

# A client that stopped in the middle of a transaction holds locks: it loses them, and its transaction.
_SESSION: Final = (
    "SET statement_timeout = '4500ms'",
    "SET idle_in_transaction_session_timeout = '5s'",
)

_PATIENT: Final = (
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
)


class _Connection(psycopg.Connection[Any]):
    """A connection whose every wait ends: with the answer, or after :attr:`patience` seconds for good."""

    patience: float | None = _PATIENCE

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for an operation; see the class.

        Who says how long, as one that waits for notifications must, gets no answer in vain without harm.
        """
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        limit = self.patience
        try:
            return super().wait(gen, interval, limit)
        except psycopg.errors._WaitTimeout as error:  # noqa: SLF001 - the only sign of it
            # in the middle of a conversation: what it may still answer belongs to nobody
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {limit:g} s") from error


def create_engine(url: str) -> sa.Engine:
    """Return an engine for *url* (``postgresql+psycopg://…``) whose statements end within about 5 s."""
    engine = sa.create_engine(
        url, pool_size=8, max_overflow=12, pool_timeout=_POOL_SECONDS, pool_use_lifo=True
    )
    sa.event.listen(engine, "do_connect", _connect)
    sa.event.listen(engine, "checkout", _look)
    return engine


@contextmanager
def unhurried(tx: sa.Connection) -> Iterator[None]:
    """Let the statements of the block take as long as they need, as a move or a migration may."""
    connection: Any = tx.connection.dbapi_connection
    for statement in _PATIENT:
        tx.exec_driver_sql(statement)
    connection.patience = None
    try:
        yield
    finally:
        connection.patience = _PATIENCE


def _connect(_dialect: Any, _record: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> _Connection:
    options = {"connect_timeout": _CONNECT_SECONDS} | options
    connection = _Connection.connect(*arguments, **options)
    connection.autocommit = True
    for statement in _SESSION:
        connection.execute(statement)
    connection.autocommit = False
    return connection


def _look(connection: Any, _record: Any, _proxy: Any) -> None:
    """Look whether the server is still there, before a transaction begins on a connection of the pool.

    Unlike SQLAlchemy's own look, which would take as long as a statement may.
    """
    connection.patience = _PING_SECONDS
    try:
        connection.autocommit = True
        connection.execute("")
        connection.autocommit = False
    except psycopg.OperationalError as error:
        # none of the pool's connections is worth another try
        raise InvalidatePoolError from error
    finally:
        connection.patience = _PATIENCE
