"""A worker for the tests: takes due runs from the pool, and runs each in a process of its own.

The processes are forked from one that has imported everything, so that a run costs tenths of a second.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from typing import Any, Self
from uuid import UUID

import httpx

from autocode.jobs.engine.server import Address
from autocode.jobs.settings import Home

PRELOADED = ["prefect.flow_engine", "autocode.jobs.engine.attempt", "autocode.jobs.testing.scenario_flows"]


class Runner:
    """Polls the pool in a thread; use it as a context manager."""

    def __init__(self, home: Home, address: Address, *, pool: str = "autocode") -> None:
        self._home = home
        self._address = address
        self._pool = pool
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="runner", daemon=True)
        self.open = threading.Event()
        self.open.set()
        self.children: dict[str, ForkServerProcess] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        for child in self.children.values():
            child.kill()
            child.join()
            child.close()

    def _poll(self) -> None:
        user, _, password = self._address.auth.partition(":")
        with httpx.Client(trust_env=False, timeout=5.0, auth=(user, password)) as client:
            while not self._ending.wait(0.1):
                if self.open.is_set():
                    with suppress(httpx.HTTPError):
                        self._take(client)

    def _take(self, client: httpx.Client) -> None:
        url = f"{self._address.url}/work_pools/{self._pool}/get_scheduled_flow_runs"
        answer = client.post(url, json={"scheduled_before": datetime.now(UTC).isoformat()})
        for item in answer.json() if answer.is_success else []:
            run_id = item["flow_run"]["id"]
            taken = self.children.get(run_id)
            if taken is None or not taken.is_alive():
                self._start(run_id)

    def _start(self, run_id: str) -> None:
        child = self._context.Process(
            target=run_one, args=(str(self._home.path), self._address.url, self._address.auth, run_id)
        )
        child.start()
        self.children[run_id] = child


def run_one(home: str, url: str, auth: str, run_id: str) -> None:
    """Run one flow run, as a child of the runner."""
    os.environ["AUTOCODE_HOME"] = home
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: auth}):
        asyncio.run(_run(run_id))


async def _run(run_id: str) -> Any:
    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow_async

    from autocode.jobs import kinds
    from autocode.jobs.engine.loading import load_flow

    async with get_client() as client:
        run = await client.read_flow_run(UUID(run_id))
        flow = load_flow(kinds.get((await client.read_flow(run.flow_id)).name))
        return await run_flow_async(flow, flow_run=run, parameters=run.parameters, return_type="state")
