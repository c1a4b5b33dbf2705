"""How workers end, in good order and by SIGKILL, and what becomes of the runs that they had."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from autocode.jobs.engine.holder import proven_dead
from autocode.jobs.engine.worker.registry import started_at
from autocode.jobs.ledger import attempts
from autocode.jobs.projection import Outcome
from autocode.jobs.testing import scenarios as s
from autocode.jobs.testing.scenarios import witnessed
from engine_world import SOURCES, until
from worker_world import POOL, World, gone, held, worker_environment

pytest_plugins = ["fixtures_engine", "fixtures_worker"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    # Prefect leaves the socket of its event client to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def begun(world: World, *, times: int = 1) -> None:
    """Wait until the witness says that so many slow steps have begun."""
    until(lambda: len(witnessed(world.engine.witness)) >= times, within=60)


def outcomes(world: World, job_id: str) -> list[str | None]:
    """Return how the job's attempts ended."""
    return [attempt.outcome for attempt in world.engine.attempts(job_id)]


def test_sigterm_hands_running_attempts_back_without_using_their_budget(own_workers: World) -> None:
    """After the grace time attempts are interrupted, runs Cancelled with the reason; the worker ends with 0.

    One whose process is stopped, and so can't do it itself, is handed back all the same.
    """
    world = own_workers
    worker = world.start(grace=0.2).ready()
    runs = [world.submit(s.SLOW, job, seconds=60, salt=job) for job in ("drained", "frozen")]
    begun(world, times=2)
    os.kill(world.child_of(runs[1]), signal.SIGSTOP)

    status = worker.stop()

    assert status == 0, worker.log.read_text()
    for job, run_id in zip(("drained", "frozen"), runs, strict=True):
        assert outcomes(world, job) == ["interrupted", None]
        run = world.run_of(run_id)
        assert run.state is not None
        assert (run.state.name, "handed the attempt back" in (run.state.message or "")) == ("Cancelled", True)
    assert not (world.engine.home.run / "worker.json").exists()
    assert held(world.engine) == []


@pytest.mark.long
def test_sigterm_lets_a_run_end_within_the_grace_time_and_takes_no_other(own_workers: World) -> None:
    """The run that is nearly done completes; the one that waited for its slot stays scheduled."""
    world = own_workers
    worker = world.start(limit=1, grace=60.0).ready()
    running = world.submit(s.SLOW, "nearly", seconds=3, salt="nearly")
    begun(world)
    waiting = world.submit(s.NOOP, "waiting", salt="waiting")

    status = worker.stop()

    assert status == 0, worker.log.read_text()
    assert outcomes(world, "nearly") == ["completed"]
    assert world.run_of(running).state_name == "Completed"
    assert world.run_of(waiting).state_name == "Scheduled"


@pytest.mark.long
def test_children_of_a_worker_that_is_killed_hand_their_attempts_back(own_workers: World) -> None:
    """SIGKILL of the worker alone: the attempt is interrupted, the run Cancelled, no process is left."""
    world = own_workers
    worker = world.start().ready()
    run_id = world.submit(s.SLOW, "orphaned", seconds=60)
    begun(world)
    child, zygote = world.child_of(run_id), worker.zygote()

    worker.process.kill()
    worker.process.wait()

    until(lambda: gone(child), within=10)
    assert outcomes(world, "orphaned") == ["interrupted", None]
    error = world.engine.attempts("orphaned")[0].error
    assert error["detail"] == "The worker that ran it was killed or died, so its process handed it back."
    world.becomes(run_id, "Cancelled")
    until(lambda: gone(zygote), within=10)
    assert held(world.engine) == []


def test_a_killed_worker_tree_is_proven_dead_and_the_next_worker_goes_on(own_workers: World) -> None:
    """SIGKILL of worker, zygote and child at once; a new worker of the same name runs the next attempt."""
    world = own_workers
    worker = world.start().ready()
    first = world.submit(s.TEN_STEPS, "tree", salt="tree")
    slow = world.submit(s.SLOW, "tree-slow", seconds=60)
    world.becomes(first, "Completed")
    child = world.child_of(slow)
    until(
        lambda: outcomes(world, "tree-slow") == [None] and bool(world.engine.attempts("tree-slow")[0].holder),
        within=20,
    )
    processes = [child, worker.zygote(), worker.pid]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)

    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    worker.process.wait()

    holder = world.engine.attempts("tree-slow")[0].holder
    until(lambda: proven_dead(world.engine.home, holder), within=10)
    attempts.end(world.engine.system.db, "tree-slow", 1, Outcome.CRASHED)
    world.start().ready()
    second = world.submit_attempt(s.SLOW, "tree-slow", 2, seconds=0.1)
    world.becomes(second, "Completed")
    assert outcomes(world, "tree-slow") == ["crashed", "completed"]


@pytest.mark.long
def test_an_orphan_is_killed_once_its_attempt_is_over_and_never_a_namesake(own_workers: World) -> None:
    """A child was stopped when its worker's tree was killed; a file names another process by its number."""
    world = own_workers
    worker = world.start().ready()
    run_id = world.submit(s.SLOW, "frozen-orphan", seconds=60)
    begun(world)
    child = world.child_of(run_id)
    os.kill(child, signal.SIGSTOP)
    os.kill(worker.zygote(), signal.SIGKILL)
    worker.process.kill()
    worker.process.wait()
    bystander = subprocess.Popen(["sleep", "600"])
    folder = world.engine.home.run / "children"
    told = json.loads((folder / str(child)).read_text())
    (folder / str(bystander.pid)).write_text(json.dumps({**told, "pid": bystander.pid}))

    world.start().ready()
    alive_before = not gone(child)
    attempts.end(world.engine.system.db, "frozen-orphan", 1, Outcome.LOST)

    try:
        assert alive_before
        until(lambda: gone(child), within=10)
        until(lambda: not any(folder.iterdir()), within=10, told=lambda: list(folder.iterdir()))
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.long
def test_two_workers_on_one_pool_run_no_run_twice(own_workers: World) -> None:
    """Twenty no-ops, two workers that hear of each at the same moment: every run has run once."""
    world = own_workers
    for name in ("one", "two"):
        world.start(name=name, environment={"AUTOCODE_WORKER_FLOWS": s.NOOP.flow})
    for worker in world.workers:
        worker.ready()

    runs = {f"twin-{n}": world.submit(s.NOOP, f"twin-{n}", salt=f"twin {n}") for n in range(20)}

    for job, run_id in runs.items():
        world.becomes(run_id, "Completed", within=60)
        assert [state.name for state in world.states_of(run_id)].count("Running") == 1
        assert outcomes(world, job) == ["completed"]


@pytest.mark.long
def test_a_crash_point_strikes_in_a_child_and_once(own_workers: World) -> None:
    """AUTOCODE_CRASH of the worker kills the first attempt's process; the second attempt is left alone."""
    world = own_workers
    world.start(environment={"AUTOCODE_CRASH": "step.after-object"}).ready()

    first = world.submit(s.NOOP, "struck", salt="struck")
    run = world.becomes(first, "Crashed")
    assert run.state is not None
    assert "SIGKILL" in (run.state.message or "")
    attempts.end(world.engine.system.db, "struck", 1, Outcome.CRASHED)
    second = world.submit_attempt(s.NOOP, "struck", 2, salt="struck")

    world.becomes(second, "Completed")


@pytest.mark.long
def test_a_second_worker_of_the_same_name_is_refused(own_workers: World) -> None:
    """It says which lock is held and what to do, and the first one goes on."""
    world = own_workers
    world.start(name="twin").ready()

    second = world.start(name="twin")

    assert second.process.wait(60) == 2
    assert "another --name" in second.log.read_text()
    world.becomes(world.submit(s.NOOP, "first-goes-on", salt="goes on"), "Completed")


@pytest.mark.long
def test_a_worker_outlives_its_prefect_server(own_workers: World) -> None:
    """SIGKILL of the server: once it is back, the same worker runs what is submitted then."""
    world = own_workers
    worker = world.start().ready()
    recorded = world.engine.home.run / "server.json"
    before = json.loads(recorded.read_text())["pid"]

    os.kill(before, signal.SIGKILL)
    until(lambda: json.loads(recorded.read_text())["pid"] != before, within=90)

    world.becomes(world.submit(s.NOOP, "after-outage", salt="outage"), "Completed", within=90)
    assert worker.process.poll() is None


@pytest.mark.long
def test_prefects_own_command_starts_a_worker_of_this_type(own_workers: World, tmp_path: Path) -> None:
    """``prefect worker start --type autocode-jobs`` finds the type, runs a job, and ends on SIGTERM.

    The entry point is that of pyproject.toml, as an installation would record it.
    """
    world = own_workers
    project = tomllib.loads((SOURCES.parent / "pyproject.toml").read_text())["project"]
    [(name, module)] = project["entry-points"]["prefect.collections"].items()
    installed = tmp_path / "installed" / "autocode_jobs_here-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: autocode-jobs-here\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[prefect.collections]\n{name} = {module}\n")
    environment = worker_environment(world.engine)
    environment |= {
        "PYTHONPATH": os.pathsep.join([environment["PYTHONPATH"], str(installed.parent)]),
        "PREFECT_API_URL": world.address.url,
        "PREFECT_API_AUTH_STRING": world.address.auth,
        # one that doesn't end says where it stands
        "PYTHONFAULTHANDLER": "1",
    }
    log = tmp_path / "prefect.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                Path(sys.executable).with_name("prefect"),
                "worker",
                "start",
                "--type",
                "autocode-jobs",
                "--pool",
                POOL,
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    try:
        until(world.has_pool, within=60, told=log.read_text)
        run_id = world.submit(s.NOOP, "by-prefect", salt="by prefect")
        world.becomes(run_id, "Completed", within=90)
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        if process.poll() is None:
            process.send_signal(signal.SIGABRT)
        assert process.wait(10) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert started_at(process.pid) is None
