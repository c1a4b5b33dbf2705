"""The Prefect worker type ``autocode-jobs``. Importing this module registers it.

It keeps Prefect's own worker for everything that Prefect's UI shows (heartbeats, events, the state Pending),
and replaces how it wakes up, how it starts a run, and how it ends.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import anyio
import anyio.abc
import httpx
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import WorkerFlowRunResponse
from prefect.exceptions import PrefectException
from prefect.settings.context import get_current_settings
from prefect.states import Scheduled
from prefect.workers.base import BaseWorker, BaseWorkerResult
from prefect.workers.server import _run_healthcheck_server

from autocode.jobs.engine.system import System, current_system
from autocode.jobs.engine.worker import registry
from autocode.jobs.engine.worker.arrivals import POLL_SECONDS, Alarm, due_runs, listen
from autocode.jobs.engine.worker.children import Children
from autocode.jobs.engine.worker.configuration import JobsConfiguration, JobsVariables, grace_seconds
from autocode.jobs.engine.worker.drain import drain
from autocode.jobs.engine.worker.messages import Order
from autocode.jobs.engine.worker.related import read_seldom
from autocode.jobs.engine.worker.starter import RunnerContext, Starter, execute, first_told, hooks
from autocode.jobs.engine.worker.watch import Watch
from autocode.jobs.settings import Home, has_room

__all__ = ["JobsWorker", "JobsWorkerResult"]

_LIMIT: Final = 2
"""How many runs at once where nobody says; Prefect's own default is no limit, and a fork is cheap."""

_FRESH_SECONDS: Final = 0.05
"""How old the list of due runs may be before a run is looked at again: another worker may have run it."""

_SETTLE_SECONDS: Final = 3.0
"""How long Prefect may take to hear how the last runs ended, when the worker ends."""

_FAREWELL_SECONDS: Final = 10.0
"""How long Prefect's own part of a worker may take to end, once no child is left."""


class JobsWorkerResult(BaseWorkerResult):
    """How a run's process ended."""


class JobsWorker(BaseWorker[JobsConfiguration, JobsVariables, JobsWorkerResult]):
    """Runs each flow run in a child forked from a warm process.

    Args:
        work_pool_name: the work pool.
        limit: how many runs at once.
        prefetch_seconds: ignored: a run that is taken early would hold a slot.
        system: the opened home; by default the home that the environment names.
        niceness: added to the children's nice value.
        grace: seconds that runs get to end by themselves when the worker is stopped.
        environment: variables for the children, beside the worker's own.
        options: Prefect's own, see ``BaseWorker``.
    """

    type = "autocode-jobs"
    job_configuration = JobsConfiguration
    job_configuration_variables = JobsVariables
    _display_name = "autocode-jobs"
    _description = (
        "Runs each flow run in a child of a warm process on this machine: it begins within a fraction of a "
        "second, and a stopped worker hands its jobs back."
    )

    def __init__(
        self,
        work_pool_name: str,
        *,
        limit: int | None = None,
        prefetch_seconds: float | None = None,  # noqa: ARG002 - Prefect's CLI passes it
        system: System | None = None,
        niceness: int = 10,
        grace: float | None = None,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            work_pool_name, limit=_LIMIT if limit is None else limit, prefetch_seconds=0, **options
        )
        self._home = Home.from_environment() if system is None else system.home
        self._opened = system
        self._niceness = niceness
        self._grace = grace_seconds() if grace is None else grace
        self._extra = dict(environment or {})
        self._alarm = Alarm()
        self._connected = asyncio.Event()
        self._released = asyncio.Event()
        self._polled = 0.0
        self._draining = False
        self._watch: Watch | None = None
        self._told = ""
        self.stopping = False
        """Whether it was told to stop."""
        self._began = registry.started_at(os.getpid()) or ""
        self._entrypoints: dict[UUID, str | None] = {}
        self._children: Children | None = None
        self._runner: RunnerContext | None = None
        self.ready = asyncio.Event()
        """Set once a run that is scheduled now begins at once."""
        self.hurry = asyncio.Event()
        """Set by whoever can't wait for the grace time."""

    @classmethod
    def get_default_base_job_template(cls) -> dict[str, Any]:
        """Return Prefect's, without its defaults of ``null``: each is checked for every run that is made."""
        template = super().get_default_base_job_template()
        for described in template["variables"]["properties"].values():
            if described.get("default", ...) is None:
                del described["default"]
        return template

    async def setup(self) -> None:
        """Start the zygote and connect to Prefect."""
        settings = get_current_settings().to_environment_variables(exclude_unset=True)
        inherited = {
            **os.environ,
            **settings,
            # this process asks the server for its version, and its children take its word for it
            "PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED": "false",
            "AUTOCODE_HOME": str(self._home.path),
            **self._extra,
        }
        self._children = await self._exit_stack.enter_async_context(Children(inherited))
        # it imports what takes seconds; meanwhile this process makes its acquaintance with Prefect
        self._children.begin()
        await super().setup()
        read_seldom(self.client)
        self._runner = await self._exit_stack.enter_async_context(RunnerContext(self._grace, self._system))

    async def teardown(self, *exc_info: Any) -> None:
        """Take nothing more, let runs end, hand back those that don't, and disconnect."""
        self._draining = True
        if self._children is not None:
            await drain(self._children, self._system, grace=self._grace, hurry=self.hurry)
            await self._settled()
        # its observer of cancelled runs waits without limit for a task that it cancelled once
        # (prefect/_internal/_observation_delivery.py), and a worker was seen to hang where nothing else waits
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await super().teardown(*exc_info)
        except TimeoutError:
            self._logger.warning("Prefect's part of the worker didn't end within %g s", _FAREWELL_SECONDS)

    async def start(
        self,
        run_once: bool = False,
        with_healthcheck: bool = False,
        printer: Callable[..., None] = print,
    ) -> None:
        """Take runs and execute them until this task is cancelled; with *run_once*, what is due now."""
        if run_once:
            await super().start(run_once=True, with_healthcheck=with_healthcheck, printer=printer)
            return
        with first_told(), ExitStack() as stack:
            if with_healthcheck:
                stack.enter_context(
                    _run_healthcheck_server(
                        lambda: self.is_worker_still_polling(query_interval_seconds=POLL_SECONDS)
                    )
                )
            async with self:
                self._started_event = await self._emit_worker_started_event()
                printer(f"Worker {self.name!r} started!")
                await self._work()
        printer(f"Worker {self.name!r} stopped!")

    async def run(
        self,
        flow_run: FlowRun,
        configuration: JobsConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> JobsWorkerResult:
        """Run *flow_run* in a child, and return how that ended."""
        status: anyio.abc.TaskStatus[int] = task_status or anyio.TASK_STATUS_IGNORED
        if self._draining:
            await self._put_back(flow_run)
            status.started(0)
            return JobsWorkerResult(status_code=0, identifier="put back")
        configuration.check()
        assert self._children is not None
        assert self._runner is not None
        self._entrypoints[flow_run.id] = configuration.entrypoint
        try:
            with ExitStack() as stack:
                order = self._order(flow_run, configuration, configuration.folder(stack))
                child = Starter(self._children, order)
                runs_hooks = hooks(lambda run: self._entrypoints.get(run.id))
                ended = await execute(self._runner, child, flow_run, runs_hooks, status)
        finally:
            self._entrypoints.pop(flow_run.id, None)
        return JobsWorkerResult(status_code=ended.status_code or 0, identifier=str(ended.handle.pid))

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """Take what is due, as far as there are slots, room on the disk, and a way to the ledger.

        What is taken without them would be lost before its attempt begins, and use up its budget.
        """
        busy = self._draining or self._work_pool is None or self.limiter.available_tokens < 1
        if busy or not self._is_able():
            self._last_polled_time = datetime.now(UTC)
            return []
        return await super().get_and_submit_flow_runs()

    def _is_able(self) -> bool:
        trouble = ""
        if not has_room(self._home.path):
            trouble = f"{self._home.path} has no room left"
        elif self._watch is not None and not self._watch.sees:
            trouble = "the ledger doesn't answer"
        # until the first look nothing is wrong
        if trouble != self._told and self.ready.is_set():
            self._logger.warning("%s", f"{trouble}: runs wait" if trouble else "runs are taken again")
            self._told = trouble
        return not trouble

    async def _get_scheduled_flow_runs(self) -> list[WorkerFlowRunResponse]:
        """Return what is due now, and set the alarm for what comes due next."""
        self._polled = time.monotonic()
        due, later = await due_runs(self.client, self._work_pool_name, sorted(self._work_queues))
        self._alarm.set(later)
        if not due:
            self._alarm.found_nothing()
        return due

    async def _propose_pending_state(self, flow_run: FlowRun) -> bool:
        """Take the run, unless it has gone on since it was listed.

        Prefect refuses to move a run to Pending that is pending or running, and no other: one that another
        worker has brought to its end since would run again.
        """
        if time.monotonic() - self._polled > _FRESH_SECONDS:
            with suppress(httpx.HTTPError, PrefectException):
                state = (await self.client.read_flow_run(flow_run.id)).state
                if state is None or not state.is_scheduled():
                    return False
        return await super()._propose_pending_state(flow_run)

    async def _propose_submitting_state(self, flow_run: FlowRun) -> None:
        """Say nothing: a fork takes milliseconds, and Prefect's server longer to hear of it."""

    async def _give_worker_labels_to_flow_run(self, flow_run_id: UUID) -> None:
        """Leave it out: no page of Prefect's UI shows the labels, and the run's events name the worker."""

    def _release_limit_slot(self, flow_run_id: UUID) -> None:
        super()._release_limit_slot(flow_run_id)
        self._released.set()
        self._alarm.ring()

    def _system(self) -> System:
        """Return the opened home; called in threads, since opening one takes a while."""
        return self._opened or current_system(self._home.path)

    async def _work(self) -> None:
        assert self._children is not None
        async with anyio.create_task_group() as loops:
            loops.start_soon(self._send_heartbeats)
            loops.start_soon(listen, self._alarm, self._connected)
            self._watch = Watch(self._system, self._children, self._alarm.ring)
            loops.start_soon(self._watch.run)
            await self._children.ready()
            while True:
                try:
                    await self.get_and_submit_flow_runs()
                    if self._connected.is_set() and self._work_pool is not None and self._watch.sees:
                        self.ready.set()
                except (httpx.HTTPError, PrefectException) as error:
                    self._logger.warning("Prefect does not say what is due: %s", error)
                await self._alarm.wait()

    async def _send_heartbeats(self) -> None:
        while True:
            synced = self._work_pool is not None
            await asyncio.sleep(self.heartbeat_interval_seconds if synced else POLL_SECONDS)
            try:
                await self._sync_and_initialize()
            except (httpx.HTTPError, PrefectException) as error:
                self._logger.warning("Prefect does not hear the heartbeat: %s", error)

    def _order(self, flow_run: FlowRun, configuration: JobsConfiguration, folder: str | None) -> Order:
        wanted = configuration.niceness
        return Order(
            flow_run=flow_run.model_dump(mode="json"),
            entrypoint=configuration.entrypoint,
            environment=configuration.env,
            directory=folder,
            niceness=self._niceness if wanted is None else wanted,
            home=str(self._home.path),
            worker=os.getpid(),
            worker_began=self._began,
            related=configuration.related,
        )

    async def _put_back(self, flow_run: FlowRun) -> None:
        """Leave a run that was taken a moment before the worker was stopped to the next worker."""
        with suppress(httpx.HTTPError, PrefectException):
            await self.client.set_flow_run_state(flow_run.id, Scheduled())

    async def _settled(self) -> None:
        """Wait until Prefect knows how every run ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while self.limiter.borrowed_tokens:
                    self._released.clear()
                    await self._released.wait()
