"""One leader for a role: a lease by a counter that moves, and a term that every write of its is held against.

Who watches a leader looks at its counter, and at its own monotonic clock: nobody's wall clock takes part. A
leader that was stopped and comes back is refused by :func:`assert_leading`, inside the very transaction that
it wants to write in (Kleppmann, "How to do distributed locking", 2016, on fencing tokens).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from autocode.jobs.errors import LeadershipLost, LedgerUnavailable
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database, insert_missing

__all__ = ["LEADER_LEASE_SECONDS", "RENEW_SECONDS", "Leadership", "assert_leading"]

LEADER_LEASE_SECONDS: Final = 2.0
"""How long a leader's counter may stand still before another takes over."""

RENEW_SECONDS: Final = 0.5
"""Pause between two looks, of the leader that renews and of those that watch it."""

_NOBODY: Final = ""
"""The holder that a leader leaves behind when it goes in good order."""


@dataclass(frozen=True, slots=True)
class _Standing:
    holder: str
    term: int
    renewals: int
    since: float
    looked: float


class Leadership:
    """One candidate for *role*; call :meth:`lead_or_wait` about every :data:`RENEW_SECONDS`.

    Args:
        db: the ledger.
        role: what is led; leaders of different roles don't know of each other.
        holder: who asks; another name for each process.
        lease: seconds without a renewal after which a leader is replaced.
        gone: says whether a holder is certainly dead, so that no lease has to be waited for.
    """

    def __init__(
        self,
        db: Database,
        role: str,
        holder: str,
        *,
        lease: float = LEADER_LEASE_SECONDS,
        gone: Callable[[str], bool] = lambda _holder: False,
    ) -> None:
        self._db = db
        self._role = role
        self._holder = holder
        self._lease = lease
        self._gone = gone
        self._seen: _Standing | None = None
        self._term: int | None = None

    @property
    def term(self) -> int | None:
        """The term in which this candidate led when it last looked; ``None`` while it stands by."""
        return self._term

    def lead_or_wait(self) -> int | None:
        """Look once: renew, take over, or stand by; return the term of this candidate's lead, or ``None``.

        The lead is taken when nobody holds it, when its holder is provably gone, and when its counter stood
        still for a lease in which this candidate looked all the time. The term grows by one each time.
        Atomic.

        Raises:
            LedgerUnavailable: the database can't be reached; what was measured so far is forgotten, since
                nobody can renew meanwhile.
        """
        try:
            self._term = self._renewed() or self._taken()
        except LedgerUnavailable:
            self._seen = None
            raise
        return self._term

    def release(self) -> None:
        """Leave in good order: whoever looks next takes over at once. Idempotent.

        Raises:
            LedgerUnavailable: the database can't be reached; the lead ends with its lease then.
        """
        term, self._term, self._seen = self._term, None, None
        if term is not None:
            with self._db.write() as tx:
                self._wait_for_writes(tx)
                tx.execute(sa.update(t.leaders).where(*self._mine(term)).values(holder=_NOBODY))

    def _renewed(self) -> int | None:
        if self._term is None:
            return None
        with self._db.write() as tx:
            moved = tx.execute(
                sa.update(t.leaders)
                .where(*self._mine(self._term))
                .values(renewals=t.leaders.c.renewals + 1)
                .returning(t.leaders.c.term)
            )
            return moved.scalar()

    def _taken(self) -> int | None:
        with self._db.read() as tx:
            row = tx.execute(sa.select(t.leaders).where(t.leaders.c.role == self._role)).first()
        if row is None:
            return self._first()
        if row.holder not in {_NOBODY, self._holder} and not self._gone(row.holder) and not self._still(row):
            return None
        self._seen = None
        with self._db.write() as tx:
            self._wait_for_writes(tx)
            taken = tx.execute(
                sa.update(t.leaders)
                .where(
                    t.leaders.c.role == self._role,
                    t.leaders.c.holder == row.holder,
                    t.leaders.c.term == row.term,
                    t.leaders.c.renewals == row.renewals,
                )
                .values(
                    holder=self._holder,
                    term=row.term + 1,
                    renewals=row.renewals + 1,
                    since=self._db.clock.now(),
                )
                .returning(t.leaders.c.term)
            )
            return taken.scalar()

    def _wait_for_writes(self, tx: sa.Connection) -> None:
        """Wait until every write that a leader has under way is over; its renewals wait for nothing."""
        tx.execute(sa.select(t.leaders.c.role).where(t.leaders.c.role == self._role).with_for_update())

    def _first(self) -> int | None:
        with self._db.write() as tx:
            made = insert_missing(
                tx,
                t.leaders,
                role=self._role,
                holder=self._holder,
                term=1,
                renewals=1,
                since=self._db.clock.now(),
            )
        return 1 if made else None

    def _still(self, row: sa.Row[tuple[str, str, int, int]]) -> bool:
        """Say whether the leader's counter stood still for a lease; a watcher held up itself saw nothing."""
        now = self._db.clock.monotonic()
        seen = self._seen
        same = seen is not None and (seen.holder, seen.term, seen.renewals) == (
            row.holder,
            row.term,
            row.renewals,
        )
        if seen is None or not same or now - seen.looked > self._lease / 2:
            self._seen = _Standing(row.holder, row.term, row.renewals, since=now, looked=now)
            return False
        self._seen = _Standing(row.holder, row.term, row.renewals, since=seen.since, looked=now)
        return now - seen.since >= self._lease

    def _mine(self, term: int) -> tuple[sa.ColumnElement[bool], ...]:
        return (
            t.leaders.c.role == self._role,
            t.leaders.c.holder == self._holder,
            t.leaders.c.term == term,
        )


def assert_leading(tx: sa.Connection, role: str, term: int) -> None:
    """Prove, for the rest of the transaction, that *term* is still the term of *role*.

    The row stays locked until the transaction ends, so that nobody takes over before what it writes is
    committed; :meth:`autocode.jobs.ledger.database.Database.guarded` puts it before every write of a leader.
    PostgreSQL ends the session of a leader that is stopped in the middle of one, so that its lock doesn't
    outlast its lease. SQLite can't: whoever is stopped there keeps the database's only write lock.

    Raises:
        LeadershipLost: another leader took over, or this one left.
    """
    row = sa.select(t.leaders.c.term, t.leaders.c.holder).where(t.leaders.c.role == role)
    if tx.dialect.name == "postgresql":
        row = row.add_columns(
            sa.func.set_config("idle_in_transaction_session_timeout", f"{LEADER_LEASE_SECONDS:g}s", True)
        )
    # FOR KEY SHARE: it holds up who takes over, and not the leader's own renewals
    found = tx.execute(row.with_for_update(read=True, key_share=True)).first()
    if found is None or found.term != term or found.holder == _NOBODY:
        raise LeadershipLost(f"Term {term} of {role} is over; another process leads or will.")
