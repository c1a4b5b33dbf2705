"""Riding out an outage: what an attempt has to tell the ledger is told once its database is back.

Only for calls that may be made twice, since nobody knows whether one without an answer was committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger.database import Database

__all__ = ["OUTAGE_SECONDS", "outlast"]

OUTAGE_SECONDS: Final = 600.0
"""How long an outage may take before it costs a running attempt: PostgreSQL may have a long log to replay."""

_PAUSES: Final = (0.1, 0.3, 1.0)
"""Seconds between two tries; the last one from then on."""

P = ParamSpec("P")
T = TypeVar("T")


def outlast(
    db: Database,
    check: Callable[[], None] | None,
    call: Callable[P, T],
    *args: P.args,
    **options: P.kwargs,
) -> T:
    """Return what *call* returns; while PostgreSQL is away, wait for it and call again. Blocks.

    SQLite is a file, which doesn't go away: there, a lock that others hold has its own time limit.

    Args:
        db: the ledger that *call* talks to.
        check: raises once there is no more reason to wait; asked before each further try.
            ``None``: don't wait at all.
        call: idempotent.
        *args: for *call*.
        **options: for *call*.

    Raises:
        LedgerUnavailable: it stayed away for :data:`OUTAGE_SECONDS`.
    """
    give_up = time.monotonic() + OUTAGE_SECONDS
    pauses = iter(_PAUSES)
    pause = _PAUSES[-1]
    while True:
        try:
            return call(*args, **options)
        except LedgerUnavailable:
            if check is None or db.dialect == "sqlite" or time.monotonic() > give_up:
                raise
            check()
        pause = next(pauses, pause)
        threading.Event().wait(pause)
