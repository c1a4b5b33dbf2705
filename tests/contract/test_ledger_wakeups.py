"""Wake-ups: a committed fact wakes whoever listens, what wasn't committed doesn't, and outages end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from autocode.jobs.ledger import jobs
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.events import Fact, record
from autocode.jobs.ledger.wakeups import Listener
from ledger_world import look, new_job, started

QUIET = 0.15
"""Seconds after which a wake-up that didn't come won't."""


@pytest.fixture
def listener(database: Database) -> Iterator[Listener]:
    """Give a listener that has heard all that was."""
    with Listener(database) as listener:
        yield listener


def test_nothing_committed_wakes_nobody(database: Database, listener: Listener) -> None:
    """Without a fact the wait ends with its time; reading is no fact."""
    with database.read() as tx:
        tx.execute(sa.text("SELECT 1"))

    assert not listener.wait(QUIET)


def test_a_committed_fact_wakes_a_listener_that_waits(database: Database, listener: Listener) -> None:
    """A fact that is committed while somebody waits ends the wait."""
    gate = threading.Timer(0.05, lambda: jobs.enqueue(database, new_job()))
    gate.start()

    woken = listener.wait(30.0)
    gate.join()

    assert woken


def test_a_fact_between_two_waits_is_not_missed_and_wakes_once(
    database: Database, listener: Listener
) -> None:
    """Facts that were committed since the last wait end the next one, all of them together."""
    started(database, "a")
    started(database, "b")

    woken = [listener.wait(5.0), listener.wait(QUIET)]

    assert woken == [True, False]


def test_a_fact_that_was_rolled_back_wakes_nobody(database: Database, listener: Listener) -> None:
    """What a transaction took back was never a fact."""
    jobs.enqueue(database, new_job())
    listener.wait(5.0)

    with database.write() as tx:
        record(tx, "job", Fact.CANCEL_REQUESTED, {}, database.clock.now())
        tx.rollback()

    assert not listener.wait(QUIET)


def test_stamped_events_wake_those_who_tell_people(database: Database, listener: Listener) -> None:
    """Events that got their cursors wake a listener; on PostgreSQL one that wants facts alone sleeps on."""
    jobs.enqueue(database, new_job())
    with Listener(database, stamps=False) as facts_alone:
        listener.wait(5.0)

        look(database)

        assert listener.wait(5.0)
        assert facts_alone.wait(QUIET) is (database.dialect == "sqlite")
        jobs.enqueue(database, new_job("another"))
        assert facts_alone.wait(5.0)


def test_a_connection_that_was_lost_is_made_again(database: Database, dialect: str) -> None:
    """A listener whose connection was cut connects again, which counts as a wake-up, and hears again."""
    with Listener(database) as listener:
        if dialect == "postgresql":
            with database.write() as tx:
                others = "pid <> pg_backend_pid() AND datname = current_database()"
                tx.execute(
                    sa.text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")  # noqa: S608 - a constant
                )
        else:
            assert listener._source is not None
            listener._source.close()

        first = listener.wait(10.0)
        jobs.enqueue(database, new_job())
        second = listener.wait(5.0)

    assert (first, second) == (True, True)


def test_a_database_that_is_away_is_waited_for(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no connection can be had the wait ends with its time, and nothing is raised."""

    def away() -> None:
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(database, "own_connection", away)
        with Listener(database) as listener:
            without = listener.wait(QUIET)
            patch.undo()
            after = listener.wait(5.0)

    assert (without, after) == (False, True)
