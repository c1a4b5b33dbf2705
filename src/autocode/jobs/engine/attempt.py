"""One attempt of a job, as the body of a Prefect flow: claim, run the kind, commit the result."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, cast

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.states import Cancelled, Completed, Failed

from autocode.jobs.engine.adopt import accept
from autocode.jobs.engine.context import AttemptContext
from autocode.jobs.engine.holder import holding
from autocode.jobs.engine.lease import LeaseKeeper
from autocode.jobs.engine.messages import completed_message, failed_message
from autocode.jobs.engine.outage import outlast
from autocode.jobs.engine.problems import problem, title_for_prefect
from autocode.jobs.engine.reconcile import Reconciler
from autocode.jobs.engine.run_page import RunPage
from autocode.jobs.engine.run_reports import Reports
from autocode.jobs.engine.runs import PrefectRuns
from autocode.jobs.engine.steps import PrefectJob, StepTask
from autocode.jobs.engine.submit import identify, submit_adopted
from autocode.jobs.engine.system import System, current_system
from autocode.jobs.errors import (
    AttemptEnded,
    JobCancelled,
    LedgerUnavailable,
    StepTimedOut,
    UsageError,
    is_transient,
)
from autocode.jobs.kinds import Kind, Produced
from autocode.jobs.ledger import attempts, queries, results
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.logs import about
from autocode.jobs.projection import Outcome
from autocode.jobs.settings import Home

__all__ = ["AttemptFailed", "attempt_over", "fenced_off", "holder_name", "run_attempt"]

_log = logging.getLogger(__name__)

holder_name: Final[ContextVar[str | None]] = ContextVar("holder_name", default=None)
"""The holder under which this process picked the attempt; ``None``: the attempt names itself."""


fenced_off: Final[ContextVar[Callable[[float], None] | None]] = ContextVar("fenced_off", default=None)
"""What a process that serves this one run does once somebody else ended its attempt: it leaves, in so many
seconds at the latest (0: now). ``None``: the flow run just fails."""

attempt_over: Final[ContextVar[Callable[[], None] | None]] = ContextVar("attempt_over", default=None)
"""What a process that serves this one run is told once its attempt has ended, however that was."""

_FENCE_SECONDS: Final = 2.0
"""How long a step that doesn't look up may go on after somebody else ended its attempt."""


_REPORT_SECONDS: Final = 2.0
"""How long an attempt waits for the reports of others that it writes, where no reconciler follows."""


class AttemptFailed(Exception):
    """Ends the flow run as ``Failed``; its text is the problem's title, and what follows."""


class _FencedOff(AttemptFailed):
    """Somebody else ended the attempt, and tells of it."""


async def run_attempt(kind: Kind[Any], payload: Mapping[str, Any], tasks: Sequence[StepTask]) -> str:
    """Run one attempt of a job of *kind*; the body of its flow.

    The flow run's idempotency key says which attempt it is. A run without one was started by Prefect itself
    (a schedule, ``prefect deployment run``, the UI) and is adopted as a job of its own.

    Args:
        kind: the job kind.
        payload: the flow's parameters.
        tasks: the kind's steps as Prefect tasks.

    Returns:
        The state in which the flow's run ends; the flow returns it as it is, and who calls the flow gets the
        digest of the committed result. ``Completed`` says which steps were reused; ``Cancelled`` it is where
        the job was called off. ``Failed`` holds an :class:`AttemptFailed`, raised for who calls the flow:
        the attempt ended without a result; the ledger says why, and what comes next.

    Raises:
        AttemptFailed: somebody else ended the attempt, and tells of it.
        AttemptEnded: this run may not begin the attempt, for instance since it ran before.
    """
    run_context = FlowRunContext.get()
    if run_context is None or run_context.flow_run is None:
        raise UsageError("An attempt runs inside a flow run.")
    run = run_context.flow_run
    home = Home.from_environment()
    system = await asyncio.to_thread(current_system, home.path)
    with _named(home) as holder:
        attempt = await asyncio.to_thread(_claim, system, kind, payload, run, holder)
        context = AttemptContext(
            system, attempt, LeaseKeeper(system.db, attempt, lost=_lost(fenced_off.get()))
        )
        try:
            with about(attempt.job_id, attempt.n):
                ended = await _work(kind, payload, context, tasks, RunPage(context, kind.name, run))
        finally:
            # under AUTOCODE_RECONCILED a reconciler follows, and does it sooner and for all jobs
            if run.deployment_id is not None and not os.environ.get("AUTOCODE_RECONCILED"):
                await _tell(system)
    # the state that a flow returns is the one in which its run ends (prefect/states)
    return cast("str", ended)


async def _work(
    kind: Kind[Any],
    payload: Mapping[str, Any],
    context: AttemptContext,
    tasks: Sequence[StepTask],
    page: RunPage,
) -> State[Any]:
    """Perform the begun attempt while its lease is kept; return the state in which its run ends."""
    try:
        # the lease is over with the attempt: what follows is for people's eyes, and may take a moment
        with context.keeper, page.followed():
            _log.info("attempt begun", extra={"kind": kind.name})
            try:
                produced = await _perform(kind, payload, context, tasks)
            finally:
                if (over := attempt_over.get()) is not None:
                    over()
            _log.info("attempt complete", extra={"digest": produced.digest})
    except _FencedOff:
        raise
    except AttemptFailed as failed:
        await page.finish()
        # raised, Prefect would write the name of its class before the words
        state: State[Any] = Failed(message=str(failed), data=failed)
        # the next attempt is a run of its own, whatever Prefect's settings say of retries
        state.state_details.retriable = False
        return state
    except JobCancelled as called_off:
        await page.finish()
        return Cancelled(message=called_off.detail)
    await page.finish()
    message = completed_message(produced.digest, done=context.performed, reused=context.reused)
    return Completed(message=message, data=produced.digest)


def _lost(leave: Callable[[float], None] | None) -> Callable[[], None] | None:
    return None if leave is None else partial(leave, _FENCE_SECONDS)


@contextmanager
def _named(home: Home) -> Iterator[str]:
    picked_by = holder_name.get()
    if picked_by is not None:
        yield picked_by
        return
    with holding(home) as name:
        yield name


async def _tell(system: System) -> None:
    """Bring what people see up to date and plan on: under a worker nobody else does.

    What can't be told now is told by the next run, or by the next command on this home.
    """
    with suppress(httpx.HTTPError, LedgerUnavailable):
        async with get_client() as client:
            reports = Reports(system, client, patience=_REPORT_SECONDS)
            await Reconciler(system, PrefectRuns(client), reports=reports).sweep()
            await submit_adopted(system, client)


def _claim(system: System, kind: Kind[Any], payload: Mapping[str, Any], run: FlowRun, holder: str) -> Attempt:
    job_id, n = identify(run)
    db = system.db
    if n is None:
        outlast(db, _waiting(), accept, system, kind, payload, run)
        n = 1
    # without a token of ours, a claim whose answer was lost would look like somebody else's
    claim = partial(attempts.begin, db, job_id, n, holder=holder, token=str(uuid.uuid4()))
    return outlast(db, _waiting(), claim, flow_run_id=str(run.id))


def _waiting() -> Callable[[], None] | None:
    """Return the check with which to outlast an outage where no lease says that it is time to stop.

    A process that serves this one run can be killed at any time; a one-shot command ends by itself.
    """
    return None if fenced_off.get() is None else lambda: None


async def _perform(
    kind: Kind[Any], payload: Mapping[str, Any], context: AttemptContext, tasks: Sequence[StepTask]
) -> Produced:
    db, attempt = context.system.db, context.attempt
    job: PrefectJob | None = None
    leave = fenced_off.get()
    try:
        job = PrefectJob(context, kind.parse(payload), {task.name: task for task in tasks})
        produced = await kind.run(job)
        context.check()
        await asyncio.to_thread(outlast, db, context.check, results.commit_result, db, attempt, produced)
    except asyncio.CancelledError:
        context.keeper.stop()
        attempts.end(db, attempt.job_id, attempt.n, Outcome.INTERRUPTED, token=attempt.token)
        raise
    except JobCancelled:
        await asyncio.to_thread(
            attempts.end, db, attempt.job_id, attempt.n, Outcome.CANCELLED, token=attempt.token
        )
        raise
    except AttemptEnded as ended:
        # Prefect doesn't fence: what this run says now could be written over what another process said
        if leave is not None:
            leave(0.0)
        raise _FencedOff(ended.detail) from ended
    except Exception as error:
        # whether that is grave depends on what follows, which reconcile tells
        _log.info("attempt failed", exc_info=error)
        told = problem(error, step=job.current if job else None, attempt=attempt.n, at=db.clock.now())
        ending = partial(attempts.end, db, attempt.job_id, attempt.n, error=told, token=attempt.token)
        await asyncio.to_thread(outlast, db, _waiting(), ending, _outcome(error))
        raise AttemptFailed(await asyncio.to_thread(_said_in_prefect, error, context)) from error
    return produced


def _said_in_prefect(error: Exception, context: AttemptContext) -> str:
    attempt = context.attempt
    told = f"{title_for_prefect(error)} (`autocode-jobs jobs explain {attempt.job_id}` says more)."
    try:
        with context.system.db.read() as tx:
            rows = queries.load(tx, attempt.job_id, history=False)
    except LedgerUnavailable:
        return told
    own = next(row for row in rows.attempts if row.n == attempt.n)
    return failed_message(told, rows, own)


def _outcome(error: Exception) -> Outcome:
    if isinstance(error, StepTimedOut):
        return Outcome.TIMED_OUT
    return Outcome.FAILED if is_transient(error) else Outcome.PERMANENT
