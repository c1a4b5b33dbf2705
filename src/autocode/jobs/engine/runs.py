"""Prefect's view of the flow runs, as the reconciler asks for it."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed, Crashed, Failed

from autocode.jobs.projection import ENDED_STATES, Outcome, RunState

__all__ = ["PrefectRuns"]

_ANSWER_SECONDS: Final = 5.0
"""How long Prefect may take to answer before a look goes on without it."""

_MESSAGES: Final = {
    Outcome.COMPLETED: "The result was committed; the process died before it could say so.",
    Outcome.CRASHED: "The process that ran this attempt died; the job goes on in another run.",
    Outcome.LOST: "The process that ran this attempt went quiet; the job goes on in another run.",
    Outcome.INTERRUPTED: "The attempt was handed back; the job goes on in another run.",
    Outcome.TIMED_OUT: "The attempt ran longer than its time limit.",
    Outcome.CANCELLED: "The job was cancelled.",
}


class PrefectRuns:
    """Implements :class:`autocode.jobs.engine.reconcile.Runs` over Prefect's API.

    A server that doesn't answer is no news of a run: its state is unknown, and it isn't closed yet.

    Args:
        client: an open client.
    """

    def __init__(self, client: PrefectClient) -> None:
        self._client = client

    async def state(self, run_id: str) -> RunState:
        """Return the state of a flow run; type ``GONE`` where Prefect no longer knows it."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                run = await self._client.read_flow_run(UUID(run_id))
        except ObjectNotFound:
            return RunState("GONE")
        except (httpx.HTTPError, TimeoutError):
            return RunState()
        if run.state is None:
            return RunState()
        return RunState(run.state.type.value, run.state.name or "", run.state.message or "")

    async def close(self, run_id: str, outcome: Outcome, *, only_look: bool) -> bool:
        """Make sure that the run has a final state, and return whether that is settled.

        It is also settled where Prefect refuses the state: nothing is ever forced.
        """
        now = await self.state(run_id)
        if now.gone or now.type in ENDED_STATES:
            return True
        if only_look or now.type is None:
            return False
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._client.set_flow_run_state(UUID(run_id), _final_state(outcome, now))
        except ObjectNotFound:
            return True
        except (httpx.HTTPError, TimeoutError):
            return False
        return True


def _final_state(outcome: Outcome, now: RunState) -> State[Any]:
    message = _MESSAGES.get(outcome, f"The attempt ended: {outcome}.")
    # what is being cancelled may only become cancelled (EnforceCancellingToCancelledTransition,
    # prefect/server/orchestration/core_policy.py)
    if outcome in {Outcome.INTERRUPTED, Outcome.CANCELLED} or now.type == "CANCELLING":
        return Cancelled(message=message)
    if outcome is Outcome.COMPLETED:
        return Completed(message=message)
    if outcome.killed:
        return Crashed(message=message)
    return Failed(message=message)
