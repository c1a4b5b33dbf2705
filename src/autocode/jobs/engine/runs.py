"""Prefect's view of the flow runs, as the reconciler asks for it."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed, Crashed, Failed

from autocode.jobs.projection import ENDED_STATES, Outcome, RunState

__all__ = ["PrefectRuns"]

_MESSAGES: Final = {
    Outcome.COMPLETED: "The result was committed; the process died before it could say so.",
    Outcome.CRASHED: "The process that ran this attempt died; the job goes on in another run.",
    Outcome.LOST: "The process that ran this attempt went quiet; the job goes on in another run.",
    Outcome.INTERRUPTED: "The attempt was handed back; the job goes on in another run.",
}


class PrefectRuns:
    """Implements :class:`autocode.jobs.engine.reconcile.Runs` over Prefect's API.

    Args:
        client: an open client.
    """

    def __init__(self, client: PrefectClient) -> None:
        self._client = client

    async def state(self, run_id: str) -> RunState:
        """Return the state of a flow run; type ``GONE`` where Prefect no longer knows it."""
        try:
            run = await self._client.read_flow_run(UUID(run_id))
        except ObjectNotFound:
            return RunState("GONE")
        if run.state is None:
            return RunState()
        return RunState(run.state.type.value, run.state.name or "", run.state.message or "")

    async def close(self, run_id: str, outcome: Outcome, *, only_look: bool) -> bool:
        """Make sure that the run has a final state, and return whether it has one."""
        state = await self.state(run_id)
        if state.gone or state.type in ENDED_STATES:
            return True
        if only_look:
            return False
        await self._client.set_flow_run_state(UUID(run_id), _final_state(outcome))
        return True


def _final_state(outcome: Outcome) -> State[Any]:
    message = _MESSAGES.get(outcome, f"The attempt ended: {outcome}.")
    if outcome is Outcome.COMPLETED:
        return Completed(message=message)
    if outcome.killed:
        return Crashed(message=message)
    if outcome in {Outcome.INTERRUPTED, Outcome.CANCELLED}:
        return Cancelled(message=message)
    return Failed(message=message)
