"""A home with a real Prefect server, and the ways in which the tests run jobs on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.client.schemas.objects import Artifact, FlowRun, TaskRun
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from autocode.jobs import kinds, locks
from autocode.jobs.engine.oneshot import run_to_end
from autocode.jobs.engine.server import Address, private_server
from autocode.jobs.engine.system import System
from autocode.jobs.ledger import jobs
from autocode.jobs.ledger.queries import load
from autocode.jobs.resource import Job
from autocode.jobs.settings import Home

DRIVER = Path(__file__).with_name("engine_run.py")
SOURCES = Path(__file__).resolve().parent.parent / "src"


def until(condition: Callable[[], bool], *, within: float, told: Callable[[], object] = lambda: "") -> None:
    """Wait until *condition* holds; fail with what *told* says once *within* seconds have passed."""
    end = time.monotonic() + within
    pause = threading.Event()
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not true within {within:.0f} s: {told()}")
        pause.wait(0.02)


@dataclass
class Running:
    """A job that another process drives; every look that showed something new is kept."""

    process: subprocess.Popen[str]
    looks: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.looks.append(json.loads(line))

    def ends(self, within: float = 90.0) -> tuple[int, str]:
        """Wait for its end; return its exit status and what it wrote on stderr."""
        try:
            status = self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self._reader.join(5.0)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with self.process.stdout, self.process.stderr:
            return status, self.process.stderr.read()


@dataclass
class Engine:
    """A home, its opened system, and the ways to run jobs on it."""

    home: Home
    system: System
    folder: Path

    @property
    def witness(self) -> Path:
        """The file that the steps of this test's jobs write to."""
        return self.folder / "witness"

    def accept(self, kind: kinds.Kind[Any], job_id: str, **payload: Any) -> str:
        """Accept a scenario job and return its id."""
        return self.accept_payload(kind, job_id, {"witness": str(self.witness), **payload})

    def accept_payload(self, kind: kinds.Kind[Any], job_id: str, payload: dict[str, Any]) -> str:
        """Accept a job of any kind and return its id."""
        parsed = kind.parse(payload).model_dump(mode="json")
        new = jobs.NewJob(job_id, kind.name, parsed, kind.max_attempts, kind.backoff, kind.time_limit)
        jobs.enqueue(self.system.db, new)
        return job_id

    def run(self, kind: kinds.Kind[Any], job_id: str, **payload: Any) -> tuple[Job, list[Job]]:
        """Run a scenario job to its end in this process; return how it ended, and every look."""
        return self.run_payload(kind, job_id, {"witness": str(self.witness), **payload})

    def run_payload(
        self, kind: kinds.Kind[Any], job_id: str, payload: dict[str, Any]
    ) -> tuple[Job, list[Job]]:
        """Run a job of any kind to its end in this process; return how it ended, and every look."""
        self.accept_payload(kind, job_id, payload)
        looks: list[Job] = []
        with private_server(self.home) as address:
            return run_to_end(self.system, job_id, address, looks.append), looks

    def start(self, kind: kinds.Kind[Any], job_id: str, *, crash: str = "", **payload: Any) -> Running:
        """Start a process that runs a job to its end."""
        text = json.dumps({"witness": str(self.witness), **payload})
        environment = {**os.environ, "AUTOCODE_HOME": str(self.home.path), "PYTHONPATH": str(SOURCES)}
        if crash:
            environment["AUTOCODE_CRASH"] = crash
        process = subprocess.Popen(
            [sys.executable, DRIVER, kind.name, job_id, text],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return Running(process)

    def attempts(self, job_id: str) -> list[Any]:
        """Return the ledger's rows of the job's attempts."""
        with self.system.db.read() as tx:
            return list(load(tx, job_id).attempts)

    def server_lives(self) -> bool:
        """Say whether the home's Prefect server lives."""
        return locks.is_held(self.home.run / "server.lock")

    def nothing_left(self) -> None:
        """Assert that soon no server lives and nobody holds anything."""
        until(lambda: not self.server_lives(), within=15, told=lambda: "the server lives on")
        holders = self.home.run / "holders"
        held = [path for path in holders.iterdir() if locks.is_held(path)] if holders.exists() else []
        assert held == []


@asynccontextmanager
async def prefect_client(address: Address) -> AsyncIterator[PrefectClient]:
    """Open a client for the Prefect server at *address*."""
    settings = {PREFECT_API_URL: address.url, PREFECT_API_AUTH_STRING: address.auth}
    with temporary_settings(settings):
        async with get_client() as client:
            yield client


async def runs_of(address: Address, ids: list[str]) -> tuple[list[FlowRun], list[TaskRun]]:
    """Ask Prefect's API for flow runs by id, and for their task runs."""
    async with prefect_client(address) as client:
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(each) for each in ids]))
        runs = await client.read_flow_runs(flow_run_filter=chosen)
        return runs, await client.read_task_runs(flow_run_filter=chosen)


async def artifacts_of(address: Address, run_id: UUID) -> dict[str, Artifact]:
    """Ask Prefect's API for the Prefect artifacts of a run, by type: there may be one of each.

    What Prefect itself keeps there, a note without a type about the run's return value, is left out.
    """
    wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
    async with prefect_client(address) as client:
        found = await client.read_artifacts(artifact_filter=wanted)
    ours = [each for each in found if each.type is not None]
    by_type = {str(each.type): each for each in ours}
    assert len(by_type) == len(ours), found
    return by_type
