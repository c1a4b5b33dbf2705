"""From intent to flow run: exactly one run an attempt, whoever dies in between."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import FlowRunCreate
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.states import Scheduled, to_state_create

from autocode.jobs import crash, kinds
from autocode.jobs.engine.loading import load_flow
from autocode.jobs.engine.system import System
from autocode.jobs.ledger import attempts, jobs

__all__ = ["attempt_key", "identify", "submit_adopted", "submit_planned"]

_ADOPTED: Final = "prefect"
"""What the id of an adopted job starts with; its first run's id follows."""


def attempt_key(job_id: str, n: int) -> str:
    """Return the idempotency key of attempt *n*'s flow run."""
    return f"job:{job_id}:{n}"


def identify(run: FlowRun) -> tuple[str, int | None]:
    """Return the job and the attempt that *run* executes; no attempt where Prefect itself started it."""
    prefix, _, rest = (run.idempotency_key or "").partition(":")
    job_id, _, number = rest.rpartition(":")
    if prefix == "job" and job_id and number.isdecimal():
        return job_id, int(number)
    return f"{_ADOPTED}:{run.id}", None


async def submit_planned(system: System, client: PrefectClient, job_id: str) -> None:
    """Give every planned attempt of the job that has no flow run one. Idempotent.

    A process that died after the run was made and before the ledger knew finds the same run again by its
    idempotency key, which Prefect keeps unique within a flow.
    """
    for wanting, n, due_at in await asyncio.to_thread(attempts.wants_run, system.db):
        if wanting != job_id:
            continue
        run = await _create(system, client, job_id, n, due_at)
        crash.at("submit.after-create")
        await asyncio.to_thread(attempts.set_run, system.db, job_id, n, str(run.id))


async def submit_adopted(system: System, client: PrefectClient) -> None:
    """Give every planned attempt of an adopted job another run of its deployment. Idempotent.

    A worker takes it when it is due; until then the attempt holds no slot anywhere.
    """
    for job_id, n, due_at in await asyncio.to_thread(attempts.wants_run, system.db):
        model = await _adopted_run(client, job_id)
        if model is None or model.deployment_id is None:
            continue
        name, payload = await asyncio.to_thread(jobs.payload_of, system.db, job_id)
        run = await client.create_flow_run_from_deployment(
            model.deployment_id,
            name=_run_name(name, job_id, n),
            parameters=payload,
            idempotency_key=attempt_key(job_id, n),
            tags=_tags(job_id),
            state=Scheduled(scheduled_time=due_at),
            work_queue_name=model.work_queue_name,
            job_variables=model.job_variables,
        )
        await asyncio.to_thread(attempts.set_run, system.db, job_id, n, str(run.id))


async def _adopted_run(client: PrefectClient, job_id: str) -> FlowRun | None:
    prefix, _, run_id = job_id.partition(":")
    if prefix != _ADOPTED:
        return None
    try:
        return await client.read_flow_run(UUID(run_id))
    except (ObjectNotFound, ValueError):
        return None


async def _create(system: System, client: PrefectClient, job_id: str, n: int, due_at: datetime) -> FlowRun:
    name, payload = await asyncio.to_thread(jobs.payload_of, system.db, job_id)
    flow = load_flow(kinds.get(name))
    flow_id = await client.create_flow(flow)
    body = FlowRunCreate(
        flow_id=flow_id,
        flow_version=flow.version,
        name=_run_name(name, job_id, n),
        parameters=payload,
        idempotency_key=attempt_key(job_id, n),
        tags=_tags(job_id),
        state=to_state_create(Scheduled(scheduled_time=due_at)),
    )
    # PrefectClient.create_flow_run takes no idempotency key (prefect/client/orchestration/_flow_runs)
    response: httpx.Response = await client.request("POST", "/flow_runs/", json=_json(body))
    response.raise_for_status()
    return FlowRun.model_validate(response.json())


def _json(body: FlowRunCreate) -> dict[str, Any]:
    return body.model_dump(mode="json", exclude_unset=True)


def _run_name(kind: str, job_id: str, n: int) -> str:
    return f"{kind} {job_id} attempt {n}"


def _tags(job_id: str) -> list[str]:
    return ["autocode-jobs", f"job:{job_id}"]
