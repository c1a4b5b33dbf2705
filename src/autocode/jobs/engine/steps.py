"""A step as a Prefect task: cached by our memo, retried by Prefect, committed under our fence."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from prefect import Flow, Task, flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed
from prefect.utilities.annotations import opaque

from autocode.jobs import crash
from autocode.jobs.engine.batch import Batch
from autocode.jobs.engine.context import AttemptContext
from autocode.jobs.engine.problems import StepFailed, presentable
from autocode.jobs.engine.threads import in_daemon_thread
from autocode.jobs.errors import AttemptEnded, LedgerUnavailable, is_transient
from autocode.jobs.kinds import Chain, I, Kind, P, Produced, Step
from autocode.jobs.ledger import results
from autocode.jobs.ledger.checkpoints import MemoKey

__all__ = ["PrefectJob", "StepTask", "job_flow", "step_task"]

T = TypeVar("T")
Q = ParamSpec("Q")

_LOOK_SECONDS: Final = 0.2
"""Pause between two looks whether a step's attempt must stop."""

_GRACE_SECONDS: Final = 1.0
"""How long a step may take to notice that its attempt must stop."""


@dataclass(slots=True)
class _Call:
    """What a Prefect task run works on, through all of its retries: a call of a step, or many."""

    context: AttemptContext
    perform: Callable[[], Coroutine[Any, Any, Produced | State[Any] | None]]
    delays: list[float]
    failures: int = field(default=0)


StepTask = Task[..., Any]
Main = Coroutine[Any, Any, str]


def job_flow(kind: Kind[Any]) -> Callable[[Callable[Q, Main]], Flow[Q, Main]]:
    """Make a function the flow of *kind*: it gets the kind's name, and Prefect persists nothing of it.

    ``@flow(name=kind.name, persist_result=False)`` does the same, for code that imports Prefect.
    """
    return flow(
        name=kind.name,
        persist_result=False,
        # Prefect asks its server where results go, even where it keeps none; naming a place spares that
        result_storage=Path(os.devnull),
        # the kind's own model checks, and says more; Prefect would build another for every run
        validate_parameters=False,
        log_prints=False,
    )


def step_task(step: Step[Any]) -> StepTask:
    """Return *step* as a Prefect task.

    Its retries are Prefect's: exponential backoff with jitter, for transient errors only. A step that was
    done before ends as ``Cached`` in Prefect and does no work. What Prefect would persist of it is nothing:
    the checkpoint is in our store and ledger.
    """

    async def run(call: _Call) -> Produced | State[Any] | None:
        if call.failures:
            await _announce(call, None)
        try:
            return await call.perform()
        except Exception as error:
            shown = presentable(error)
            if shown is not error:
                shown.__cause__ = error
            # Prefect keeps an exception's text, and a detail may name a file
            raise StepFailed(shown) from error

    declare = task(
        name=step.name,
        retries=step.retries.count,
        retry_condition_fn=_may_retry,
        persist_result=False,
        cache_policy=NO_CACHE,
        log_prints=False,
    )
    return declare(run)


async def _perform(
    context: AttemptContext, step: Step[Any], inputs: Any, key: MemoKey, label: str
) -> Produced | State[Produced]:
    crash.at("step.before")
    recalled = await _unless_stopped(context, in_daemon_thread(context.recall, key))
    if recalled is not None:
        await asyncio.to_thread(context.commit, key, recalled, label=label, reused=True)
        return Completed(name="Cached", message=f"Reused {recalled.digest}", data=recalled)
    produced = await _unless_stopped(context, in_daemon_thread(step.body, context, inputs))
    await asyncio.to_thread(context.commit, key, produced, label=label, reused=False)
    return produced


async def _reuse(context: AttemptContext, batch: Batch, found: Sequence[int]) -> State[None]:
    """Commit what is remembered; ``Cached``, if all of it was whole."""
    whole = await _unless_stopped(context, in_daemon_thread(batch.reuse, found))
    reused = batch.reused(found)
    return Completed(name="Cached" if whole else None, message=f"Reused {reused}")


async def _perform_group(context: AttemptContext, batch: Batch, group: Sequence[int]) -> None:
    await _unless_stopped(context, in_daemon_thread(batch.perform, group))


async def _unless_stopped(context: AttemptContext, work: asyncio.Future[T]) -> T:
    """Await *work*; once the attempt must stop, leave it to itself after a grace time.

    A step that never calls ``check`` can't be interrupted, and needn't be: it can't change anything any more.
    """
    stopped_for = 0.0
    try:
        while not (await asyncio.wait({work}, timeout=_LOOK_SECONDS))[0]:
            if context.keeper.reason is not None:
                stopped_for += _LOOK_SECONDS
            if stopped_for > _GRACE_SECONDS:
                context.check()
        return work.result()
    finally:
        # what it ends with after this is nobody's business
        work.cancel()


async def _may_retry(_task: Any, task_run: TaskRun, state: State[Any]) -> bool:  # noqa: ARG001 - signature is Prefect's
    error = await state.aresult(raise_on_failure=False)
    return isinstance(error, StepFailed) and is_transient(error.error)


class PrefectJob:
    """Implements :class:`autocode.jobs.kinds.JobContext` inside a Prefect flow run.

    Args:
        context: the begun attempt.
        payload: the job's payload, parsed.
        tasks: the kind's steps as Prefect tasks, by name.
    """

    def __init__(self, context: AttemptContext, payload: P, tasks: Mapping[str, StepTask]) -> None:
        self._context = context
        self._tasks = tasks
        self.payload = payload
        self.current: str | None = None
        """The step that runs now, as people see it; after an error, the one that raised it."""

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._context.attempt.job_id

    @property
    def attempt(self) -> int:
        """Which attempt this is."""
        return self._context.attempt.n

    async def step(self, step: Step[I], inputs: I, *, label: str | None = None) -> Produced:
        """Run *step* as a Prefect task run, or take what it produced before."""
        self._context.check()
        self.current = label or step.name
        key = step.memo_key(self.job_id, inputs)
        perform = partial(_perform, self._context, step, inputs, key, self.current)
        produced: Produced = await self._run(step, self.current, perform)
        self.current = None
        return produced

    async def steps(
        self, step: Step[I], chains: Sequence[Chain[I]], *, label: str, unit: str
    ) -> list[Produced]:
        """Run *step* many times, or take what it produced before: one Prefect task run for many calls."""
        context = self._context
        context.check()
        batch = Batch(context, step, self.job_id, chains, unit)
        try:
            found = await _unless_stopped(context, in_daemon_thread(batch.look_up))
            for some in batch.portions(found) if found else ():
                self.current = batch.label(some, label)
                await self._run(step, self.current, partial(_reuse, context, batch, some))
            for group in batch.groups():
                self.current = batch.label(group, label)
                await self._run(step, self.current, partial(_perform_group, context, batch, group))
        except BaseException:
            self.current = batch.failed or self.current
            raise
        finally:
            batch.close()
        self.current = None
        return batch.results

    async def _run(self, step: Step[Any], name: str, perform: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        # the delays are drawn here and not by Prefect, so that the time of the next try can be shown
        call = _Call(self._context, perform, step.retries.backoff.delays(step.retries.count))
        configured = self._tasks[step.name].with_options(
            task_run_name=name.replace("{", "(").replace("}", ")"),
            retry_delay_seconds=call.delays,
            retry_condition_fn=_announcing(call),
        )
        state = await configured(opaque(call), return_state=True)
        try:
            return await state.aresult()
        except StepFailed as failed:
            error = failed.error
        raise error

    def read(self, digest: str) -> bytes:
        """Return a small object whole."""
        return self._context.read(digest)

    def progress(self, done: int, total: int | None = None, unit: str | None = None) -> None:
        """Persist progress."""
        self._context.progress(done, total, unit)


def _announcing(call: _Call) -> Callable[[Any, TaskRun, State[Any]], Coroutine[Any, Any, bool]]:
    """Return a retry condition that persists when the next try is due, before Prefect waits for it."""

    async def condition(prefect_task: Any, task_run: TaskRun, state: State[Any]) -> bool:
        if call.context.keeper.reason is not None or not await _may_retry(prefect_task, task_run, state):
            return False
        pause = call.delays[min(call.failures, len(call.delays) - 1)]
        call.failures += 1
        return await _announce(call, call.context.system.db.clock.now() + timedelta(seconds=pause))

    return condition


async def _announce(call: _Call, retry_at: datetime | None) -> bool:
    """Persist when the step is tried again; return whether the attempt may go on."""
    try:
        await asyncio.to_thread(
            results.set_progress, call.context.system.db, call.context.attempt, retry_at=retry_at
        )
    except AttemptEnded:
        return False
    except LedgerUnavailable:
        # the pause goes unannounced; the retry itself finds out whether the ledger is back
        pass
    return True
