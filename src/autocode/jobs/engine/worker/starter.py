"""Children as Prefect's runner sees processes: it reports their crashes and cancels them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self, cast
from uuid import UUID

import anyio
import anyio.abc
import httpx
from prefect import Flow
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import PrefectException
from prefect.runner._flow_run_executor import FlowRunExecutionResult, FlowRunExecutorContext
from prefect.runner._hook_runner import HookRunner
from prefect.runner._process_manager import ProcessHandle
from prefect.runner._state_proposer import StateProposer

from autocode.jobs.engine.system import System
from autocode.jobs.engine.worker.children import Child, Children
from autocode.jobs.engine.worker.handback import end_crashed
from autocode.jobs.engine.worker.messages import CANCEL, Order
from autocode.jobs.engine.worker.prewarm import flow_of
from autocode.jobs.errors import JobsError

__all__ = ["RunnerContext", "Starter", "execute", "first_told", "hooks"]

_MEANINGS: Final = {
    signal.SIGKILL: "killed (SIGKILL): by a person, or by the kernel for want of memory",
    signal.SIGSEGV: "killed by the kernel (SIGSEGV): native code touched memory that is not its own",
    signal.SIGBUS: "killed by the kernel (SIGBUS): native code touched memory that is not there",
    signal.SIGABRT: "ended by itself (SIGABRT): native code found something wrong and gave up",
    signal.SIGXCPU: "killed by the kernel (SIGXCPU): it used more processor time than it may",
}


class _Process:
    """What Prefect asks of a process: its number, and how it ended."""

    def __init__(self, child: Child) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        return self._child.returncode


class _Scope:
    """How a child is stopped; its parent sends the signals, so that they hit no other process."""

    wait_after_graceful_kill = True

    def __init__(self, children: Children, child: Child) -> None:
        self._children = children
        self.child = child

    def is_alive(self, pid: int) -> bool:  # noqa: ARG002 - the protocol's
        return not self.child.ended.is_set()

    def graceful_kill(self, pid: int) -> None:  # noqa: ARG002 - the protocol's
        self.child.say(CANCEL)

    def hard_kill(self, pid: int) -> None:  # noqa: ARG002 - the protocol's
        self._children.kill(self.child)

    def close(self) -> None:
        """Nothing is held."""


class Starter:
    """Implements Prefect's ``ProcessStarter``: starts one child and waits for its end.

    Args:
        children: where children come from.
        order: what the child is to do.
    """

    def __init__(self, children: Children, order: Order) -> None:
        self._children = children
        self._order = order

    async def start(
        self,
        flow_run: FlowRun,  # noqa: ARG002 - the protocol's; the order has it
        task_status: anyio.abc.TaskStatus[ProcessHandle] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Start the child, say so, and return when it has ended."""
        child = await self._children.start(self._order)
        process = cast("anyio.abc.Process", _Process(child))
        task_status.started(ProcessHandle(process, _Scope(self._children, child)))
        await child.ended.wait()


class RunnerContext(FlowRunExecutorContext):
    """Prefect's own, shared by all runs of a worker, with two changes: patience, and plain words.

    Args:
        grace: seconds that a child gets to stop when its run is cancelled in Prefect.
        system: gives the opened home; called in threads.
    """

    def __init__(self, grace: float, system: Callable[[], System]) -> None:
        self._grace = grace
        self._system = system

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._state_proposer = _PlainProposer(self.client, self._system)
        # the manager waits in steps of seconds, and half a minute in all
        vars(self.process_manager)["kill"] = self._kill
        return self

    async def _kill(self, flow_run_id: UUID, grace_seconds: float = 30.0, *, force: bool = False) -> None:
        handle = self.process_manager.get(flow_run_id)
        if handle is None:
            return
        scope = cast("_Scope", handle.termination_scope)
        if not force:
            handle.graceful_kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(grace_seconds, self._grace)):
                    await scope.child.ended.wait()
        if not scope.child.ended.is_set():
            handle.hard_kill()


class _PlainProposer(StateProposer):
    def __init__(self, client: PrefectClient, system: Callable[[], System]) -> None:
        super().__init__(client=client)
        self._system = system

    async def propose_crashed(self, flow_run: FlowRun, message: str) -> State[Any] | None:
        prefix = "Process exited with status code: "
        if message.startswith(prefix):
            number = message.removeprefix(prefix).partition(".")[0]
            message = told(int(number)) if number.lstrip("-").isdecimal() else message
            # the process was reaped, so its attempt is over whoever says so first
            message = await asyncio.to_thread(end_crashed, self._system, flow_run, message)
        proposed: State[Any] | None = await super().propose_crashed(flow_run, message)
        if proposed is None:
            # the reconciler may have been faster; the flow's hooks are still this worker's to run
            with suppress(httpx.HTTPError, PrefectException):
                now: State[Any] | None = (await self._client.read_flow_run(flow_run.id)).state
                return now if now is not None and now.is_crashed() else None
        return proposed


def told(status: int) -> str:
    """Say in plain words how a process with this exit status ended."""
    if status >= 0:
        return f"The process of this run ended with status {status} before the run was over."
    try:
        name = signal.Signals(-status)
    except ValueError:
        return f"The process of this run was ended by signal {-status}."
    return f"The process of this run was {_MEANINGS.get(name, f'ended by the signal {name.name}')}."


def hooks(entrypoint_of: Callable[[FlowRun], str | None]) -> HookRunner:
    """Return what runs a flow's hooks for a crash or a cancellation, in the worker.

    Args:
        entrypoint_of: gives the absolute entrypoint of a run's flow; ``None`` where only pull steps could
            fetch it, which have no business in the worker: its hooks are not run, and a warning says so.
    """

    async def resolve(flow_run: FlowRun) -> Flow[..., Any]:
        entrypoint = entrypoint_of(flow_run)
        if entrypoint is None:
            raise RuntimeError("The hooks of a flow that is fetched for each run are not run.")
        return await asyncio.to_thread(flow_of, entrypoint)

    return HookRunner(resolve_flow=resolve)


async def execute(
    runner: RunnerContext,
    starter: Starter,
    flow_run: FlowRun,
    runs_hooks: HookRunner,
    task_status: anyio.abc.TaskStatus[int],
) -> FlowRunExecutionResult:
    """Let Prefect's runner start a child, watch over it, and report how it ended where it couldn't itself.

    Raises:
        RuntimeError: it could not be started; the run says why.
    """
    executor = runner.create_executor(flow_run, starter, propose_submitting=False, hook_runner=runs_hooks)
    execution: FlowRunExecutionResult | None = None

    async def submit(*, task_status: anyio.abc.TaskStatus[Any]) -> None:
        nonlocal execution
        execution = await executor.submit(task_status=task_status)

    async with anyio.create_task_group() as group:
        handle = await group.start(submit)
        task_status.started(handle.pid)
    if execution is None:
        raise RuntimeError("The process of this run could not be started.")
    return execution


@contextmanager
def first_told() -> Iterator[None]:
    """Raise an error of ours as it is, not in the groups that each task group on its way wrapped it in."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group.subgroup(JobsError) or group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
