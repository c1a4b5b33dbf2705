"""The reconcile process with a real Prefect server: it submits, adopts and rescues; one of several leads."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.states import Scheduled

from autocode.jobs.engine.announce import lives
from autocode.jobs.engine.holder import holding
from autocode.jobs.engine.server import Address
from autocode.jobs.engine.system import open_system
from autocode.jobs.ledger import attempts, glances, jobs, queries, schema
from autocode.jobs.model import JobStatus
from autocode.jobs.resource import Job
from autocode.jobs.settings import Home
from autocode.jobs.testing import scenarios
from autocode.jobs.testing.scenarios import witnessed
from engine_runner import Runner
from engine_world import Engine, prefect_client, until
from ledger_world import new_job, rows
from reconcile_process import reconciling
from reconcile_world import RUN

pytest_plugins = ["fixtures_engine"]
pytestmark = pytest.mark.timeout(400)

WITHIN = 150.0
"""A deadline for a machine that does much else; where it is idle most of this takes a second."""
T = TypeVar("T")


@dataclass
class Service:
    """A home with a Prefect server, a reconciler that leads, and a worker."""

    engine: Engine
    address: Address
    runner: Runner
    log: Path

    def job(self, job_id: str) -> Job:
        """Return the job as it was last persisted."""
        return queries.get(self.engine.system.db, job_id)

    def becomes(self, job_id: str, status: JobStatus) -> Job:
        """Wait until the job has this status."""
        until(lambda: self.job(job_id).status is status, within=WITHIN, told=lambda: self.told(job_id))
        return self.job(job_id)

    def told(self, job_id: str) -> str:
        """Return what a failed test should show."""
        return f"{self.job(job_id)}\n{self.log.read_text()[-3000:]}"

    def ask(self, question: Callable[[PrefectClient], Awaitable[T]]) -> T:
        """Ask Prefect."""

        async def asked() -> T:
            async with prefect_client(self.address) as client:
                return await question(client)

        return asyncio.run(asked())

    def run_of(self, job_id: str, n: int) -> FlowRun:
        """Return Prefect's word about the run of attempt *n*."""
        run_id = self.run_id(job_id, n)
        assert run_id is not None
        return self.ask(lambda client: client.read_flow_run(UUID(run_id)))

    def run_id(self, job_id: str, n: int) -> str | None:
        """Return the run of attempt *n*, once there is one."""
        for row in self.engine.attempts(job_id):
            if row.n == n:
                return None if row.flow_run_id is None else str(row.flow_run_id)
        return None

    def has_run(self, job_id: str, n: int) -> str:
        """Wait until attempt *n* has a run."""
        until(lambda: self.run_id(job_id, n) is not None, within=WITHIN, told=lambda: self.told(job_id))
        found = self.run_id(job_id, n)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def shared(
    _shared_home: tuple[Engine, Address], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """Run the service once for the module."""
    engine, address = _shared_home
    log = tmp_path_factory.mktemp("log") / "reconcile.log"
    log.touch()
    with reconciling(engine.home, log), Runner(engine.home, address) as runner:
        yield Service(engine, address, runner, log)


@pytest.fixture
def service(shared: Service, tmp_path: Path) -> Iterator[Service]:
    """Give the module's service with a witness of the test's own; the worker takes runs again afterwards."""
    engine = Engine(shared.engine.home, shared.engine.system, tmp_path)
    yield Service(engine, shared.address, shared.runner, shared.log)
    shared.runner.open.set()


def test_a_job_is_run_through_a_deployment_and_explains_itself(service: Service) -> None:
    """An accepted job gets a run of its kind's deployment, named and tagged, and becomes complete."""
    service.engine.accept(scenarios.NOOP, "plain", salt="plain")

    job = service.becomes("plain", JobStatus.COMPLETE)
    run = service.run_of("plain", 1)
    used = run.deployment_id
    assert used is not None
    deployment = service.ask(lambda client: client.read_deployment(used))

    assert (job.attempts, job.result is not None) == (1, True)
    assert (deployment.name, deployment.work_pool_name) == ("service", "autocode")
    assert deployment.entrypoint == scenarios.NOOP.flow
    key = f"job:{glances.epoch(service.engine.system.db)}:plain:1"
    assert (run.name, run.idempotency_key) == ("scenario-noop plain · attempt 1", key)
    assert set(run.tags) == {"autocode-jobs", "kind:scenario-noop", "job:plain"}


def test_a_killed_child_is_followed_by_another_attempt_and_its_run_says_so(service: Service) -> None:
    """SIGKILL of the process: the run ends as Crashed with the time of the next attempt, which completes."""
    service.engine.accept(scenarios.SLOW, "killed", seconds=1.5)
    until(lambda: witnessed(service.engine.witness) != [], within=WITHIN, told=lambda: service.told("killed"))

    service.runner.children[service.has_run("killed", 1)].kill()
    job = service.becomes("killed", JobStatus.COMPLETE)
    first = service.engine.attempts("killed")[0]
    until(lambda: service.run_of("killed", 1).state_name == "Crashed", within=WITHIN)
    state = service.run_of("killed", 1).state

    assert (job.attempts, first.outcome) == (2, "crashed")
    assert state is not None
    died = first.ended_at.strftime("%H:%M:%S")
    follows = service.engine.attempts("killed")[1].due_at.strftime("%H:%M:%S")
    assert state.message == f"the process died at {died}; attempt 2 of 3 follows at {follows} (UTC)"


def test_a_run_that_is_restarted_in_prefect_is_refused_and_says_where_to_go(service: Service) -> None:
    """Somebody restarts the run of a job that is over: nothing is done again, and the state says why."""
    service.engine.accept(scenarios.PERMANENT, "over")
    service.becomes("over", JobStatus.DEAD)
    run_id = UUID(service.has_run("over", 1))
    until(lambda: service.run_of("over", 1).state_name == "Failed", within=WITHIN)

    service.ask(lambda client: client.set_flow_run_state(run_id, Scheduled()))
    until(lambda: service.run_of("over", 1).state_name == "Failed", within=WITHIN)
    state = service.run_of("over", 1).state

    assert state is not None
    assert "the job is dead" in (state.message or "")
    assert "autocode-jobs jobs retry over" in (state.message or "")
    assert witnessed(service.engine.witness) == ["try"]
    assert len(service.engine.attempts("over")) == 1


@pytest.mark.long
def test_a_run_that_is_deleted_and_one_whose_deployment_is_deleted_are_replaced_for_free(
    service: Service,
) -> None:
    """Runs that nobody can run any more are replaced, without budget; the deployment is made again."""
    service.runner.open.clear()
    service.engine.accept(scenarios.NOOP, "deleted", salt="deleted")
    service.engine.accept(scenarios.NOOP, "orphan", salt="orphan")
    deleted = UUID(service.has_run("deleted", 1))
    service.has_run("orphan", 1)
    deployment = service.run_of("orphan", 1).deployment_id
    assert deployment is not None

    service.ask(lambda client: client.delete_flow_run(deleted))
    service.ask(lambda client: client.delete_deployment(deployment))
    service.has_run("deleted", 2)
    service.has_run("orphan", 2)
    service.runner.open.set()
    jobs_ = [service.becomes(each, JobStatus.COMPLETE) for each in ("deleted", "orphan")]

    for job in jobs_:
        outcomes = [(row.outcome, row.counts) for row in service.engine.attempts(job.job_id)]
        # the replacement of the deleted run may have been made before the deployment was deleted
        assert len(outcomes) > 1
        assert set(outcomes[:-1]) == {("gone", False)}
        assert outcomes[-1] == ("completed", False)
    assert service.run_of("orphan", 2).deployment_id != deployment


def test_a_run_that_prefect_starts_itself_is_a_job_before_any_worker_takes_it(service: Service) -> None:
    """A run without a key of ours is adopted while it waits, and completes as attempt 1 of that job."""
    service.engine.accept(scenarios.NOOP, "sibling", salt="sibling")
    service.becomes("sibling", JobStatus.COMPLETE)
    deployment = service.run_of("sibling", 1).deployment_id
    assert deployment is not None
    service.runner.open.clear()
    parameters = {"witness": str(service.engine.witness), "salt": "by hand"}

    run = service.ask(
        lambda client: client.create_flow_run_from_deployment(deployment, parameters=parameters)
    )
    bad = service.ask(
        lambda client: client.create_flow_run_from_deployment(deployment, parameters={"salt": 5})
    )
    job_id = f"prefect:{run.id}"
    until(lambda: known(service, job_id), within=WITHIN, told=service.log.read_text)
    waiting = service.job(job_id)
    until(lambda: state_of(service, bad.id) == "Failed", within=WITHIN, told=service.log.read_text)
    service.runner.open.set()
    done = service.becomes(job_id, JobStatus.COMPLETE)
    refused = service.ask(lambda client: client.read_flow_run(bad.id)).state

    assert (waiting.status, done.attempts) == (JobStatus.QUEUED, 1)
    assert [row.flow_run_id for row in service.engine.attempts(job_id)] == [str(run.id)]
    assert not known(service, f"prefect:{bad.id}")
    assert refused is not None
    assert refused.name == "Failed"
    assert "/witness" in (refused.message or "")


def state_of(service: Service, run_id: UUID) -> str | None:
    """Return the name of the state of a run."""
    return service.ask(lambda client: client.read_flow_run(run_id)).state_name


def known(service: Service, job_id: str) -> bool:
    """Say whether the ledger has the job."""
    return bool(rows(service.engine.system.db, schema.jobs, schema.jobs.c.job_id == job_id))


@pytest.mark.long
def test_a_restart_of_the_prefect_server_costs_no_attempt(service: Service) -> None:
    """The server is killed in the middle of a job: the job completes in its first attempt."""
    service.engine.accept(scenarios.SLOW, "restart", seconds=3.0)
    until(lambda: witnessed(service.engine.witness) != [], within=WITHIN)

    os.kill(int(re.findall(r"\d+", (service.engine.home.run / "server.lock").read_text())[0]), signal.SIGKILL)
    job = service.becomes("restart", JobStatus.COMPLETE)
    service.engine.accept(scenarios.NOOP, "after", salt="after")
    after = service.becomes("after", JobStatus.COMPLETE)

    assert (job.attempts, after.attempts) == (1, 1)


@pytest.mark.long
def test_what_a_killed_command_left_is_finished_by_the_service(service: Service) -> None:
    """A one-shot command is left alone while it lives; killed, its job goes on through the deployment."""
    # a command of a home whose service lives hands its job over; this one is meant to run it itself
    with holding(service.engine.home, drives="taken-over"):
        running = service.engine.start(scenarios.SLOW, "taken-over", seconds=2.0)
        until(lambda: witnessed(service.engine.witness) != [], within=WITHIN)
    before = service.run_of("taken-over", 1)

    running.process.kill()
    running.ends()
    job = service.becomes("taken-over", JobStatus.COMPLETE)

    assert before.deployment_id is None
    assert service.run_of("taken-over", 2).deployment_id is not None
    assert (job.attempts, service.engine.attempts("taken-over")[0].outcome) == (2, "crashed")


def leader(service: Service) -> tuple[int, int]:
    """Return the process that leads, and its term."""
    [row] = rows(service.engine.system.db, schema.leaders)
    return int(row.holder.split(":")[1]) if row.holder else 0, row.term


def test_the_lead_changes_when_the_leader_stops_and_the_old_one_writes_nothing_more(
    service: Service, tmp_path: Path
) -> None:
    """SIGSTOP of the leader: another takes over within 5 s; continued, the old one stands by."""
    old, term = leader(service)
    with reconciling(service.engine.home, service.log, "second") as second:
        os.kill(old, signal.SIGSTOP)
        try:
            until(lambda: leader(service) == (second.pid, term + 1), within=30.0, told=service.log.read_text)
            service.engine.accept(scenarios.NOOP, "second", salt="second")
            service.becomes("second", JobStatus.COMPLETE)
        finally:
            os.kill(old, signal.SIGCONT)
        service.engine.accept(scenarios.NOOP, "both", salt="both")
        service.becomes("both", JobStatus.COMPLETE)

        assert leader(service) == (second.pid, term + 1)
        second.kill()
        second.wait()
        until(lambda: leader(service) == (old, term + 2), within=30.0, told=service.log.read_text)
        service.engine.accept(scenarios.NOOP, "third", salt="third")
        service.becomes("third", JobStatus.COMPLETE)


@pytest.mark.long
def test_without_prefect_it_goes_by_the_ledger_alone_and_ends_in_order(tmp_path: Path) -> None:
    """No server answers: a dead process is noticed all the same; SIGTERM ends with 0 and leaves nothing."""
    log, home = tmp_path / "reconcile.log", Home(tmp_path / "home")
    with open_system(home) as system, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        jobs.enqueue(system.db, new_job("job"))
        (home.run / "holders").mkdir()
        (home.run / "holders" / "abc").touch()
        attempts.begin(system.db, "job", 1, flow_run_id=RUN, holder="here:1:abc")

        with reconciling(home, log, url=f"http://127.0.0.1:{nobody.getsockname()[1]}/api") as process:
            until(lambda: queries.get(system.db, "job").status is JobStatus.RETRY, within=WITHIN)
            alive = lives(home, "reconcile")
            process.terminate()
            status = process.wait(60)
        [row] = rows(system.db, schema.leaders)
        first, second = rows(system.db, schema.attempts)

    assert (alive, status) == (True, 0), log.read_text()
    assert (first.outcome, first.run_closed, second.begun_at) == ("crashed", False, None)
    assert row.holder == ""
    assert not lives(home, "reconcile")
    assert not (home.run / "reconcile.json").exists()
