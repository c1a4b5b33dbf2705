"""How an attempt's end is told in Prefect, where the attempt's own process can't tell it any more."""

from __future__ import annotations

from typing import Any, Final

from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Crashed, Failed

from autocode.jobs.projection import Outcome

__all__ = ["final_state"]

_MESSAGES: Final = {
    Outcome.COMPLETED: "The result was committed; the process died before it could say so.",
    Outcome.CRASHED: "The process that ran this attempt died; the job goes on in another run.",
    Outcome.LOST: "The process that ran this attempt went quiet; the job goes on in another run.",
    Outcome.INTERRUPTED: "The attempt was handed back; the job goes on in another run.",
    Outcome.TIMED_OUT: "The attempt ran longer than its time limit.",
    Outcome.CANCELLED: "The job was cancelled.",
    Outcome.GONE: "Prefect no longer knew the run.",
}


def final_state(outcome: Outcome, now: State[Any] | None) -> State[Any]:
    """Return the Prefect state that says how an attempt ended.

    Args:
        outcome: how it ended.
        now: the state that the run has; what is being cancelled may only become cancelled
            (``EnforceCancellingToCancelledTransition``, ``prefect/server/orchestration/core_policy.py``).
    """
    message = _MESSAGES.get(outcome, f"The attempt ended: {outcome}.")
    if outcome in {Outcome.INTERRUPTED, Outcome.CANCELLED} or (now is not None and now.is_cancelling()):
        return Cancelled(message=message)
    if outcome is Outcome.COMPLETED:
        return Completed(message=message)
    if outcome.killed:
        return Crashed(message=message)
    return Failed(message=message)
