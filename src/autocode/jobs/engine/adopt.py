"""Runs that Prefect starts by itself become jobs: at their claim, or by the sweep that finds them due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.states import Failed

from autocode.jobs import kinds
from autocode.jobs.engine.naming import introduction
from autocode.jobs.engine.problems import presentable
from autocode.jobs.engine.submit import identify
from autocode.jobs.engine.system import System
from autocode.jobs.errors import JobConflict, PayloadInvalid
from autocode.jobs.kinds import Kind
from autocode.jobs.ledger import jobs
from autocode.jobs.ledger.jobs import NewJob

__all__ = ["Adopter", "accept"]

_PAGE: Final = 200
"""How many runs Prefect answers with at once."""

_ALIVE: Final = [
    StateType.SCHEDULED,
    StateType.PENDING,
    StateType.RUNNING,
    StateType.PAUSED,
    StateType.CANCELLING,
]

_REMEMBERED: Final = 10_000
"""How many adopted runs are kept in mind, so that the ledger isn't asked about each at every look."""

logger = logging.getLogger(__name__)


def accept(system: System, kind: Kind[Any], payload: Mapping[str, Any], run: FlowRun) -> bool:
    """Accept *run* as job ``prefect:<its id>`` whose first attempt it is; return whether that is new.

    One transaction, so that nobody finds the job without its run and makes it another. Idempotent.

    Raises:
        PayloadInvalid: the run's parameters don't fit the kind; nothing was stored.
        JobConflict: the run was adopted with other parameters, which somebody changed since.
    """
    job_id, _ = identify(run)
    parsed = kind.parse(payload)
    new = NewJob(
        job_id=job_id,
        kind=kind.name,
        payload=parsed.model_dump(mode="json"),
        max_attempts=kind.max_attempts,
        backoff=kind.backoff,
        time_limit=kind.time_limit,
        origin="prefect",
        reads=kind.sessions(parsed),
    )
    return jobs.enqueue(system.db, new, flow_run_id=str(run.id)).new


class Adopter:
    """Finds the runs of our flows that are due, or further, and that no job knows.

    Args:
        system: the opened home.
        client: an open client.
    """

    def __init__(self, system: System, client: PrefectClient) -> None:
        self._system = system
        self._client = client
        self._known: dict[str, None] = {}
        self._kinds: dict[UUID, Kind[Any]] = {}

    async def adopt_all(self) -> int:
        """Adopt what is due, and return how many jobs are new. Idempotent.

        A run whose parameters don't fit its kind is ended as ``Failed`` with a message that points at each
        field; it makes no job, as a request that is refused makes none.

        Raises:
            httpx.HTTPError: Prefect is away.
            LedgerUnavailable: the ledger's database can't be reached.
        """
        adopted, offset = 0, 0
        while True:
            page = await self._due(offset)
            for run in page:
                if str(run.id) not in self._known and _by_prefect(run):
                    adopted += await self._adopt(await self._kind(run.flow_id), run)
            if len(page) < _PAGE:
                return adopted
            offset += _PAGE

    async def _due(self, offset: int) -> list[FlowRun]:
        due = FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_ALIVE)),
            expected_start_time=FlowRunFilterExpectedStartTime(before_=self._system.db.clock.now()),
        )
        return await self._client.read_flow_runs(
            flow_filter=FlowFilter(name=FlowFilterName(any_=[kind.name for kind in kinds.registered()])),
            flow_run_filter=due,
            sort=FlowRunSort.EXPECTED_START_TIME_ASC,
            limit=_PAGE,
            offset=offset,
        )

    async def _kind(self, flow_id: UUID) -> Kind[Any]:
        if flow_id not in self._kinds:
            self._kinds[flow_id] = kinds.get((await self._client.read_flow(flow_id)).name)
        return self._kinds[flow_id]

    async def _adopt(self, kind: Kind[Any], run: FlowRun) -> bool:
        job_id, _ = identify(run)
        try:
            new = await asyncio.to_thread(accept, self._system, kind, run.parameters, run)
        except PayloadInvalid as error:
            message = f"{presentable(error)} No job was made of this run."
            await self._client.set_flow_run_state(run.id, Failed(message=message))
            logger.warning("%s", message, extra={"job_id": job_id})
            new = False
        except JobConflict as error:
            logger.warning("%s", error, extra={"job_id": job_id})
            new = False
        else:
            await self._introduce(kind, run)
        self._known[str(run.id)] = None
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        if new:
            logger.info("run %s adopted", run.name, extra={"job_id": job_id, "attempt": 1})
        return new

    async def _introduce(self, kind: Kind[Any], run: FlowRun) -> None:
        """Give the run a name and tags like others; where that fails the job goes on under the old ones."""
        job_id, _ = identify(run)
        change = introduction(kind.name, job_id, run)
        try:
            if change is not None:
                await self._client.update_flow_run(run.id, name=change.name, tags=change.tags)
        except (httpx.HTTPError, ObjectNotFound) as error:
            logger.info("run %s keeps its name: %s", run.name, error, extra={"job_id": job_id})


def _by_prefect(run: FlowRun) -> bool:
    """Say whether Prefect itself started *run*, and somebody may run it: not a run that one of ours has."""
    _, n = identify(run)
    waits_for_nobody = run.deployment_id is None and run.state_type is StateType.SCHEDULED
    return n is None and not waits_for_nobody
