"""What the supervisor knows of the ledger: how many jobs are in which state, and a way in for its user."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import sqlalchemy as sa

from autocode.jobs.engine.system import open_system
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.settings import Home

__all__ = ["Counts", "LedgerWatch"]

_LOOK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs are in which state.

    Args:
        by_status: for each status that any job has.
        as_of: when that was read, by the ledger's clock.
    """

    by_status: Mapping[str, int]
    as_of: datetime


class LedgerWatch:
    """Looks into the ledger now and then, in a thread of its own: a database that hangs holds nobody up.

    Args:
        home: whose ledger.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._look, name="ledger watch", daemon=True)
        self.counts: Counts | None = None
        """As of the last look that found the ledger."""

    def start(self) -> None:
        """Begin to look; does nothing if it has begun. Call it once the ledger can be reached."""
        if not self._thread.is_alive() and not self._leave.is_set():
            self._thread.start()

    def stop(self, *, within: float = 5.0) -> None:
        """Look no more, and wait *within* seconds for a look that is on its way."""
        self._leave.set()
        if self._thread.ident is not None:
            self._thread.join(within)

    def _look(self) -> None:
        while not self._leave.is_set():
            try:
                with open_system(self._home) as system:
                    while not self._leave.is_set():
                        self.counts = _count(system.db)
                        self._leave.wait(_LOOK_SECONDS)
            except JobsError:
                # the part that is down says so itself; these counts say of when they are
                self._leave.wait(_LOOK_SECONDS)


def _count(db: Database) -> Counts:
    query = sa.select(t.jobs.c.status, sa.func.count()).group_by(t.jobs.c.status)
    with db.read() as tx:
        return Counts({str(status): count for status, count in tx.execute(query)}, db.clock.now())
