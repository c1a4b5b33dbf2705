"""What people see of a job in Prefect's own pages, read back through Prefect's API: one service for all."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import Artifact, FlowRun
from prefect.states import Scheduled

from autocode.jobs.engine.server import Address
from autocode.jobs.kinds import Kind
from autocode.jobs.ledger import queries
from autocode.jobs.ledger.jobs import NewJob, enqueue
from autocode.jobs.model import JobStatus
from autocode.jobs.operations.export import EXPORT
from autocode.jobs.resource import Job
from autocode.jobs.testing import scenarios as s
from autocode.jobs.testing.samples import write_samples
from autocode.jobs.testing.scenarios import witnessed
from engine_world import Engine, artifacts_of, prefect_client, runs_of, until
from reconcile_process import WITHIN, reconciling
from worker_world import World, world

pytest_plugins = ["fixtures_engine"]
pytestmark = pytest.mark.timeout(400)

T = TypeVar("T")


@dataclass
class Pages:
    """A home with its Prefect server, a reconciler and a worker, and what Prefect tells of its runs."""

    engine: Engine
    address: Address
    world: World
    log: Path

    def accept(self, kind: Kind[Any], job_id: str, **payload: Any) -> None:
        """Accept a scenario job of a session."""
        parsed = kind.parse({"witness": str(self.engine.witness), **payload}).model_dump(mode="json")
        new = NewJob(
            job_id, kind.name, parsed, kind.max_attempts, kind.backoff, kind.time_limit, session_id="s-1"
        )
        enqueue(self.engine.system.db, new)

    def job(self, job_id: str) -> Job:
        """Return the job."""
        return queries.get(self.engine.system.db, job_id)

    def ends(self, job_id: str) -> Job:
        """Wait until the job is over and Prefect knows; return it."""
        over = {JobStatus.COMPLETE, JobStatus.DEAD}

        def closed() -> bool:
            with suppress(Exception):
                rows = self.engine.attempts(job_id)
                return self.job(job_id).status in over and all(row.run_closed for row in rows)
            return False

        until(closed, within=WITHIN, told=lambda: (self.engine.attempts(job_id), self.log.read_text()))
        return self.job(job_id)

    def ask(self, question: Callable[[PrefectClient], Awaitable[T]]) -> T:
        """Ask Prefect."""

        async def asked() -> T:
            async with prefect_client(self.address) as client:
                return await question(client)

        return asyncio.run(asked())

    def run(self, job_id: str, n: int = 1) -> FlowRun:
        """Return Prefect's word about the run of attempt *n*."""
        run_id = UUID(self.engine.attempts(job_id)[n - 1].flow_run_id)
        return self.ask(lambda client: client.read_flow_run(run_id))

    def message(self, job_id: str, n: int = 1) -> str:
        """Return the message of the run's state."""
        state = self.run(job_id, n).state
        assert state is not None
        return state.message or ""

    def restarted_until_failed(self, job_id: str) -> None:
        """Restart the run of the first attempt, as people do in Prefect's pages, until it ends as Failed."""

        def failed() -> bool:
            run = self.run(job_id)
            # a worker that is late with its own word writes it over the restart
            if run.state_name == "Crashed":
                self.ask(lambda client: client.set_flow_run_state(run.id, Scheduled()))
            return run.state_name == "Failed"

        until(failed, within=WITHIN, told=lambda: (self.run(job_id).state, self.log.read_text()))

    def artifacts(self, run_id: UUID) -> dict[str, Artifact]:
        """Return the Prefect artifacts of a run by type, of which there may be one each."""
        found = asyncio.run(artifacts_of(self.address, run_id))
        for each in found.values():
            assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", each.key or "")
        return found

    def steps(self, run_id: UUID) -> list[str | None]:
        """Return the state names of the run's task runs, which Prefect records a little later."""
        _, tasks = asyncio.run(runs_of(self.address, [str(run_id)]))
        return [each.state_name for each in tasks]

    def report(self, job_id: str, n: int = 1) -> str:
        """Return the text of the report of attempt *n*."""
        return str(self.artifacts(self.run(job_id, n).id)["markdown"].data)


@pytest.fixture(scope="module")
def _shared(
    _shared_home: tuple[Engine, Address], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, Path]]:
    engine, address = _shared_home
    log = tmp_path_factory.mktemp("log") / "reconcile.log"
    log.touch()
    with reconciling(engine.home, log), world(engine, address) as made:
        worker = made.start(limit=3, environment={"AUTOCODE_WORKER_FLOWS": s.NOOP.flow})
        worker.ready()
        yield made, log
        assert worker.stop() == 0, worker.log.read_text()


@pytest.fixture
def pages(served: tuple[Engine, Address], _shared: tuple[World, Path]) -> Pages:
    """Give the module's service, with a witness of the test's own."""
    engine, address = served
    return Pages(engine, address, World(engine, address), _shared[1])


@pytest.mark.long
def test_a_job_whose_steps_are_remembered_says_so_everywhere(pages: Pages) -> None:
    """Name, tags, message, progress, report and Cached steps of a job that reuses what another one made."""
    for job_id in ("First.One", "second"):
        pages.accept(s.TEN_STEPS, job_id, salt="pages")
        pages.ends(job_id)

    first, second = pages.run("First.One"), pages.run("second")
    result = pages.job("second").result
    until(lambda: pages.steps(second.id) == ["Cached"] * 11, within=WITHIN, told=pages.log.read_text)
    shown = pages.artifacts(second.id)
    text = str(shown["markdown"].data)

    assert result is not None
    assert second.name == "scenario-ten-steps s-1 · attempt 1"
    assert set(second.tags) == {"autocode-jobs", "kind:scenario-ten-steps", "job:second", "session:s-1"}
    assert pages.message("First.One") == f"Result {result.digest} committed; 11 steps done, 0 reused."
    assert pages.message("second") == f"Result {result.digest} committed; 0 steps done, 11 reused."
    assert shown["progress"].data == 100
    assert shown["progress"].description == "Job `second`, attempt 1: 10 of 10 parts"
    assert result.digest in text
    assert "0 new in this attempt, 11 reused" in text
    assert f"| 11 | join | `{result.digest.removeprefix('sha256:')[:12]}` | reused |" in text
    assert "11 new in this attempt, 0 reused" in pages.report("First.One")
    assert str(pages.engine.witness) not in text
    assert set(pages.artifacts(first.id)) == {"progress", "markdown"}


def test_a_killed_attempt_says_what_follows_and_refuses_a_restart(pages: Pages) -> None:
    """SIGKILL of the process: its run tells of the next attempt; a restart of it tells where to go."""
    pages.accept(s.SLOW, "killed", seconds=1.5)
    until(lambda: witnessed(pages.engine.witness) != [], within=WITHIN, told=pages.log.read_text)
    os.kill(int(witnessed(pages.engine.witness)[0].split()[1]), signal.SIGKILL)
    pages.ends("killed")
    crashed = pages.run("killed")
    told, report = pages.message("killed"), pages.report("killed")

    pages.restarted_until_failed("killed")
    refusal = pages.message("killed")

    assert crashed.state_name == "Crashed"
    # the worker says it, or the reconciler, who may be faster
    why = r"(The process of this run was killed \(SIGKILL\): .*\. A|the process died at [0-9:]{8}; a)"
    follows = r"ttempt 2 of 3 (follows at|is under way since) [0-9:]{8} \(UTC\)\.?"
    assert re.fullmatch(why + follows, told)
    assert "| attempt | 1: crashed: its process died |" in report
    assert "autocode-jobs jobs explain killed" in report
    assert pages.run("killed", 2).name == "scenario-slow s-1 · attempt 2"
    assert "1 step done, 0 reused" in pages.message("killed", 2)
    assert "can't begin: the job has its result. See it with: autocode-jobs artifacts get sha256:" in refusal
    assert pages.report("killed") == report
    assert len(pages.engine.attempts("killed")) == 2


def test_a_run_that_prefect_starts_itself_gets_name_and_tags_and_fails_with_a_way_out(pages: Pages) -> None:
    """An adopted run keeps its own name within ours and its own tags; its failure names the retry."""
    pages.accept(s.PERMANENT, "sibling")
    pages.ends("sibling")
    deployment = pages.run("sibling").deployment_id
    assert deployment is not None

    run = pages.ask(
        lambda client: client.create_flow_run_from_deployment(
            deployment, name="nightly", tags=["mine"], parameters={"witness": str(pages.engine.witness)}
        )
    )
    job_id = f"prefect:{run.id}"
    job = pages.ends(job_id)
    adopted = pages.run(job_id)

    assert (job.status, job.reason) == (JobStatus.DEAD, "permanent")
    assert adopted.name == "scenario-permanent nightly · attempt 1"
    assert {"mine", "autocode-jobs", "kind:scenario-permanent", f"job:{job_id}"} <= set(adopted.tags)
    detail = job.error.detail if job.error else ""
    said = re.fullmatch(
        r"This input can't succeed \(`autocode-jobs jobs explain \S+` says more\)\. The job is dead, "
        rf"to try again: autocode-jobs jobs retry {job_id} --reason TEXT",
        pages.message(job_id),
    )
    assert said
    assert detail
    assert detail not in pages.message(job_id)
    assert "| problem |" in pages.report(job_id)
    assert f"autocode-jobs jobs retry {job_id}" in pages.report(job_id)


@pytest.mark.long
def test_an_export_tells_its_losses_in_numbers_and_names_no_file(pages: Pages, tmp_path: Path) -> None:
    """The report of an export has totals and losses; nothing of what the sessions say is in it."""
    written = write_samples(tmp_path / "root", sessions=4, megabytes=0.1)
    root = pages.engine.home.add_root(tmp_path / "root")
    pages.engine.accept_payload(EXPORT, "export-1", {"sources": [{"root": root}]})
    job = pages.ends("export-1")

    text = pages.report("export-1")

    assert job.status is JobStatus.COMPLETE
    assert re.search(r"\| sessions \| [1-9]", text)
    assert re.search(r"\| secrets redacted \| [1-9]", text)
    assert re.search(r"\| lost: [a-z\\-]+ \| [1-9]", text)
    assert str(tmp_path) not in text
    for secret in written.secrets:
        assert secret.text not in text
