"""Leadership: one leader at a time, replaced when it is gone or quiet, and fenced when it comes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from autocode.jobs.errors import LeadershipLost, LedgerUnavailable
from autocode.jobs.ledger import jobs, schema
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.leaders import LEADER_LEASE_SECONDS, Leadership, assert_leading
from ledger_world import facts_of, in_threads, new_job, rows

ROLE = "reconcile"


class TwoClocks:
    """A wall clock and a monotonic clock that the test moves apart."""

    def __init__(self) -> None:
        self.wall = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
        self.seconds = 0.0

    def now(self) -> datetime:
        """Return the wall clock."""
        return self.wall

    def monotonic(self) -> float:
        """Return the other one."""
        return self.seconds


@pytest.fixture
def clock(database: Database) -> TwoClocks:
    """Give the ledger a clock that stands still."""
    clock = TwoClocks()
    database.clock = clock
    return clock


def candidate(database: Database, name: str, **options: Any) -> Leadership:
    """Return a candidate of the tests' role."""
    return Leadership(database, ROLE, name, **options)


def watch(clock: TwoClocks, watcher: Leadership, seconds: float) -> int | None:
    """Let *watcher* look every half second for so long; return what the last look said."""
    term = watcher.lead_or_wait()
    for _ in range(int(seconds / 0.5)):
        clock.seconds += 0.5
        term = watcher.lead_or_wait()
    return term


def test_the_first_to_ask_leads_and_the_others_wait(database: Database, clock: TwoClocks) -> None:
    """One of several candidates leads, in term 1, for as long as it renews."""
    first, second = candidate(database, "a"), candidate(database, "b")

    terms = []
    for _ in range(20):
        terms.append((first.lead_or_wait(), second.lead_or_wait()))
        clock.seconds += 0.5

    assert set(terms) == {(1, None)}
    assert (first.term, second.term) == (1, None)


def test_of_many_at_once_one_leads(database: Database) -> None:
    """Candidates that ask at the same moment have one leader between them."""
    terms = in_threads(6, lambda number: candidate(database, f"c{number}").lead_or_wait())

    assert sorted(terms, key=str) == [1, None, None, None, None, None]


def test_a_leader_that_fell_silent_is_replaced_after_a_lease(database: Database, clock: TwoClocks) -> None:
    """The counter has to stand still for a whole lease; then the term grows by one."""
    candidate(database, "a").lead_or_wait()
    watcher = candidate(database, "b")

    early = watch(clock, watcher, LEADER_LEASE_SECONDS - 0.5)
    late = watch(clock, watcher, 0.5)

    assert (early, late) == (None, 2)
    assert [(row.holder, row.term) for row in rows(database, schema.leaders)] == [("b", 2)]


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_wall_clock_that_jumps_changes_nothing(
    database: Database, clock: TwoClocks, jump: timedelta
) -> None:
    """A clock set back or forward by an hour neither ends a lead nor keeps a dead one alive."""
    leader, watcher = candidate(database, "a"), candidate(database, "b")
    leader.lead_or_wait()
    watcher.lead_or_wait()

    clock.wall += jump
    alive = []
    for _ in range(10):
        clock.seconds += 0.5
        alive.append((leader.lead_or_wait(), watcher.lead_or_wait()))
    after_silence = watch(clock, watcher, LEADER_LEASE_SECONDS)

    assert set(alive) == {(1, None)}
    assert after_silence == 2


def test_a_watcher_that_was_held_up_itself_takes_nothing(database: Database, clock: TwoClocks) -> None:
    """A long pause between two looks proves nothing about the leader."""
    candidate(database, "a").lead_or_wait()
    watcher = candidate(database, "b")
    watcher.lead_or_wait()

    clock.seconds += 3600.0
    term = watcher.lead_or_wait()

    assert term is None


def test_an_outage_of_the_database_starts_the_measurement_anew(
    database: Database, clock: TwoClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody could renew nobody is measured."""
    candidate(database, "a").lead_or_wait()
    watcher = candidate(database, "b")
    watch(clock, watcher, 1.5)

    def away() -> None:
        raise LedgerUnavailable("The test took it away.")

    with monkeypatch.context() as patch:
        patch.setattr(database, "read", away)
        with pytest.raises(LedgerUnavailable):
            watcher.lead_or_wait()
    clock.seconds += 0.5
    term = watcher.lead_or_wait()

    assert term is None


def test_a_leader_that_is_provably_gone_is_replaced_at_once(database: Database, clock: TwoClocks) -> None:
    """Proof of death needs no lease."""
    candidate(database, "a").lead_or_wait()
    watcher = candidate(database, "b", gone={"a"}.__contains__)

    term = watcher.lead_or_wait()

    assert term == 2


def test_a_leader_that_leaves_is_replaced_at_once(database: Database, clock: TwoClocks) -> None:
    """After a release the next candidate that looks leads; releasing twice changes nothing."""
    leader, watcher = candidate(database, "a"), candidate(database, "b")
    leader.lead_or_wait()

    leader.release()
    term = watcher.lead_or_wait()
    leader.release()

    assert (leader.term, term, watcher.lead_or_wait()) == (None, 2, 2)


def test_a_deposed_leader_writes_nothing_more(database: Database, clock: TwoClocks) -> None:
    """Whatever a leader writes after it was replaced is undone, and it learns at its next look."""
    leader, watcher = candidate(database, "a"), candidate(database, "b")
    term = leader.lead_or_wait()
    assert term is not None
    mine = database.guarded(lambda tx: assert_leading(tx, ROLE, term))
    jobs.enqueue(mine, new_job("before"))
    watch(clock, watcher, LEADER_LEASE_SECONDS)

    with pytest.raises(LeadershipLost):
        jobs.enqueue(mine, new_job("after"))

    assert facts_of(database, "before") == ["enqueued"]
    assert facts_of(database, "after") == []
    assert leader.lead_or_wait() is None
    jobs.enqueue(database, new_job("unguarded"))


def test_a_leader_that_left_writes_nothing_more(database: Database, clock: TwoClocks) -> None:
    """A write that began in its mind before the release is refused after it."""
    leader = candidate(database, "a")
    term = leader.lead_or_wait()
    assert term is not None

    leader.release()

    with pytest.raises(LeadershipLost), database.write() as tx:
        assert_leading(tx, ROLE, term)


def test_roles_do_not_know_of_each_other(database: Database) -> None:
    """Each role has a leader of its own."""
    first, second = candidate(database, "a"), Leadership(database, "other", "b")

    assert (first.lead_or_wait(), second.lead_or_wait()) == (1, 1)


def test_the_lock_of_a_leader_that_is_stopped_in_mid_write_does_not_outlast_its_lease(
    database: Database, dialect: str
) -> None:
    """On PostgreSQL a take-over waits for the stopped leader's transaction, and the server ends that."""
    if dialect == "sqlite":
        # one writer at a time is SQLite's nature; docs/engine.md says so
        assert database.dialect == "sqlite"
        return
    leader = candidate(database, "a")
    term = leader.lead_or_wait()
    assert term is not None

    taken: list[int | None] = []

    def stopped_in_mid_write() -> None:
        with database.write() as tx:
            assert_leading(tx, ROLE, term)
            # the take-over blocks on the row until the server has ended this idle transaction
            taken.append(candidate(database, "b", gone={"a"}.__contains__).lead_or_wait())
            tx.execute(sa.text("SELECT 1"))

    with pytest.raises(LedgerUnavailable):
        stopped_in_mid_write()

    assert taken == [2]
