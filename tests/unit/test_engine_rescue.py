"""What a service rescues: attempts that nobody would ever end, each told in Prefect in plain words."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from autocode.jobs.engine.holder import driven, holding
from autocode.jobs.engine.rescue import (
    CANCELLING_SECONDS,
    FOREIGN_PENDING_SECONDS,
    GRACE_SECONDS,
    PENDING_SECONDS,
)
from autocode.jobs.ledger import attempts, jobs, queries, results, schema, statuses
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.projection import Lease, Outcome, RunState
from autocode.jobs.settings import CANCEL_GRACE_SECONDS, LEASE_SECONDS
from ledger_world import new_job, problem, told
from reconcile_world import RUN, World, served, template, world

__all__ = ["served", "template", "world"]

PENDING = RunState("PENDING", "Pending")
RUNNING = RunState("RUNNING", "Running")
CANCELLING = RunState("CANCELLING", "Cancelling")
SCHEDULED = RunState("SCHEDULED", "Scheduled")


def outcomes(world: World) -> list[str | None]:
    """Return how each attempt ended."""
    return [row.outcome for row in world.rows()]


@pytest.mark.parametrize("state", [PENDING, RUNNING], ids=["Pending", "Running"])
@pytest.mark.parametrize(("ours", "patience"), [(True, PENDING_SECONDS), (False, FOREIGN_PENDING_SECONDS)])
def test_a_run_that_nobody_claims_is_given_up(
    served: World, ours: bool, patience: float, state: RunState
) -> None:
    """Pending or Running without a begun attempt for so long: lost, and closed; other pools get more time."""
    attempts.set_run(served.system.db, "job", 1, RUN)
    served.runs.says, served.runs.ours = state, ours

    served.look()
    early = served.look(after=patience - 2.5, step=2.5)
    late = served.look(after=2.5, step=2.5)

    assert early.status is JobStatus.QUEUED
    assert late.status is JobStatus.RETRY
    assert outcomes(served) == ["lost", None]
    assert served.runs.closed == [(RUN, Outcome.LOST)]


def test_a_run_that_was_pending_now_and_then_is_not_stuck(served: World) -> None:
    """Only an uninterrupted Pending counts, seen by somebody who looked and got an answer all the time."""
    attempts.set_run(served.system.db, "job", 1, RUN)
    for between in (SCHEDULED, RunState()):
        served.runs.says = PENDING
        served.look(after=PENDING_SECONDS - 1.0, step=1.0)
        served.runs.says = between
        served.look()
    served.runs.says = PENDING
    served.look()
    served.clock.seconds += 3600.0

    served.look()

    assert outcomes(served) == [None]


def test_a_pending_run_whose_attempt_began_is_left_alone(served: World) -> None:
    """The ledger's word goes before Prefect's: a begun attempt that renews isn't stuck."""
    attempt = served.begin()
    served.runs.says = PENDING

    job = served.look(after=2 * PENDING_SECONDS, renewing=attempt, step=1.0)

    assert job.status is JobStatus.RUNNING


@pytest.mark.parametrize("asked", [False, True])
def test_a_cancel_in_prefect_that_nobody_answers_ends_the_attempt(served: World, asked: bool) -> None:
    """Cancelling for so long: the attempt ends, as cancelled where the job was called off, else as failed.

    An attempt of a job that was called off has heard of it, and gets less time.
    """
    attempt = served.begin()
    patience = CANCEL_GRACE_SECONDS if asked else CANCELLING_SECONDS
    if asked:
        results.request_cancel(served.system.db, "job")
    served.runs.says = CANCELLING

    served.look()
    early = served.look(after=patience - 1.0, renewing=attempt, step=1.0)
    late = served.look(after=1.0)

    assert early.status is JobStatus.RUNNING
    if asked:
        assert (late.status, late.reason) == (JobStatus.DEAD, DeadReason.CANCELLED)
        assert outcomes(served) == ["cancelled"]
    else:
        assert late.status is JobStatus.RETRY
        assert outcomes(served) == ["failed", None]


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(hours=1)])
def test_an_attempt_past_its_time_limit_is_ended_whatever_the_wall_clock_says(
    served: World, jump: timedelta
) -> None:
    """Limit and grace are measured on the monotonic clock; a jump of an hour judges nobody."""
    attempt = served.begin()
    served.runs.says = RUNNING
    limit = 60.0 + GRACE_SECONDS
    served.look()
    served.clock.shift = jump

    early = served.look(after=limit - 1.0, renewing=attempt, step=1.0)
    late = served.look(after=1.0)

    assert early.status is JobStatus.RUNNING
    assert late.status is JobStatus.RETRY
    assert late.error is not None
    assert "longer than its limit of 60 s" in late.error.detail
    assert outcomes(served) == ["timed-out", None]


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_lease_is_judged_whatever_the_wall_clock_says(served: World, jump: timedelta) -> None:
    """After a jump of an hour an attempt that renews goes on, and one that falls silent is lost as ever."""
    attempt = served.begin()
    served.runs.says = RUNNING
    served.look(after=2.0, renewing=attempt)
    served.clock.shift = jump

    alive = served.look(after=4 * LEASE_SECONDS, renewing=attempt)
    early = served.look(after=LEASE_SECONDS - 0.5)
    late = served.look(after=0.5)

    assert (alive.status, early.status) == (JobStatus.RUNNING, JobStatus.RUNNING)
    assert late.status is JobStatus.RETRY
    assert outcomes(served) == ["lost", None]


def test_a_run_that_hangs_past_its_limit_is_closed_though_its_process_lives(served: World) -> None:
    """A process that can't stop has half a minute to say so itself; then its run is closed for it."""
    with holding(served.system.home) as holder:
        attempt = served.begin(holder)
        served.runs.says = RUNNING
        served.look()
        served.look(after=60.0 + GRACE_SECONDS, renewing=attempt, step=1.0)
        at_once = list(served.runs.closed)
        served.look(after=31.0, step=1.0)

    assert outcomes(served)[0] == "timed-out"
    assert at_once == []
    assert served.runs.closed == [(RUN, Outcome.TIMED_OUT)]


def test_what_a_dead_command_left_planned_is_taken_over(served: World) -> None:
    """A run without a deployment waits for the command that made it; once that is gone it is replaced."""
    attempts.set_run(served.system.db, "job", 1, RUN)
    served.runs.says, served.runs.deployed = SCHEDULED, False
    served.driven = {"job"}
    served.look()
    while_driven = outcomes(served)

    served.driven = set()
    job = served.look()

    assert while_driven == [None]
    assert [(row.outcome, row.counts) for row in served.rows()] == [("interrupted", False), (None, False)]
    assert job.status is JobStatus.RETRY
    assert served.runs.closed == [(RUN, Outcome.INTERRUPTED)]
    assert [each for each, _, _ in attempts.wants_run(served.system.db)] == ["job"]


def test_a_job_called_off_before_it_began_leaves_no_run_waiting(served: World) -> None:
    """The planned attempt ends with the job, and its run is cancelled in Prefect at once."""
    attempts.set_run(served.system.db, "job", 1, RUN)
    served.runs.says = SCHEDULED
    served.look()
    results.request_cancel(served.system.db, "job")

    job = served.look()

    assert (job.status, job.reason) == (JobStatus.DEAD, DeadReason.CANCELLED)
    assert outcomes(served) == ["cancelled"]
    assert served.runs.closed == [(RUN, Outcome.CANCELLED)]
    assert served.runs.told[0].startswith("the job was cancelled at ")


def test_a_job_that_died_before_its_planned_attempt_was_ended_is_looked_at_again(served: World) -> None:
    """A cancel may come between a look and its stamp: the job is told dead, and the next look ends it."""
    attempts.set_run(served.system.db, "job", 1, RUN)
    served.runs.says = SCHEDULED
    results.request_cancel(served.system.db, "job")
    statuses.stamp(served.system.db, "job", SCHEDULED, Lease.ALIVE)
    stamped = queries.get(served.system.db, "job").status

    asyncio.run(served.reconciler.sweep())
    left = queries.open_jobs(served.system.db)

    assert stamped is JobStatus.DEAD
    assert outcomes(served) == ["cancelled"]
    assert served.runs.closed == [(RUN, Outcome.CANCELLED)]
    assert left == []


def test_a_command_says_which_job_it_drives_while_it_lives(served: World) -> None:
    """The record is the lock's file, so that it ends with the process."""
    home = served.system.home
    with holding(home, drives="job"), holding(home):
        during = driven(home)

    assert (during, driven(home)) == ({"job"}, set())


def test_a_one_shot_command_rescues_nothing(world: World) -> None:
    """Without a service a run that stays pending is nobody's business but its command's."""
    attempts.set_run(world.system.db, "job", 1, RUN)
    world.runs.says = PENDING

    job = world.look(after=2 * PENDING_SECONDS, step=1.0)

    assert job.status is JobStatus.QUEUED


def test_an_outage_of_the_database_gives_everybody_a_whole_lease(served: World) -> None:
    """After the ledger was away nobody is judged before one lease has passed."""
    served.begin()
    served.runs.says = RUNNING
    served.look(after=LEASE_SECONDS - 0.5)

    served.reconciler.forget_leases()
    after_outage = served.look(after=LEASE_SECONDS - 0.5)
    served.look(after=1.0)

    assert after_outage.status is JobStatus.RUNNING
    assert outcomes(served) == ["lost", None]


def test_prefect_that_is_away_costs_nobody_an_attempt(served: World) -> None:
    """Without an answer the ledger alone decides: who renews goes on, whatever was seen before."""
    attempt = served.begin()
    served.runs.says = CANCELLING
    served.look(after=CANCELLING_SECONDS - 1.0, renewing=attempt, step=1.0)
    served.runs.says = RunState()

    job = served.look(after=CANCELLING_SECONDS, renewing=attempt, step=1.0)

    assert (job.status, job.note) == (JobStatus.RUNNING, None)


def test_a_run_closed_by_the_service_says_what_happened_and_what_follows(served: World) -> None:
    """The message has the time of the loss and that of the next attempt, in UTC, and counts the budget."""
    with holding(served.system.home):
        served.begin()
    served.runs.says = RUNNING
    served.look()
    served.look(after=LEASE_SECONDS)

    first, second = served.rows()
    lost, follows = first.ended_at.strftime("%H:%M:%S"), second.due_at.strftime("%H:%M:%S")
    assert served.runs.told == [f"worker lost at {lost}; attempt 2 of 3 follows at {follows} (UTC)"]


def test_the_run_of_the_last_attempt_says_how_to_try_again(served: World) -> None:
    """Once the budget is spent the message names the command for a retry."""
    for n in (1, 2, 3):
        attempt = attempts.begin(served.system.db, "job", n, flow_run_id=RUN[:-1] + str(n), holder="x:1:y-z")
        attempts.end(served.system.db, "job", n, Outcome.LOST, error=problem(), token=attempt.token)
    served.runs.says = RUNNING

    served.look()

    command = "autocode-jobs jobs retry job --reason TEXT"
    assert served.runs.told[-1].endswith(f" (UTC); the job is dead, to try again: {command}")


def test_a_sweep_of_many_jobs_asks_a_constant_number_of_questions(served: World) -> None:
    """200 open jobs among 300 that are over cost as many queries as 1, and one request to Prefect."""
    db = served.system.db
    now = db.clock.now()
    with db.write() as tx:
        for number in range(500):
            job_id = f"job-{number}"
            jobs._insert(tx, new_job(job_id), now, f"run-{number}")
            if number >= 200:
                of = schema.attempts.c.job_id == job_id
                ended = {"ended_at": now, "outcome": "permanent", "run_closed": True}
                tx.execute(sa.update(schema.attempts).where(of).values(**ended))
                of = schema.statuses.c.job_id == job_id
                tx.execute(sa.update(schema.statuses).where(of).values(status="dead", reason="permanent"))
        tx.execute(sa.update(schema.events).values(cursor=schema.events.c.id))
    served.runs.says = SCHEDULED
    asyncio.run(served.reconciler.sweep())
    served.runs.looks.clear()

    with counted(db) as statements:
        asyncio.run(served.reconciler.sweep())

    assert len(statements) <= 8, statements
    assert [len(look) for look in served.runs.looks] == [200]
    assert len(queries.open_jobs(db)) == 201


@contextmanager
def counted(db: Any) -> Any:
    """Give the statements that are executed within the block, but for the limits of transactions."""
    statements: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement not in {"BEGIN", "BEGIN IMMEDIATE"}:
            statements.append(statement)

    sa.event.listen(db._engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(db._engine, "before_cursor_execute", note)


def test_one_job_in_trouble_does_not_keep_the_others_waiting(served: World) -> None:
    """A look that fails is told after the others had their turn."""
    db = served.system.db
    jobs.enqueue(db, new_job("a-broken"))
    attempts.set_run(db, "a-broken", 1, RUN)
    served.runs.says = RunState("UNHEARD-OF")

    with pytest.raises(ValueError, match="UNHEARD-OF"):
        asyncio.run(served.reconciler.sweep())

    assert [event["type"] for event in told(db, "job")] == ["job.queued"]
    assert told(db, "a-broken") == []
