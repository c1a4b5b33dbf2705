"""Every state that Prefect knows, met by every situation of the ledger, through the reconciler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prefect.client.schemas.objects import StateType

from autocode.jobs.engine.holder import holding
from autocode.jobs.engine.reconcile import Reconciler, sweep_ledger
from autocode.jobs.ledger import attempts, queries, results
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.projection import ENDED_STATES, KNOWN_STATES, Outcome, RunState
from autocode.jobs.settings import CANCEL_GRACE_SECONDS, LEASE_SECONDS
from ledger_world import problem, produced
from reconcile_world import RUN, World, template, world

__all__ = ["template", "world"]

STATES = [each.value for each in StateType]


def test_every_state_type_of_prefect_is_one_that_the_contract_knows() -> None:
    """A new state type in Prefect fails here before it can show as something else."""
    assert set(STATES) == KNOWN_STATES


@pytest.mark.parametrize("state", STATES)
def test_a_job_before_its_claim_waits_or_is_given_another_run(world: World, state: str) -> None:
    """Nothing begun: a live run means queued; a run that ended unbegun is replaced and uses budget."""
    attempts.set_run(world.system.db, "job", 1, RUN)
    world.runs.says = RunState(state, state.title(), "said so")

    job = world.look()

    if state in ENDED_STATES:
        assert [(row.outcome, row.counts) for row in world.rows()] == [("failed", True), (None, False)]
        assert job.status is JobStatus.RETRY
        assert job.next_attempt_at is not None
    else:
        assert job.status is JobStatus.QUEUED
        assert len(world.rows()) == 1
    assert world.runs.closed == []


@pytest.mark.parametrize("state", STATES)
def test_a_begun_attempt_runs_until_prefect_says_that_its_run_ended(world: World, state: str) -> None:
    """Begun and renewing: running, with a note for odd states; an ended run ends the attempt."""
    world.begin()
    world.runs.says = RunState(state, state.title(), "said so")

    job = world.look()

    if state in ENDED_STATES:
        [first, _] = world.rows()
        assert first.outcome == ("crashed" if state == "CRASHED" else "failed")
        assert first.error["detail"].endswith("said so")
        assert job.status is JobStatus.RETRY
    else:
        assert job.status is JobStatus.RUNNING
        assert job.note == (None if state == "RUNNING" else f"Prefect says {state.title()}")


@pytest.mark.parametrize("state", [*STATES, "GONE", None])
def test_a_verified_result_is_complete_whatever_prefect_says(world: World, state: str | None) -> None:
    """A committed result whose object is whole decides; what Prefect has to say is noted, not obeyed."""
    attempt = world.begin()
    with world.system.store.stage() as staging:
        staging.write(b"result")
        info = staging.finish()
        staging.publish()
    results.commit_result(world.system.db, attempt, produced("result"))
    world.runs.says = RunState(state, "Name")

    job = world.look()

    assert job.status is JobStatus.COMPLETE
    assert job.result is not None
    assert job.result.digest == info.digest


@pytest.mark.parametrize("state", [*STATES, "GONE", None])
def test_a_result_without_its_object_is_never_complete(world: World, state: str | None) -> None:
    """A committed result that the store can't prove is taken back, and its attempt counts as failed."""
    attempt = world.begin()
    results.commit_result(world.system.db, attempt, produced("never written"))
    world.runs.says = RunState(state, "Name")

    job = world.look()

    assert job.status is JobStatus.RETRY
    assert job.result is None
    assert [row.outcome for row in world.rows()] == ["failed", None]


@pytest.mark.parametrize("state", STATES)
def test_a_permanent_error_is_dead_whatever_prefect_says(world: World, state: str) -> None:
    """A permanent error ends the job in every state of its run."""
    attempt = world.begin()
    attempts.end(world.system.db, "job", 1, Outcome.PERMANENT, error=problem(), token=attempt.token)
    world.runs.says = RunState(state, "Name")

    job = world.look()

    assert (job.status, job.reason) == (JobStatus.DEAD, DeadReason.PERMANENT)


@pytest.mark.parametrize("state", STATES)
def test_a_cancelled_job_is_dead_once_its_attempt_ended(world: World, state: str) -> None:
    """A cancel that came before the claim ends the job, whatever became of its run."""
    attempts.set_run(world.system.db, "job", 1, RUN)
    results.request_cancel(world.system.db, "job")
    world.runs.says = RunState(state, "Name")

    job = world.look()

    assert (job.status, job.reason) == (JobStatus.DEAD, DeadReason.CANCELLED)


def test_an_attempt_that_ignores_a_cancel_is_ended_after_a_grace_time(world: World) -> None:
    """A cancel that a living attempt doesn't answer ends it after the grace time, and Prefect learns."""
    attempt = world.begin()
    world.runs.says = RunState("RUNNING", "Running")
    results.request_cancel(world.system.db, "job")
    early = world.look(after=CANCEL_GRACE_SECONDS - 0.5, renewing=attempt)
    before = [row.outcome for row in world.rows()]

    job = world.look(after=1.0)

    assert (early.status, before) == (JobStatus.RUNNING, [None])
    assert (job.status, job.reason) == (JobStatus.DEAD, DeadReason.CANCELLED)
    assert job.error is not None
    assert job.error.type == "cancel-unanswered"
    assert [row.outcome for row in world.rows()] == ["cancelled"]
    world.look(after=60.0)
    assert world.runs.closed == [(RUN, Outcome.CANCELLED)]


def test_an_attempt_that_answers_a_cancel_is_left_alone(world: World) -> None:
    """An attempt that ends itself within the grace time dies without an error, and so does a later one."""
    attempt = world.begin()
    results.request_cancel(world.system.db, "job")
    world.look(after=CANCEL_GRACE_SECONDS - 0.5, renewing=attempt)
    attempts.end(world.system.db, "job", 1, Outcome.CANCELLED, token=attempt.token)

    job = world.look(after=10.0)

    assert (job.status, job.reason, job.error) == (JobStatus.DEAD, DeadReason.CANCELLED, None)


def test_a_run_that_vanished_before_it_began_is_replaced_for_free(world: World) -> None:
    """A run that Prefect no longer knows uses no budget."""
    attempts.set_run(world.system.db, "job", 1, RUN)
    world.runs.says = RunState("GONE")

    job = world.look()

    assert [(row.outcome, row.counts) for row in world.rows()] == [("gone", False), (None, False)]
    assert (job.status, job.attempts) == (JobStatus.RETRY, 1)


def test_a_prefect_that_does_not_answer_changes_nothing(world: World) -> None:
    """Where the run's state is unknown, the ledger's own word stands."""
    attempt = world.begin()

    job = world.look(after=20.0, renewing=attempt)

    assert job.status is JobStatus.RUNNING
    assert world.runs.closed == []


def test_a_lease_that_stood_still_is_lost_and_its_run_is_closed_as_crashed(world: World) -> None:
    """An attempt that stopped renewing is ended after one lease, and the run learns of it."""
    world.begin()
    world.runs.says = RunState("RUNNING", "Running")
    world.look()
    early = world.look(after=LEASE_SECONDS - 0.5)

    job = world.look(after=0.5)

    assert early.status is JobStatus.RUNNING
    assert job.status is JobStatus.RETRY
    assert [row.outcome for row in world.rows()] == ["lost", None]
    assert world.runs.closed == [(RUN, Outcome.LOST)]
    assert world.rows()[0].run_closed


def test_a_lease_that_moves_is_kept_for_ever(world: World) -> None:
    """An attempt that renews is left alone however long it runs."""
    attempt = world.begin()

    job = world.look(after=60.0, renewing=attempt)

    assert job.status is JobStatus.RUNNING


def test_a_watcher_that_was_held_up_itself_ends_nobody(world: World) -> None:
    """A pause between two looks proves nothing about the attempt."""
    world.begin()
    world.look()
    world.clock.seconds += 3600.0

    job = world.look()

    assert job.status is JobStatus.RUNNING


def test_nobody_is_lost_while_the_ledger_is_locked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While writing takes too long nobody can renew, so the measurement starts anew."""
    world.begin()
    write = world.system.db.write

    @contextmanager
    def slow_write() -> Iterator[Any]:
        with write() as tx:
            world.clock.seconds += 1.0
            yield tx

    monkeypatch.setattr(world.system.db, "write", slow_write)

    job = world.look(after=3 * LEASE_SECONDS)

    assert job.status is JobStatus.RUNNING


def test_a_process_that_left_a_free_lock_is_dead_at_once(world: World) -> None:
    """A holder whose lock the kernel dropped is proof of death; no lease is waited for."""
    folder = world.system.home.run / "holders"
    folder.mkdir()
    (folder / "abc").touch()
    world.begin("here:1:abc")

    job = world.look()

    assert job.status is JobStatus.RETRY
    assert [row.outcome for row in world.rows()] == ["crashed", None]


def test_a_process_that_holds_its_lock_reports_its_own_end(world: World) -> None:
    """While its process lives, the run of an attempt that ended itself is only looked at."""
    with holding(world.system.home) as holder:
        attempt = world.begin(holder)
        attempts.end(world.system.db, "job", 1, Outcome.FAILED, error=problem(), token=attempt.token)
        world.runs.says = RunState("RUNNING", "Running")
        world.look(after=60.0)
        while_it_lives = list(world.runs.closed)

    world.look()
    after_it_left = list(world.runs.closed)

    assert while_it_lives == []
    assert after_it_left == [(RUN, Outcome.FAILED)]


def test_a_process_elsewhere_has_half_a_minute_to_report_its_end(world: World) -> None:
    """Where a process can't be seen, its run is closed for it after a while."""
    attempt = world.begin()
    attempts.end(world.system.db, "job", 1, Outcome.FAILED, error=problem(), token=attempt.token)
    world.runs.says = RunState("RUNNING", "Running")
    world.look()
    early = list(world.runs.closed)

    world.look(after=31.0)

    assert early == []
    assert world.runs.closed == [(RUN, Outcome.FAILED)]


def test_a_run_that_this_process_executed_is_closed_as_soon_as_it_is_over(world: World) -> None:
    """The driver knows that its own run won't report any more."""
    with holding(world.system.home) as holder:
        attempt = world.begin(holder)
        attempts.end(world.system.db, "job", 1, Outcome.INTERRUPTED, token=attempt.token)
        world.runs.says = RunState("RUNNING", "Running")

        world.reconciler.run_is_over(RUN)
        world.look()

    assert world.runs.closed == [(RUN, Outcome.INTERRUPTED)]


@pytest.mark.parametrize(
    ("outcome", "times"), [(Outcome.LOST, 1), (Outcome.FAILED, 0)], ids=["lost", "failed"]
)
def test_who_clears_away_is_told_of_each_attempt_whose_process_died(
    world: World, outcome: Outcome, times: int
) -> None:
    """Once Prefect knows of its end; an attempt that ended itself leaves nothing to clear away."""
    buried: list[str] = []
    attempt = world.begin()
    attempts.end(world.system.db, "job", 1, outcome, error=problem(), token=attempt.token)
    world.runs.says = RunState("FAILED", "Failed")
    world.reconciler = Reconciler(world.system, world.runs, buried=lambda: buried.append("once"))

    world.look(after=2.0)

    assert len(buried) == times


def test_a_terminal_job_is_swept_until_its_runs_are_closed(world: World) -> None:
    """A dead job stays on the list of the sweep while Prefect hasn't been told of its end."""
    attempt = world.begin()
    attempts.end(world.system.db, "job", 1, Outcome.PERMANENT, error=problem(), token=attempt.token)
    sweep_ledger(world.system)
    before = queries.open_jobs(world.system.db)
    world.runs.says = RunState("FAILED", "Failed")

    asyncio.run(world.reconciler.sweep())

    assert queries.get(world.system.db, "job").status is JobStatus.DEAD
    assert before == ["job"]
    assert queries.open_jobs(world.system.db) == []


def test_two_reconcilers_at_once_end_an_attempt_once(world: World, template: Path) -> None:
    """Reconcilers that see the same dead process plan one next attempt between them."""
    folder = world.system.home.run / "holders"
    folder.mkdir()
    (folder / "abc").touch()
    world.begin("here:1:abc")
    gate = threading.Barrier(4)

    def sweep() -> None:
        gate.wait()
        asyncio.run(Reconciler(world.system, world.runs).sweep("job"))

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [row.outcome for row in world.rows()] == ["crashed", None]
