"""The peer: Prefect's own process worker, on the Prefect server whose address the environment holds.

``python -m bench.service_peer WORKERS LATENCIES JOBS`` prints its figures as JSON. Its settings are Prefect's
defaults but for the pause between two queries, half a second instead of ten.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate

from bench.peer_flow import nothing

POOL: Final = "bench-process"
_QUERY_SECONDS: Final = "0.5"
_WITHIN: Final = 300.0
_PAUSE: Final = 0.05
_END_SECONDS: Final = 30.0
_FOLDER: Final = str(Path(__file__).resolve().parent)


async def measure(workers: int, latencies: int, jobs: int) -> dict[str, Any]:
    """Give a worker with a limit of *workers* some runs one by one, then *jobs* at once."""
    async with get_client() as client:
        deployment = await _deploy(client)
        with _worker(workers):
            # the first run waits for the worker's own start
            await _many(client, deployment, 1)
            latency = [await _many(client, deployment, 1) for _ in range(latencies)]
            seconds = await _many(client, deployment, jobs)
        await client.delete_work_pool(POOL)
    return {"latency": latency, "jobs": jobs, "per_second": jobs / seconds, "query": float(_QUERY_SECONDS)}


@contextmanager
def _worker(limit: int) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--limit", str(limit)],
        env={**os.environ, "PREFECT_WORKER_QUERY_SECONDS": _QUERY_SECONDS},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def _deploy(client: PrefectClient) -> UUID:
    await client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
    return await client.create_deployment(
        await client.create_flow(nothing),
        "bench",
        entrypoint="peer_flow.py:nothing",
        path=_FOLDER,
        pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": _FOLDER}}],
        work_pool_name=POOL,
    )


async def _many(client: PrefectClient, deployment: UUID, number: int) -> float:
    """Return the seconds from the first request until all *number* runs were seen to be complete."""
    began = time.perf_counter()
    runs = [
        (await client.create_flow_run_from_deployment(deployment, parameters={"salt": uuid.uuid4().hex})).id
        for _ in range(number)
    ]
    while runs:
        if time.perf_counter() - began > _WITHIN:
            raise SystemExit(f"{len(runs)} runs are not complete after {_WITHIN:.0f} s")
        state = (await client.read_flow_run(runs[0])).state
        if state is not None and state.is_completed():
            runs.pop(0)
        else:
            await asyncio.sleep(_PAUSE)
    return time.perf_counter() - began


if __name__ == "__main__":
    json.dump(asyncio.run(measure(*map(int, sys.argv[1:4]))), sys.stdout)
