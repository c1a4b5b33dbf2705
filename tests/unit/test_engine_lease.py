"""The two ends of a lease, on a clock that the test moves; and the threads that steps run in."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from autocode.jobs.engine.lease import LeaseKeeper, LeaseWatch
from autocode.jobs.engine.threads import StepExited, in_daemon_thread
from autocode.jobs.errors import AttemptEnded, DiskFull, JobCancelled, LedgerUnavailable, StepTimedOut
from autocode.jobs.ledger import attempts
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.database import Database


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        """Return the clock's time in seconds."""
        return self.seconds


class Renewals:
    """Stands in for the ledger: counts renewals, and raises what the test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.raises: Exception | None = None
        self.called_off = False
        self.called = threading.Event()
        monkeypatch.setattr(attempts, "renew", self.renew)

    def renew(self, db: Database, attempt: Attempt) -> bool:
        """Count, or raise; say whether the job was called off."""
        self.called.set()
        if self.raises is not None:
            raise self.raises
        self.count += 1
        return self.called_off


class FakeDatabase:
    """Has a clock, and that is all that a keeper asks of it."""

    def __init__(self) -> None:
        self.clock = Clock()


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> Renewals:
    """Watch the renewals of this test's keeper."""
    return Renewals(monkeypatch)


def keeper(database: FakeDatabase, *, limit: float = 60.0, interval: float = 1.0) -> LeaseKeeper:
    """Return a keeper that has not been started."""
    attempt = Attempt("job", 1, "token", 1, time_limit=limit)
    return LeaseKeeper(database, attempt, interval=interval)  # type: ignore[arg-type]  # see FakeDatabase


def test_a_beat_renews_and_the_attempt_goes_on(renewals: Renewals) -> None:
    """A renewal that succeeds says nothing."""
    kept = keeper(FakeDatabase())

    going_on = kept.beat()

    assert going_on
    assert renewals.count == 1
    assert kept.reason is None
    kept.check()


def test_a_cancel_stops_the_attempt_and_the_lease_goes_on(renewals: Renewals) -> None:
    """Once the job is called off the attempt must stop; it still renews, so that it may end itself."""
    kept = keeper(FakeDatabase())
    renewals.called_off = True

    going_on = kept.beat() and kept.beat()

    assert going_on
    assert renewals.count == 2
    with pytest.raises(JobCancelled):
        kept.check()


def test_a_cancel_is_no_other_reason(renewals: Renewals) -> None:
    """An attempt that had to stop before the cancel keeps the first reason."""
    kept = keeper(FakeDatabase())
    kept.stop()
    renewals.called_off = True

    kept.beat()

    assert kept.reason is not None
    assert not isinstance(kept.reason, JobCancelled)


def test_a_keeper_renews_from_a_thread_until_its_block_ends(renewals: Renewals) -> None:
    """Renewals come by themselves, and stop with the block."""
    kept = keeper(FakeDatabase(), interval=0.001)

    with kept:
        renewed = renewals.called.wait(10.0)

    # the block waits for the thread no longer than an interval, which is a millisecond here
    kept._thread.join(10.0)
    assert renewed
    assert not kept._thread.is_alive()


def test_an_attempt_that_was_ended_stops_at_its_next_check(renewals: Renewals) -> None:
    """Once somebody ended the attempt nothing is renewed any more, and every check raises."""
    kept = keeper(FakeDatabase())
    renewals.raises = AttemptEnded("ended elsewhere")

    going_on = kept.beat()

    assert not going_on
    with pytest.raises(AttemptEnded, match="ended elsewhere"):
        kept.check()


@pytest.mark.parametrize("outage", [LedgerUnavailable("away"), DiskFull("no room")])
def test_an_outage_of_the_ledger_is_waited_for(renewals: Renewals, outage: Exception) -> None:
    """A ledger that can't be reached or written ends no attempt; the renewal that works again counts."""
    kept = keeper(FakeDatabase())
    renewals.raises = outage
    during = [kept.beat() for _ in range(20)]
    renewals.raises = None

    after = kept.beat()

    assert during == [True] * 20
    assert after
    assert renewals.count == 1
    kept.check()


def test_the_time_limit_stops_the_attempt_which_still_renews(renewals: Renewals) -> None:
    """Over its limit, an attempt must stop; it keeps its lease until it has said so."""
    database = FakeDatabase()
    kept = keeper(database, limit=10.0)
    database.clock.seconds += 10.0
    kept.beat()
    kept.check()

    database.clock.seconds += 0.1
    going_on = kept.beat()

    assert going_on
    assert renewals.count == 2
    with pytest.raises(StepTimedOut, match="limit of 10 s"):
        kept.check()


def test_the_first_reason_to_stop_is_the_one_that_is_told(renewals: Renewals) -> None:
    """An attempt that timed out and was then ended says that it timed out."""
    database = FakeDatabase()
    kept = keeper(database, limit=1.0)
    database.clock.seconds += 2.0
    kept.beat()
    renewals.raises = AttemptEnded("later")

    kept.beat()
    kept.stop()

    assert isinstance(kept.reason, StepTimedOut)


def test_a_counter_that_stands_still_for_a_lease_is_lost() -> None:
    """Lost means one whole lease without a move, on the watcher's own clock."""
    clock = Clock()
    watch = LeaseWatch(clock, lease=4.0)  # type: ignore[arg-type]  # a watch only measures
    stood = []

    for _ in range(5):
        stood.append(watch.stood_still("job", 7))
        clock.seconds += 1.0

    assert stood == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_a_counter_that_moves_starts_the_measurement_anew() -> None:
    """Any move will do, also one that comes late."""
    clock = Clock()
    watch = LeaseWatch(clock, lease=4.0)  # type: ignore[arg-type]  # a watch only measures
    watch.stood_still("job", 7)
    clock.seconds += 2.0
    watch.stood_still("job", 7)

    moved = watch.stood_still("job", 8)
    clock.seconds += 1.0
    later = watch.stood_still("job", 8)

    assert (moved, later) == (0.0, 0.25)


def test_a_watcher_that_did_not_look_has_seen_nothing() -> None:
    """A pause of more than half a lease between two looks starts the measurement anew."""
    clock = Clock()
    watch = LeaseWatch(clock, lease=4.0)  # type: ignore[arg-type]  # a watch only measures
    watch.stood_still("job", 7)
    clock.seconds += 2.1

    stood = watch.stood_still("job", 7)

    assert stood == 0.0


def test_after_an_outage_every_measurement_starts_anew() -> None:
    """What was known of one key or another is dropped."""
    clock = Clock()
    watch = LeaseWatch(clock, lease=4.0)  # type: ignore[arg-type]  # a watch only measures
    watch.stood_still("a", 1)
    clock.seconds += 1.0

    watch.forget_all()

    assert watch.stood_still("a", 1) == 0.0


def test_a_result_and_an_error_come_back_from_the_thread() -> None:
    """A future of the loop carries what the function returned or raised."""

    async def both() -> tuple[int, BaseException | None]:
        good = await in_daemon_thread(divmod, 7, 2)
        bad = in_daemon_thread(divmod, 7, 0)
        await asyncio.wait({bad})
        return good[0], bad.exception()

    quotient, error = asyncio.run(both())

    assert quotient == 3
    assert isinstance(error, ZeroDivisionError)


def test_a_step_that_calls_sys_exit_ends_itself_and_not_the_process() -> None:
    """SystemExit in a step is an error of the step."""

    async def leave() -> None:
        await in_daemon_thread(sys.exit, 3)

    with pytest.raises(StepExited, match="SystemExit: 3"):
        asyncio.run(leave())


def test_a_loop_closes_without_waiting_for_a_thread_that_was_left() -> None:
    """A cancelled call leaves its thread to itself, and what it ends with bothers nobody."""
    release = threading.Event()
    entered = threading.Event()

    def block() -> None:
        entered.set()
        release.wait(30.0)
        raise ValueError("nobody reads this")

    async def leave() -> bool:
        future = in_daemon_thread(block)
        await asyncio.to_thread(entered.wait, 30.0)
        return future.cancel()

    cancelled = asyncio.run(leave())
    release.set()
    for thread in threading.enumerate():
        if thread.name == "block":
            thread.join(10.0)

    assert cancelled
