"""One-shot use: run a job to its end in this process, or follow the process that already runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.flow_engine import run_flow_async
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from autocode.jobs import kinds
from autocode.jobs.engine.attempt import holder_name
from autocode.jobs.engine.holder import holding
from autocode.jobs.engine.loading import load_flow
from autocode.jobs.engine.reconcile import Reconciler
from autocode.jobs.engine.runs import PrefectRuns
from autocode.jobs.engine.server import Address
from autocode.jobs.engine.submit import submit_planned
from autocode.jobs.engine.system import System
from autocode.jobs.ledger import attempts, jobs, queries
from autocode.jobs.model import TERMINAL
from autocode.jobs.resource import Job

__all__ = ["run_to_end"]

_LOOK_SECONDS: Final = 0.2
"""Pause between two looks at a job: how late a person learns of a change, and how soon a retry begins."""

Watcher = Callable[[Job], None]


def run_to_end(system: System, job_id: str, address: Address, watch: Watcher) -> Job:
    """Bring the job to a terminal state: run its attempts here unless another process does.

    Ctrl-C (``KeyboardInterrupt``) hands the attempt back: it uses no budget, and the next run of the same
    command goes on from the last checkpoint.

    Args:
        system: the opened home.
        job_id: an accepted job.
        address: the Prefect server.
        watch: told the job resource at every look.

    Returns:
        The resource in its terminal state.
    """
    with (
        temporary_settings({PREFECT_API_URL: address.url, PREFECT_API_AUTH_STRING: address.auth}),
        holding(system.home) as holder,
    ):
        holder_name.set(holder)
        return asyncio.run(_run_to_end(system, job_id, watch, holder))


async def _run_to_end(system: System, job_id: str, watch: Watcher, holder: str) -> Job:
    async with get_client() as client:
        driver = _Driver(system, client, job_id, watch)
        return await driver.run(holder)


class _Driver:
    """Looks at one job until it is over, and runs its attempts when they are due."""

    def __init__(self, system: System, client: PrefectClient, job_id: str, watch: Watcher) -> None:
        self._system = system
        self._client = client
        self._job_id = job_id
        self._watch = watch
        self._reconciler = Reconciler(system, PrefectRuns(client))

    async def run(self, holder: str) -> Job:
        while True:
            job = await self._look()
            if job.status in TERMINAL:
                return job
            await submit_planned(self._system, self._client, self._job_id)
            run_id = await asyncio.to_thread(attempts.pick_due, self._system.db, self._job_id, holder)
            if run_id is None:
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                await self._run_attempt(UUID(run_id))

    async def _look(self) -> Job:
        await self._reconciler.sweep(self._job_id)
        job = await asyncio.to_thread(queries.get, self._system.db, self._job_id)
        self._watch(job)
        return job

    async def _run_attempt(self, run_id: UUID) -> None:
        attempt = asyncio.create_task(self._flow(run_id))
        try:
            while not attempt.done():
                await asyncio.wait({attempt}, timeout=_LOOK_SECONDS)
                await self._look()
        except BaseException:
            attempt.cancel()
            await asyncio.wait({attempt})
            await self._reconciler.sweep(self._job_id)
            raise
        # how the attempt ended is in the ledger; what is raised here never got that far
        attempt.result()

    async def _flow(self, run_id: UUID) -> None:
        name, payload = await asyncio.to_thread(jobs.payload_of, self._system.db, self._job_id)
        run = await self._client.read_flow_run(run_id)
        flow = load_flow(kinds.get(name))
        await run_flow_async(flow, flow_run=run, parameters=payload, return_type="state")
