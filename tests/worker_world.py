"""A worker on a home with a real Prefect server, and what the tests ask of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound
from prefect.states import Scheduled

from autocode.jobs import kinds, locks
from autocode.jobs.engine.loading import load_flow
from autocode.jobs.engine.server import Address
from autocode.jobs.engine.submit import attempt_key
from autocode.jobs.ledger import attempts, glances
from engine_world import SOURCES, Engine, prefect_client, until

DRIVER = Path(__file__).with_name("worker_run.py")
POOL = "autocode"


@dataclass
class Worker:
    """A worker process, and the files by which it is known."""

    process: subprocess.Popen[bytes]
    part: str
    log: Path
    engine: Engine

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def ready(self, within: float = 150.0) -> Worker:
        """Wait until it says that it is ready."""
        path = self.engine.home.run / f"{self.part}.json"

        def said() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            with suppress(OSError, ValueError):
                return bool(json.loads(path.read_text())["pid"] == self.pid)
            return False

        until(said, within=within, told=self.log.read_text)
        return self

    def zygote(self) -> int:
        """Return the process id of its zygote."""
        # a run that outlives its zygote is a child of the worker, too, with the same command line
        found = [pid for pid in children_of(self.pid) if comm_of(pid) == "jobs-zygote"]
        assert len(found) == 1, found
        return found[0]

    def stop(self, within: float = 60.0) -> int:
        """Send SIGTERM; return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within)


@dataclass
class World:
    """An engine, its Prefect server, and the workers that a test started."""

    engine: Engine
    address: Address
    workers: list[Worker] = field(default_factory=list)

    def start(
        self, *, name: str | None = None, environment: dict[str, str] | None = None, **options: Any
    ) -> Worker:
        """Start a worker process."""
        part = "worker" if name is None else f"worker-{name}"
        said = {"url": self.address.url, "auth": self.address.auth, "name": name, **options}
        log = self.engine.folder / f"{part}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, DRIVER, json.dumps(said)],
                env=worker_environment(self.engine, environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        worker = Worker(process, part, log, self.engine)
        self.workers.append(worker)
        return worker

    def submit(
        self, kind: kinds.Kind[Any], job_id: str, *, due: timedelta | None = None, **payload: Any
    ) -> UUID:
        """Accept a scenario job, and give its first attempt a run of its deployment."""
        self.engine.accept(kind, job_id, **payload)
        return self.submit_attempt(kind, job_id, 1, due=due, **payload)

    def submit_attempt(
        self, kind: kinds.Kind[Any], job_id: str, n: int, *, due: timedelta | None = None, **payload: Any
    ) -> UUID:
        """Give attempt *n* of the job a run of its kind's deployment."""

        async def create() -> UUID:
            async with prefect_client(self.address) as client:
                deployment = await deploy(client, kind)
                run = await client.create_flow_run_from_deployment(
                    deployment,
                    parameters={"witness": str(self.engine.witness), **payload},
                    idempotency_key=attempt_key(glances.epoch(self.engine.system.db), job_id, n),
                    state=Scheduled(scheduled_time=datetime.now(UTC) + (due or timedelta())),
                )
                return run.id

        run_id = asyncio.run(create())
        attempts.set_run(self.engine.system.db, job_id, n, str(run_id))
        return run_id

    def run_of(self, run_id: UUID) -> FlowRun:
        """Return the flow run as Prefect has it."""

        async def read() -> FlowRun:
            async with prefect_client(self.address) as client:
                return await client.read_flow_run(run_id)

        return asyncio.run(read())

    def states_of(self, run_id: UUID) -> list[State[Any]]:
        """Return every state that the run has had."""

        async def read() -> list[State[Any]]:
            async with prefect_client(self.address) as client:
                states: list[State[Any]] = await client.read_flow_run_states(run_id)
                return states

        return asyncio.run(read())

    def becomes(self, run_id: UUID, name: str, *, within: float = 60.0) -> FlowRun:
        """Wait until the run's state has this name."""
        seen: list[FlowRun] = []

        def reached() -> bool:
            seen[:] = [self.run_of(run_id)]
            state = seen[0].state
            return state is not None and state.name == name

        until(reached, within=within, told=lambda: (seen[0].state, [w.log.read_text() for w in self.workers]))
        return seen[0]

    def child_of(self, run_id: UUID, *, within: float = 60.0) -> int:
        """Wait until a child is registered for the run; return its process id."""
        folder = self.engine.home.run / "children"
        found: list[int] = []

        def registered() -> bool:
            for path in folder.glob("[0-9]*"):
                with suppress(OSError, ValueError):
                    if json.loads(path.read_text())["flow_run_id"] == str(run_id):
                        found[:] = [int(path.name)]
            return found != []

        until(registered, within=within, told=lambda: [w.log.read_text() for w in self.workers])
        return found[0]

    def has_pool(self) -> bool:
        """Say whether Prefect knows the work pool."""

        async def read() -> bool:
            async with prefect_client(self.address) as client:
                try:
                    await client.read_work_pool(POOL)
                except ObjectNotFound:
                    return False
                return True

        return asyncio.run(read())

    def close(self) -> None:
        """End every worker that still runs."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()


async def deploy(client: PrefectClient, kind: kinds.Kind[Any]) -> UUID:
    """Make the kind's deployment, as the service does; return its id. Idempotent."""
    flow_id = await client.create_flow(load_flow(kind))
    return await client.create_deployment(
        flow_id=flow_id,
        name="service",
        entrypoint=kind.flow,
        work_pool_name=POOL,
        tags=["autocode-jobs"],
        enforce_parameter_schema=False,
    )


def worker_environment(engine: Engine, more: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a process that belongs to the engine's home."""
    return {
        **os.environ,
        "AUTOCODE_HOME": str(engine.home.path),
        "PYTHONPATH": os.pathsep.join([str(SOURCES), str(DRIVER.parent)]),
        **(more or {}),
    }


def children_of(pid: int) -> list[int]:
    """Return the processes that *pid* is the parent of (Linux)."""
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def parent_of(pid: int) -> int:
    """Return the process that started *pid*."""
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])


def comm_of(pid: int) -> str:
    """Return the name that a process gave itself; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8").strip()
    except OSError:
        return ""


def command_of(pid: int) -> bytes:
    """Return a process's command line; empty for one that is gone or a zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def gone(pid: int) -> bool:
    """Say whether the process has ended (it may wait to be reaped)."""
    return command_of(pid) == b""


@contextmanager
def world(engine: Engine, address: Address) -> Iterator[World]:
    """Give a world whose workers end with the block."""
    made = World(engine, address)
    try:
        yield made
    finally:
        made.close()


def held(engine: Engine) -> list[Path]:
    """Return the locks of holders that live."""
    folder = engine.home.run / "holders"
    return [path for path in folder.iterdir() if locks.is_held(path)] if folder.exists() else []


def set_state(world: World, run_id: UUID, state: State[Any]) -> None:
    """Ask Prefect to move the run to *state*, as its UI does."""

    async def ask() -> None:
        async with prefect_client(world.address) as client:
            await client.set_flow_run_state(run_id, state)

    asyncio.run(ask())


def run_flow_file(
    world: World,
    entrypoint: str,
    parameters: dict[str, Any],
    *,
    pull_steps: list[dict[str, Any]] | None = None,
    variables: dict[str, Any] | None = None,
) -> UUID:
    """Deploy a flow of somebody else's, and give it one run."""

    async def create() -> UUID:
        async with prefect_client(world.address) as client:
            name = entrypoint.rpartition(":")[2]
            deployment = await client.create_deployment(
                flow_id=await client.create_flow_from_name(name),
                name=str(uuid4()),
                entrypoint=entrypoint,
                work_pool_name=POOL,
                pull_steps=pull_steps,
                job_variables=variables,
                enforce_parameter_schema=False,
            )
            run = await client.create_flow_run_from_deployment(deployment, parameters=parameters)
            return run.id

    return asyncio.run(create())
