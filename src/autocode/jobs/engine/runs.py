"""Prefect's view of the flow runs, as the reconciler asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed, Crashed, Failed

from autocode.jobs.engine.deployments import POOL, SERVICE
from autocode.jobs.engine.rescue import SeenRun
from autocode.jobs.projection import ENDED_STATES, Outcome, RunState

__all__ = ["PrefectRuns"]

_ANSWER_SECONDS: Final = 5.0
"""How long Prefect may take to answer before a look goes on without it."""

_AT_ONCE: Final = 200
"""How many objects Prefect answers with at once."""

_PATIENCE_SECONDS: Final = 2.0
"""How long a run waits before it is asked whether its deployment is still there."""

_WAITING: Final = frozenset({"SCHEDULED", "PENDING"})


class PrefectRuns:
    """Implements :class:`autocode.jobs.engine.reconcile.Runs` over Prefect's API.

    A server that doesn't answer is no news of a run: its state is unknown, and it isn't closed yet.

    Args:
        client: an open client.
    """

    def __init__(self, client: PrefectClient) -> None:
        self._client = client

    async def look(self, run_ids: Collection[str]) -> dict[str, SeenRun]:
        """Return what Prefect says of each run, by few requests; empty where Prefect doesn't answer."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                runs = await self._read(run_ids)
                orphans = await self._orphans(runs)
        except (httpx.HTTPError, TimeoutError):
            return {}
        found = {str(run.id): _seen(run, run.deployment_id in orphans) for run in runs}
        return {run_id: found.get(run_id, SeenRun(RunState("GONE"))) for run_id in run_ids}

    async def close(self, run_id: str, outcome: Outcome, message: str) -> bool:
        """Give the run a final state with *message* unless it has one; return whether that is settled.

        It is also settled where Prefect refuses the state: nothing is ever forced.
        """
        known = _uuid(run_id)
        if known is None:
            return True
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                now = (await self._client.read_flow_run(known)).state
                kind = "" if now is None else now.type.value
                if kind not in ENDED_STATES:
                    final = _final_state(outcome, message, kind)
                    await self._client.set_flow_run_state(known, final)
        except ObjectNotFound:
            return True
        except (httpx.HTTPError, TimeoutError):
            return False
        return True

    async def _read(self, run_ids: Collection[str]) -> list[FlowRun]:
        found: list[FlowRun] = []
        # what is no id of Prefect's can't be one of its runs, and is answered as gone
        for some in _chunks(each for each in map(_uuid, run_ids) if each is not None):
            wanted = FlowRunFilter(id=FlowRunFilterId(any_=some))
            found += await self._client.read_flow_runs(flow_run_filter=wanted, limit=_AT_ONCE)
        return found

    async def _orphans(self, runs: Iterable[FlowRun]) -> set[UUID]:
        """Return the deployments of waiting runs that are gone, or lost their pool: no worker takes those.

        A run that hasn't waited long is left alone: it will be taken in a moment.
        """
        now = datetime.now(UTC)
        named = {
            run.deployment_id
            for run in runs
            if run.deployment_id is not None
            and run.state is not None
            and run.state.type.value in _WAITING
            and (now - run.state.timestamp).total_seconds() > _PATIENCE_SECONDS
        }
        missing = set(named)
        for some in _chunks(named):
            wanted = DeploymentFilter(id=DeploymentFilterId(any_=some))
            found = await self._client.read_deployments(deployment_filter=wanted, limit=_AT_ONCE)
            missing -= {each.id for each in found if each.work_pool_name or each.name != SERVICE}
        return missing


def _uuid(run_id: str) -> UUID | None:
    try:
        return UUID(run_id)
    except ValueError:
        return None


def _chunks(ids: Iterable[UUID]) -> Iterable[list[UUID]]:
    every = list(ids)
    return (every[first : first + _AT_ONCE] for first in range(0, len(every), _AT_ONCE))


def _seen(run: FlowRun, orphaned: bool) -> SeenRun:
    deployed = run.deployment_id is not None
    ours = run.work_pool_name in {None, POOL}
    if orphaned and run.state is not None and run.state.type.value in _WAITING:
        return SeenRun(
            RunState("GONE", message="Its deployment or its work pool was deleted."), deployed, ours
        )
    if run.state is None:
        return SeenRun(RunState(), deployed, ours)
    state = RunState(run.state.type.value, run.state.name or "", run.state.message or "")
    return SeenRun(state, deployed, ours)


def _final_state(outcome: Outcome, message: str, now: str) -> State[Any]:
    # what is being cancelled may only become cancelled (EnforceCancellingToCancelledTransition,
    # prefect/server/orchestration/core_policy.py)
    if outcome in {Outcome.INTERRUPTED, Outcome.CANCELLED, Outcome.GONE} or now == "CANCELLING":
        return Cancelled(message=message)
    if outcome is Outcome.COMPLETED:
        return Completed(message=message)
    if outcome.killed:
        return Crashed(message=message)
    return Failed(message=message)
