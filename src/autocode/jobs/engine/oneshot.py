"""One-shot use: run a job to its end in this process, or follow the process that already runs it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.events.worker import EventsWorker
from prefect.exceptions import ObjectNotFound, PrefectSignal, TerminationSignal
from prefect.flow_engine import run_flow_async
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from autocode.jobs import kinds
from autocode.jobs.engine.announce import lives
from autocode.jobs.engine.attempt import holder_name
from autocode.jobs.engine.holder import holding
from autocode.jobs.engine.loading import load_flow
from autocode.jobs.engine.problems import problem
from autocode.jobs.engine.reconcile import Reconciler
from autocode.jobs.engine.runs import PrefectRuns
from autocode.jobs.engine.server import Address, server_log
from autocode.jobs.engine.submit import submit_planned
from autocode.jobs.engine.system import System
from autocode.jobs.errors import LedgerUnavailable, ServerUnavailable, UnexpectedError
from autocode.jobs.ledger import attempts, jobs, queries
from autocode.jobs.model import TERMINAL
from autocode.jobs.projection import Outcome
from autocode.jobs.resource import Job

__all__ = ["run_to_end"]

_LOOK_SECONDS: Final = 0.2
"""Pause between two looks at a job: how late a person learns of a change, and how soon a retry begins."""

_PATIENCE_SECONDS: Final = 60.0
"""How long the server or the ledger may be away before the command gives up; a restart takes a tenth."""

_FAREWELL_SECONDS: Final = 1.5
"""How long an attempt that is handed back may take to tell Prefect so."""

Watcher = Callable[[Job], None]


def run_to_end(system: System, job_id: str, address: Address, watch: Watcher) -> Job:
    """Bring the job to a terminal state: run its attempts here unless another process does.

    Ctrl-C (``KeyboardInterrupt``) hands the attempt back: it uses no budget, and the next run of the same
    command goes on from the last checkpoint. The caller's handler of SIGTERM stays in force.

    Args:
        system: the opened home.
        job_id: an accepted job.
        address: the Prefect server.
        watch: told the job resource at every look.

    Returns:
        The resource in its terminal state.

    Raises:
        ServerUnavailable: the Prefect server stayed away for a minute; the job can be resumed.
        LedgerUnavailable: the ledger's database stayed away for a minute.
    """
    with (
        temporary_settings({PREFECT_API_URL: address.url, PREFECT_API_AUTH_STRING: address.auth}),
        holding(system.home, drives=job_id) as holder,
    ):
        holder_name.set(holder)
        try:
            return asyncio.run(_run_to_end(system, job_id, watch, holder))
        except BaseException as error:
            # after the loop is closed: no thread of it can begin an attempt any more
            with suppress(LedgerUnavailable):
                _hand_back(system, job_id, holder)
                asyncio.run(Reconciler(system, None).sweep(job_id))
            if isinstance(error, TerminationSignal):
                raise KeyboardInterrupt from error
            raise
        finally:
            _tell_all_events()


def _tell_all_events() -> None:
    """Let Prefect's sender of events finish with this server.

    There is one for a process, whatever server it was made for (prefect/events/worker.py): the next job of
    this process would be told of to a server that is gone.
    """
    EventsWorker.drain_all(timeout=_FAREWELL_SECONDS)


async def _run_to_end(system: System, job_id: str, watch: Watcher, holder: str) -> Job:
    async with get_client() as client:
        driver = _Driver(system, client, job_id, watch, holder)
        others = asyncio.create_task(driver.sweep_others())
        try:
            return await driver.run()
        finally:
            others.cancel()
            await asyncio.gather(others, return_exceptions=True)


def _keep_handler(handler: Any) -> None:
    """Take SIGTERM back from Prefect, whose handler raises wherever the loop happens to be.

    Prefect sets it when a flow begins (``capture_sigterm`` in ``prefect/utilities/engine``). Raised in a
    callback or a task on the side it would be logged, and lost.
    """
    if signal.getsignal(signal.SIGTERM) is not handler:
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, handler)


def _hand_back(system: System, job_id: str, holder: str) -> None:
    """End what this process picked or began and didn't end: it uses no budget, and is due at once."""
    with system.db.read() as tx:
        latest = queries.load(tx, job_id).attempts[-1]
    if latest.ended_at is None and latest.holder == holder:
        attempts.end(system.db, job_id, latest.n, Outcome.INTERRUPTED)


class _Driver:
    """Looks at one job until it is over, and runs its attempts when they are due."""

    def __init__(
        self, system: System, client: PrefectClient, job_id: str, watch: Watcher, holder: str
    ) -> None:
        self._system = system
        self._client = client
        self._job_id = job_id
        self._watch = watch
        self._holder = holder
        self._reconciler = Reconciler(system, PrefectRuns(client))
        self._away_since: dict[type[Exception], float] = {}

    async def run(self) -> Job:
        while True:
            job = await self._look()
            if job is not None and job.status in TERMINAL:
                return job
            run_id = await self._next_run()
            if run_id is None:
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                await self._run_attempt(run_id)

    async def sweep_others(self) -> None:
        """Bring what earlier commands left behind up to date, once."""
        with suppress(LedgerUnavailable):
            for job_id in await asyncio.to_thread(queries.open_jobs, self._system.db):
                if job_id != self._job_id:
                    await self._reconciler.sweep(job_id)

    async def _look(self) -> Job | None:
        try:
            await self._reconciler.sweep(self._job_id)
            job = await asyncio.to_thread(queries.get, self._system.db, self._job_id)
        except LedgerUnavailable as error:
            self._reconciler.forget_leases()
            self._away(error)
            return None
        self._away_since.pop(LedgerUnavailable, None)
        self._watch(job)
        return job

    async def _next_run(self) -> str | None:
        """Return the run that this process shall execute now, if one is due and nobody has it."""
        try:
            if await self._is_the_services():
                return None
            await submit_planned(self._system, self._client, self._job_id)
            picked = await asyncio.to_thread(attempts.pick_due, self._system.db, self._job_id, self._holder)
        except httpx.HTTPError as error:
            self._server_away(error)
            return None
        except LedgerUnavailable as error:
            self._away(error)
            return None
        if picked is None:
            self._away_since.pop(ServerUnavailable, None)
        return picked

    async def _is_the_services(self) -> bool:
        """Say whether a living service made the run of the next attempt: its worker runs it, we follow."""
        if not lives(self._system.home, "reconcile"):
            return False
        run_id = await asyncio.to_thread(self._planned_run)
        if run_id is None:
            return False
        try:
            return (await self._client.read_flow_run(UUID(run_id))).deployment_id is not None
        except ObjectNotFound:
            return True

    def _planned_run(self) -> str | None:
        with self._system.db.read() as tx:
            latest = queries.load(tx, self._job_id, history=False).attempts[-1]
        return None if latest.begun_at is not None or latest.ended_at is not None else latest.flow_run_id

    def _server_away(self, error: httpx.HTTPError) -> None:
        told = f"The Prefect server doesn't answer as it should ({type(error).__name__}: {error})"
        self._away(ServerUnavailable(f"{told}; its log is {server_log(self._system.home)}."))

    def _away(self, error: ServerUnavailable | LedgerUnavailable) -> None:
        """Raise *error* once what it names has been away for too long."""
        now = self._system.db.clock.monotonic()
        if now - self._away_since.setdefault(type(error), now) > _PATIENCE_SECONDS:
            raise error

    async def _run_attempt(self, run_id: str) -> None:
        on_termination = signal.getsignal(signal.SIGTERM)
        attempt = asyncio.create_task(self._flow(run_id))
        try:
            while not attempt.done():
                await asyncio.wait({attempt}, timeout=_LOOK_SECONDS)
                _keep_handler(on_termination)
                await self._look()
        except BaseException:
            attempt.cancel()
            await asyncio.wait({attempt}, timeout=_FAREWELL_SECONDS)
            raise
        self._reconciler.run_is_over(run_id)
        error = attempt.exception()
        if error is None:
            self._away_since.pop(ServerUnavailable, None)
        else:
            await asyncio.to_thread(self._escaped, error)

    def _escaped(self, error: BaseException) -> None:
        """End an attempt whose error never reached the ledger: Prefect refused it, or wasn't there."""
        if isinstance(error, (httpx.HTTPError, LedgerUnavailable)):
            _hand_back(self._system, self._job_id, self._holder)
            if isinstance(error, httpx.HTTPError):
                self._server_away(error)
            return
        if not isinstance(error, (Exception, PrefectSignal)):
            raise error
        with self._system.db.read() as tx:
            latest = queries.load(tx, self._job_id).attempts[-1]
        if latest.ended_at is None and latest.holder == self._holder:
            shown = UnexpectedError(f"Prefect did not run the attempt: {type(error).__name__}: {error}")
            told = problem(shown, step=None, attempt=latest.n, at=self._system.db.clock.now())
            attempts.end(self._system.db, self._job_id, latest.n, Outcome.FAILED, error=told)

    async def _flow(self, run_id: str) -> None:
        name, payload = await asyncio.to_thread(jobs.payload_of, self._system.db, self._job_id)
        run = await self._client.read_flow_run(UUID(run_id))
        flow = load_flow(kinds.get(name))
        await run_flow_async(flow, flow_run=run, parameters=payload, return_type="state")
