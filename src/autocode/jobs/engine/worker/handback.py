"""Giving an attempt back: first in the ledger, then in Prefect, so that no attempt is burnt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelled, Crashed

from autocode.jobs.engine.messages import failed_message
from autocode.jobs.engine.problems import problem
from autocode.jobs.engine.reconcile import AttemptLost
from autocode.jobs.engine.submit import identify
from autocode.jobs.engine.system import System
from autocode.jobs.engine.worker import registry
from autocode.jobs.engine.worker.registry import Registered
from autocode.jobs.errors import JobsError, LedgerUnavailable, Transient
from autocode.jobs.ledger import attempts
from autocode.jobs.ledger.queries import load
from autocode.jobs.ledger.runs import RunAttempt, attempt_of_run
from autocode.jobs.projection import Outcome

__all__ = [
    "HANDED_BACK",
    "WORKER_STOPPED",
    "RunCancelled",
    "bury",
    "cancel_attempt",
    "end_crashed",
    "hand_back",
    "tell_prefect",
]

HANDED_BACK: Final = "The worker was stopped and handed the attempt back; the job goes on in another run."
WORKER_STOPPED: Final = (
    "The worker was stopped while it ran this flow. It is no job's flow, so nobody starts it again by itself."
)


class RunCancelled(Transient):
    """Somebody cancelled one run of a job in Prefect, and not the job."""

    type = "run-cancelled"
    title = "The run of this attempt was cancelled in Prefect"
    default_hint = "To end the job itself, cancel the job: `autocode-jobs jobs cancel JOB --reason TEXT`."


def hand_back(system: System, run: FlowRun, holder: str | None, *, orphaned: bool = False) -> bool | None:
    """End the run's attempt as interrupted, which uses no budget. Idempotent.

    Args:
        system: the opened home.
        run: the flow run.
        holder: end it only if this process runs it, or nobody began it; ``None``: whoever runs it.
        orphaned: the worker is gone without having asked for it; the attempt's error says so.

    Returns:
        Whether the attempt is handed back; ``False`` where it ended in another way or is somebody else's;
        ``None`` where the run is no job's.

    Raises:
        LedgerUnavailable: the database can't be reached.
    """
    why = AttemptLost("The worker that ran it was killed or died, so its process handed it back.")
    return _end(system, run, holder, Outcome.INTERRUPTED, why if orphaned else None)


def cancel_attempt(system: System, run: FlowRun, holder: str) -> bool | None:
    """End the run's attempt since the run was cancelled in Prefect; see :func:`hand_back`.

    The attempt counts, unless the whole job was to be cancelled: somebody who cancels run after run has made
    up their mind.
    """
    attempt = _attempt(system, run)
    if attempt is not None and attempt.cancel_requested:
        return _end(system, run, holder, Outcome.CANCELLED, None)
    cancelled = RunCancelled("Somebody cancelled the flow run of this attempt in Prefect.")
    return _end(system, run, holder, Outcome.FAILED, cancelled)


def end_crashed(system: Callable[[], System], run: FlowRun, message: str) -> str:
    """End the attempt of a run whose process was reaped, unless it is over; return what the run shall say.

    The reconciler would find out by itself; this way the run's last word says what follows. Never raises:
    what can't be done now the reconciler does.

    Args:
        system: gives the opened home.
        run: the flow run.
        message: how the process ended.
    """
    with suppress(JobsError):
        opened = system()
        attempt = _attempt(opened, run)
        if attempt is not None and attempt.begun:
            if attempt.outcome is None:
                _end_as_seen(opened, attempt, Outcome.CRASHED, AttemptLost(message))
            with opened.db.read() as tx:
                rows = load(tx, attempt.job_id, history=False)
            own = next(row for row in rows.attempts if row.n == attempt.n)
            return message if own.ended_at is None else failed_message(message, rows, own)
    return message


def bury(system: System, dead: Iterable[Registered]) -> None:
    """Take children that died off the list, and end what they were to run but hadn't claimed. Idempotent.

    An attempt that was claimed has a holder, by whom the reconciler knows that its process is dead. Another
    one would only be found by how long it doesn't begin.

    Raises:
        LedgerUnavailable: the database can't be reached; the children stay on the list.
    """
    for child in dead:
        attempt = attempt_of_run(system.db, child.flow_run_id)
        if attempt is not None and not attempt.begun and attempt.outcome is None:
            died = AttemptLost("The process that was to run this attempt died before it began.")
            _end_as_seen(system, attempt, Outcome.CRASHED, died)
        registry.forget(system.home, child)


def tell_prefect(run: FlowRun, *, ours: bool) -> None:
    """Give the run a final state, unless it has one. Never raises; what can't be told, reconcile tells."""
    state: Any = Cancelled(message=HANDED_BACK) if ours else Crashed(message=WORKER_STOPPED)
    with suppress(Exception), get_client(sync_client=True) as client:
        now = client.read_flow_run(run.id).state
        if now is None or not now.is_final():
            client.set_flow_run_state(run.id, state)


def _attempt(system: System, run: FlowRun) -> RunAttempt | None:
    job_id, n = identify(run)
    return attempt_of_run(system.db, str(run.id), named=None if n is None else (job_id, n))


def _end(
    system: System, run: FlowRun, holder: str | None, outcome: Outcome, error: JobsError | None
) -> bool | None:
    # twice: the claim may come between the look and the end
    for _ in range(2):
        attempt = _attempt(system, run)
        if attempt is None:
            return None
        if attempt.outcome is not None or (holder is not None and attempt.holder not in {None, holder}):
            return attempt.outcome is outcome
        if _end_as_seen(system, attempt, outcome, error):
            return True
    return False


def _end_as_seen(system: System, attempt: RunAttempt, outcome: Outcome, error: JobsError | None) -> bool:
    told = None
    if error is not None:
        told = problem(error, step=None, attempt=attempt.n, at=system.db.clock.now())
    seen: dict[str, Any] = {"token": attempt.token} if attempt.begun else {"renewals": 0}
    try:
        return attempts.end(system.db, attempt.job_id, attempt.n, outcome, error=told, **seen)
    except LedgerUnavailable:
        raise
    except JobsError:
        return False
