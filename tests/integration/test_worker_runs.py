"""Runs that a worker executes: one process each, which may die, be cancelled or lose its attempt."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.schemas.objects import StateType
from prefect.states import Cancelling

from autocode.jobs.engine.holder import proven_alive, proven_dead
from autocode.jobs.ledger import attempts
from autocode.jobs.projection import Outcome
from autocode.jobs.testing import scenarios as s
from autocode.jobs.testing.scenarios import witnessed
from engine_world import until
from worker_world import Worker, World, children_of, gone, run_flow_file, set_state

pytest_plugins = ["fixtures_engine", "fixtures_worker"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    # Prefect leaves the socket of its event client to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

Running = tuple[World, Worker]


def begun(world: World, *, times: int = 1) -> None:
    """Wait until the witness says that so many slow steps have begun."""
    until(lambda: len(witnessed(world.engine.witness)) >= times, within=60)


def test_a_run_of_a_job_completes_and_shows_its_states_and_its_process(running: Running) -> None:
    """A no-op job's run goes through Pending and Running to Completed, and names the process that ran it."""
    world, _ = running

    run_id = world.submit(s.NOOP, "noop-1")

    run = world.becomes(run_id, "Completed")
    names = [state.name for state in world.states_of(run_id)]
    assert names == ["Scheduled", "Pending", "Running", "Completed"]
    [attempt] = world.engine.attempts("noop-1")
    assert attempt.outcome == "completed"
    assert str(run.infrastructure_pid) == attempt.holder.split(":")[1]


def test_runs_for_later_begin_when_they_are_due_and_hold_no_slot_before(running: Running) -> None:
    """As many runs as there are slots are due in a few seconds; one that is due now goes before them."""
    world, _ = running
    due = datetime.now(UTC) + timedelta(seconds=8)
    later = [
        world.submit(s.NOOP, f"later-{n}", due=due - datetime.now(UTC), salt=f"later {n}") for n in range(3)
    ]

    now = world.submit(s.NOOP, "now", salt="now")

    world.becomes(now, "Completed")
    for each in later:
        world.becomes(each, "Completed")
    taken_now, *taken = [pending_at(world, each) for each in (now, *later)]
    assert taken_now < min(taken)
    assert due <= min(taken)


def pending_at(world: World, run_id: UUID) -> datetime:
    """Return when the worker took the run."""
    return next(state.timestamp for state in world.states_of(run_id) if state.name == "Pending")


def test_a_child_that_is_killed_is_reported_at_once_and_in_plain_words(running: Running) -> None:
    """SIGKILL of the child: its run is Crashed and says why, and its holder is proven dead."""
    world, _ = running
    run_id = world.submit(s.SLOW, "killed", seconds=60)
    begun(world)
    pid = world.child_of(run_id)
    holder = world.engine.attempts("killed")[-1].holder
    assert proven_alive(world.engine.home, holder)

    killed_at = datetime.now(UTC)
    os.kill(pid, signal.SIGKILL)

    run = world.becomes(run_id, "Crashed")
    assert run.state is not None
    assert "killed (SIGKILL)" in (run.state.message or "")
    assert run.state.timestamp - killed_at < timedelta(seconds=3)
    assert proven_dead(world.engine.home, holder)


def test_a_run_that_is_cancelled_in_prefect_stops_and_its_attempt_says_so(running: Running) -> None:
    """Cancelling in Prefect's UI ends the process; the run is Cancelled, the attempt failed with a hint."""
    world, _ = running
    run_id = world.submit(s.SLOW, "cancelled", seconds=60)
    begun(world)
    pid = world.child_of(run_id)

    set_state(world, run_id, Cancelling())

    world.becomes(run_id, "Cancelled")
    until(lambda: gone(pid), within=10)
    attempt = world.engine.attempts("cancelled")[0]
    assert attempt.outcome == "failed"
    assert attempt.error["type"] == "run-cancelled"


def test_a_child_whose_attempt_somebody_else_ended_leaves_without_a_word_to_prefect(running: Running) -> None:
    """Its lease is revoked in the ledger: the child ends, and says nothing about its run."""
    world, _ = running
    run_id = world.submit(s.SLOW, "fenced", seconds=60)
    begun(world)
    pid = world.child_of(run_id)

    attempts.end(world.engine.system.db, "fenced", 1, Outcome.LOST)

    until(lambda: gone(pid), within=10)
    free = world.submit(s.NOOP, "after-fenced", salt="after fenced")
    world.becomes(free, "Completed")
    assert [state.name for state in world.states_of(run_id)][-1] == "Running"


def test_a_stopped_child_whose_attempt_is_over_is_killed_and_not_reported(running: Running) -> None:
    """SIGSTOP, then its lease is lost: the worker kills it within seconds and says nothing about its run."""
    world, _ = running
    run_id = world.submit(s.SLOW, "stopped", seconds=60)
    begun(world)
    pid = world.child_of(run_id)
    os.kill(pid, signal.SIGSTOP)

    attempts.end(world.engine.system.db, "stopped", 1, Outcome.LOST)

    until(lambda: gone(pid), within=10)
    free = world.submit(s.NOOP, "after-stopped", salt="after stopped")
    world.becomes(free, "Completed")
    assert [state.name for state in world.states_of(run_id)][-1] == "Running"


def test_the_zygote_is_started_again_and_its_children_live_on(running: Running) -> None:
    """SIGKILL of the zygote: a run in flight completes, one that is killed is noticed, new ones begin."""
    world, worker = running
    zygote = worker.zygote()
    completes = world.submit(s.SLOW, "survives", seconds=3, salt="survives")
    dies = world.submit(s.SLOW, "dies", seconds=60, salt="dies")
    begun(world, times=2)
    victim = world.child_of(dies)

    os.kill(zygote, signal.SIGKILL)
    os.kill(victim, signal.SIGKILL)

    crashed = world.becomes(dies, "Crashed")
    assert crashed.state is not None
    assert "SIGKILL" in (crashed.state.message or "")
    world.becomes(completes, "Completed")
    world.becomes(world.submit(s.NOOP, "next", salt="next"), "Completed")
    assert worker.zygote() != zygote
    until(lambda: len(children_of(worker.pid)) == 1, within=10, told=lambda: children_of(worker.pid))


FOREIGN = """
import os, subprocess, pathlib
from prefect import flow

@flow
def foreign(told: str, fail: bool = False) -> None:
    helper = subprocess.Popen(["sleep", "600"])
    pathlib.Path(told).write_text(f"{os.getcwd()} {os.getpgrp() == os.getpid()} {os.nice(0)} {helper.pid}")
    if fail:
        raise ValueError("as asked")
"""


def test_a_flow_that_is_no_jobs_runs_too_and_what_it_started_ends_with_it(
    running: Running, tmp_path: Path
) -> None:
    """A sync flow of somebody else's, with a pull step, runs in a group of its own and leaves nothing."""
    world, worker = running
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "foreign.py").write_text(FOREIGN)
    told = tmp_path / "told"
    pull = [{"prefect.deployments.steps.set_working_directory": {"directory": str(tmp_path / "code")}}]

    run_id = run_flow_file(world, "foreign.py:foreign", {"told": str(told)}, pull_steps=pull)

    world.becomes(run_id, "Completed")
    folder, leads, nice, helper = told.read_text().split()
    assert (folder, leads) == (str(tmp_path / "code"), "True")
    assert int(nice) == min(19, os.getpriority(os.PRIO_PROCESS, worker.pid) + 10)
    until(lambda: gone(int(helper)), within=5)


def test_a_flow_that_fails_is_failed_and_not_crashed(running: Running, tmp_path: Path) -> None:
    """An exception of the flow itself is told by Prefect's engine; the process ends in good order."""
    world, _ = running
    (tmp_path / "foreign.py").write_text(FOREIGN)
    entrypoint = f"{tmp_path / 'foreign.py'}:foreign"

    run_id = run_flow_file(world, entrypoint, {"told": str(tmp_path / "told"), "fail": True})

    run = world.becomes(run_id, "Failed")
    assert run.state is not None
    assert "as asked" in (run.state.message or "")


def test_a_command_as_a_job_variable_is_refused_with_the_way_out(running: Running, tmp_path: Path) -> None:
    """The run is Crashed before it begins, and its message names the variable and another type of pool."""
    world, _ = running
    (tmp_path / "foreign.py").write_text(FOREIGN)
    entrypoint = f"{tmp_path / 'foreign.py'}:foreign"

    run_id = run_flow_file(world, entrypoint, {"told": ""}, variables={"command": "python -m prefect.engine"})

    run = world.becomes(run_id, "Crashed")
    assert run.state is not None
    assert run.state.type is StateType.CRASHED
    assert "'command'" in (run.state.message or "")


def test_waiting_runs_move_up_as_slots_become_free(running: Running) -> None:
    """Seven no-ops through three slots complete, each once."""
    world, _ = running
    runs = [world.submit(s.NOOP, f"many-{n}", salt=f"many {n}") for n in range(7)]

    for each in runs:
        world.becomes(each, "Completed", within=60)

    outcomes = [[row.outcome for row in world.engine.attempts(f"many-{n}")] for n in range(7)]
    assert outcomes == [["completed"]] * 7
