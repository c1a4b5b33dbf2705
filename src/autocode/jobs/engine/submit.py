"""From intent to flow run: exactly one run an attempt, whoever dies in between."""

from __future__ import annotations

import asyncio
from datetime import datetime

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import FlowRunCreate
from prefect.client.schemas.objects import FlowRun
from prefect.states import Scheduled, to_state_create

from autocode.jobs import crash, kinds
from autocode.jobs.engine.attempt import attempt_key
from autocode.jobs.engine.loading import load_flow
from autocode.jobs.engine.system import System
from autocode.jobs.ledger import attempts, jobs

__all__ = ["submit_planned"]


async def submit_planned(system: System, client: PrefectClient, job_id: str) -> None:
    """Give every planned attempt of the job that has no flow run one. Idempotent.

    A process that died after the run was made and before the ledger knew finds the same run again by its
    idempotency key, which Prefect keeps unique within a flow.
    """
    for wanting, n, due_at in await asyncio.to_thread(attempts.wants_run, system.db):
        if wanting == job_id:
            run = await _create(system, client, job_id, n, due_at)
            crash.at("submit.after-create")
            await asyncio.to_thread(attempts.set_run, system.db, job_id, n, str(run.id))


async def _create(system: System, client: PrefectClient, job_id: str, n: int, due_at: datetime) -> FlowRun:
    name, payload = await asyncio.to_thread(jobs.payload_of, system.db, job_id)
    flow = load_flow(kinds.get(name))
    flow_id = await client.create_flow(flow)
    body = FlowRunCreate(
        flow_id=flow_id,
        flow_version=flow.version,
        name=f"{name} {job_id} attempt {n}",
        parameters=payload,
        idempotency_key=attempt_key(job_id, n),
        tags=["autocode-jobs", f"job:{job_id}"],
        state=to_state_create(Scheduled(scheduled_time=due_at)),
    )
    # PrefectClient.create_flow_run takes no idempotency key (prefect/client/orchestration/_flow_runs)
    response: httpx.Response = await client.request(
        "POST", "/flow_runs/", json=body.model_dump(mode="json", exclude_unset=True)
    )
    response.raise_for_status()
    return FlowRun.model_validate(response.json())
