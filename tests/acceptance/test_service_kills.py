"""Every process of the service is killed while jobs are on their way, and nothing is lost or repeated.

Somebody asks for the status of all jobs every 50 ms throughout, and is never told what the contract forbids.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from autocode.jobs.resource import Job
from autocode.jobs.settings import LEASE_SECONDS
from autocode.jobs.store import verify_store
from autocode.jobs.testing.queue_contract import ProcessContract
from kills_world import SLOTS, Exported, Kills, kill, service_world, state_of
from service_subject import OverHttp
from worker_world import children_of, gone, parent_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SHOWN_SECONDS = LEASE_SECONDS + 2.0
"""How long the contract lets a dead attempt be shown as running."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Kills]:
    """Give a service that the module's tests share."""
    with service_world() as world:
        yield world


@pytest.fixture
def world(shared: Kills) -> Iterator[Kills]:
    """Give the shared service; after each test its event log is legal, and nobody was told a lie."""
    yield shared
    assert shared.watcher.wrong == []
    shared.legal_events()


class TestService(ProcessContract):
    """The service passes the scenarios that the in-process queue passes, before anything is killed."""

    @pytest.fixture
    def subject(self, world: Kills) -> OverHttp:
        """Give the shared service."""
        return OverHttp(world, SLOTS)


def assert_done(world: Kills, exported: Exported, errand: str, *, attempts: int) -> tuple[Job, Job]:
    """Let both jobs end, and assert that they are as undisturbed ones, after so many attempts."""
    world.begun(errand, attempts)
    world.let_end(errand)
    whole, carried = world.done(exported.job_id, errand)
    for job in (whole, carried):
        assert (job.status, job.attempts) == ("complete", attempts), job
        assert not job.possible_double_run
    assert whole.result is not None
    assert whole.result.digest == exported.digest
    assert len({entry.step for entry in whole.history}) == len(whole.history) == exported.steps
    assert {entry.attempt for entry in whole.history} == set(range(1, attempts + 1))
    assert len(world.lines(errand, "effect")) == 1
    assert len(world.lines(errand, "begin")) == attempts
    return whole, carried


def assert_found_dead(world: Kills, at: float, *jobs: str) -> None:
    """Assert that the first attempt wasn't shown as running longer than the contract allows."""
    for job_id in jobs:
        assert world.watcher.shown_running(job_id, 1, after=at) <= SHOWN_SECONDS


@pytest.mark.long
def test_children_are_killed(world: Kills) -> None:
    """The next attempts go on from the last checkpoints; an effect that was recorded isn't repeated."""
    errand = world.errand("errand-child")
    child = world.begun(errand)
    exported, paused = world.paused_export()

    with world.restarted():
        at = kill([child, paused])
        assert_done(world, exported, errand, attempts=2)

    assert_found_dead(world, at, exported.job_id, errand)


@pytest.mark.long
def test_the_worker_is_killed_with_its_children_and_its_zygote(world: Kills) -> None:
    """Another worker takes the next attempts."""
    errand = world.errand("errand-worker")
    child = world.begun(errand)
    exported, paused = world.paused_export()

    with world.restarted("worker"):
        at = kill([world.pid("worker"), world.zygote(), child, paused])
        assert_done(world, exported, errand, attempts=2)

    assert_found_dead(world, at, exported.job_id, errand)


@pytest.mark.long
def test_the_process_that_parts_are_forked_from_is_killed(world: Kills) -> None:
    """All parts are started anew from another such process, and the worker's jobs go on."""
    errand = world.errand("errand-forkserver")
    world.begun(errand)
    exported, _ = world.paused_export()

    with world.restarted("api", "reconcile", "worker"):
        kill([parent_of(world.pid("worker"))])
        assert_done(world, exported, errand, attempts=2)


@pytest.mark.long
@pytest.mark.parametrize(
    "parts", [("api", "reconcile"), ("prefect",)], ids=["api and reconcile", "Prefect's server"]
)
def test_parts_that_run_no_job_are_killed(world: Kills, parts: tuple[str, ...]) -> None:
    """Jobs go on meanwhile, and use up no attempt."""
    errand = world.errand(f"errand-{parts[0]}")
    world.begun(errand)
    exported, paused = world.paused_export()

    with world.restarted(*parts):
        kill(world.pid(part) for part in parts)
        kill([paused], signal.SIGCONT)
        assert_done(world, exported, errand, attempts=1)


@pytest.mark.long
@pytest.mark.parametrize("keeper", [False, True], ids=["PostgreSQL", "PostgreSQL and its keeper"])
def test_postgresql_is_killed(world: Kills, keeper: bool) -> None:
    """Jobs wait for it to come back, and use up no attempt."""
    errand = world.errand(f"errand-postgres-{keeper}")
    world.begun(errand)
    exported, paused = world.paused_export()

    with world.restarted():
        kill([*([world.pid("postgres")] if keeper else []), world.postgres()[0]])
        kill([paused], signal.SIGCONT)
        assert_done(world, exported, errand, attempts=1)


@pytest.mark.long
def test_everything_is_killed_at_once(world: Kills) -> None:
    """After the next ``up`` both jobs go on where they were."""
    errand = world.errand("errand-everything")
    world.begun(errand)
    exported, _ = world.paused_export()

    world.end_everything()
    world.service.start()

    assert_done(world, exported, errand, attempts=2)


@pytest.mark.long
def test_a_frozen_worker_is_replaced_and_commits_nothing_when_it_wakes(world: Kills) -> None:
    """SIGSTOP past the lease: a possible double run is shown; its child stops itself once it goes on."""
    errand = world.errand("errand-frozen")
    child = world.begun(errand)
    frozen = [world.pid("worker"), world.zygote(), child]
    exported, paused = world.paused_export()

    at = kill(frozen, signal.SIGSTOP)
    with other_worker(world, "second"):
        whole, carried = assert_done(world, exported, errand, attempts=2)
        kill([child, paused], signal.SIGCONT)
        world.wait(lambda: gone(child) and gone(paused), within=30)
        kill(frozen, signal.SIGCONT)

    assert_found_dead(world, at, exported.job_id, errand)
    for job in (whole, carried):
        seen = [look.job for look in world.watcher.looks(job.job_id)]
        assert any(look["possible_double_run"] and look["attempts"] == 2 for look in seen)
        assert world.done(job.job_id) == [job]
    assert len(world.lines(errand, "effect")) == 1
    world.wait(lambda: state_of(frozen[0]) == "S")


class Worker:
    """One more worker on the home.

    Args:
        world: the service.
        name: the worker's name.
    """

    def __init__(self, world: Kills, name: str) -> None:
        self._world = world
        self._name = name
        self.process = self._started()

    def start(self) -> None:
        """Start it again after it was killed."""
        self.process.wait(60)
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "autocode.jobs.cli.main", "worker", "--name", self._name],
            env=self._world.service.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid


@contextmanager
def other_worker(world: Kills, name: str) -> Iterator[Worker]:
    """Give one more worker, which ends in order with the block."""
    worker = Worker(world, name)
    try:
        yield worker
    finally:
        # a worker that was started a moment ago doesn't know yet how to end in order
        world.wait(lambda: said(world, f"worker-{name}") == worker.pid or worker.process.poll() is not None)
        worker.process.terminate()
        assert worker.process.wait(60) == 0


def said(world: Kills, name: str) -> int | None:
    """Return the process of the part of this name that says that it is ready."""
    with suppress(OSError, ValueError):
        return int(json.loads((world.home.run / f"{name}.json").read_text())["pid"])
    return None


def descendants(pid: int) -> list[int]:
    """Return the children of a process, and theirs."""
    return [each for child in children_of(pid) for each in (child, *children_of(child))]


@pytest.mark.long
def test_postgresql_stands_still_for_twenty_seconds(world: Kills) -> None:
    """Nothing wrong is shown, enqueue answers 503 soon, no attempt is used up, and everything completes."""
    errands = [world.errand(f"errand-still-{number}") for number in range(SLOTS - 1)]
    for errand in errands:
        world.begun(errand)
    exported, paused = world.paused_export()
    waiting = [world.errand(f"errand-waits-{number}") for number in range(4)]

    at = kill(world.postgres(), signal.SIGSTOP)
    kill([paused], signal.SIGCONT)
    stopped = world.postgres()
    world.let_end(*errands, *waiting)
    answers = []
    while time.monotonic() < at + 20.0:
        began = time.monotonic()
        answer = httpx.post(
            f"{world.service.url()}/v1/jobs",
            json={"kind": "scenario-noop", "payload": {"witness": "w"}, "job_id": "refused"},
            headers={"Authorization": f"Bearer {(world.home.run / 'token').read_text().strip()}"},
            timeout=20,
        )
        answers.append((answer.status_code, answer.headers.get("retry-after"), time.monotonic() - began))
    kill(stopped, signal.SIGCONT)

    assert {status for status, _, _ in answers} == {503}, answers
    assert all(told is not None and seconds <= 6.0 for _, told, seconds in answers), answers
    jobs = world.done(exported.job_id, *errands, *waiting)
    assert [(job.status, job.attempts) for job in jobs] == [("complete", 1)] * len(jobs)
    assert jobs[0].result is not None
    assert jobs[0].result.digest == exported.digest
    assert [len(world.lines(errand, "effect")) for errand in [*errands, *waiting]] == [1] * (len(jobs) - 1)


@pytest.mark.long
def test_workers_are_killed_at_random(world: Kills) -> None:
    """Three workers die again and again; every job completes, by one attempt, with one effect.

    A kill right between an effect and its record makes it repeat, under the same key: its receiver knows it.
    """
    seed = int(os.environ.get("AUTOCODE_KILL_SEED", "20261130"))
    draw = random.Random(seed)
    errands = [f"random-{number}" for number in range(int(os.environ.get("AUTOCODE_KILL_JOBS", "40")))]
    world.let_end(*errands)
    kills = 0
    with other_worker(world, "second") as second, other_worker(world, "third") as third:
        for errand in errands:
            world.errand(errand, watched=False)
        world.watcher.watch(*errands[::8])
        pause = threading.Event()
        while open_jobs(world) > 0:
            assert kills < 10 * len(errands), (seed, open_jobs(world))
            name, victim = draw.choice([("worker", None), ("worker-second", second), ("worker-third", third)])
            # one that never gets ready runs nothing: no kill would be the last
            before = world.pid("worker") if victim is None else victim.pid
            world.wait(lambda name=name, pid=before: said(world, name) == pid or open_jobs(world) == 0)
            found = [before]
            if draw.random() < 0.5:
                found += [pid for pid in descendants(before) if draw.random() < 0.5]
            kill(found)
            kills += 1
            if victim is not None:
                victim.start()
            pause.wait(draw.uniform(0.3, 2.0))
    jobs = world.done(*errands)

    assert {job.status for job in jobs} == {"complete"}, seed
    completed = "SELECT job_id FROM attempts WHERE outcome = 'completed' AND job_id LIKE 'random-%'"
    assert sorted(row[0] for row in world.rows(completed)) == sorted(errands), seed
    effects = Counter(line.split()[1] for line in set(world.lines("carry:random-", "effect")))
    assert sorted(effects) == sorted(f"carry:{errand}" for errand in errands), seed
    assert kills >= 3, seed


def open_jobs(world: Kills) -> int:
    """Count the random jobs that aren't over."""
    with world.client() as client:
        counts = client.counts(q="random-")
    return counts.queued + counts.running + counts.retrying


def test_the_stop_leaves_nothing(shared: Kills) -> None:
    """No attempt is open, and no process, holder, child or temporary file is left; every object is whole."""
    # while a run isn't closed, its holder's file proves to the next reconciler that the process is dead
    unfinished = (
        "SELECT job_id, n, begun_at, flow_run_id, holder FROM attempts"
        " WHERE ended_at IS NULL OR run_closed IS FALSE"
    )
    with suppress(AssertionError):
        # what is left open after that is told below, by name
        shared.wait(lambda: shared.rows(unfinished) == [], within=30)
    open_attempts = shared.rows(unfinished)
    unstamped = shared.rows("SELECT id FROM events WHERE cursor IS NULL")

    shared.service.signal(signal.SIGTERM)
    status = shared.service.end()

    assert (open_attempts, unstamped, shared.watcher.wrong) == ([], [], [])
    assert status == 0, shared.service.told()
    shared.wait(lambda: not shared.service.processes(), within=30)
    for folder in ("holders", "children"):
        assert list((shared.home.run / folder).iterdir()) == []
    assert sorted(str(path) for path in shared.home.store.rglob("*.tmp")) == []
    report = verify_store(shared.store)
    assert report.ok, report.as_dict()
