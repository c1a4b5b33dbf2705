"""Reconcile: facts, leases and Prefect's word brought together; it alone writes what people see."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed, Crashed, Failed

from autocode.jobs.engine.holder import proven_dead
from autocode.jobs.engine.lease import LeaseWatch
from autocode.jobs.engine.problems import problem
from autocode.jobs.engine.system import System
from autocode.jobs.errors import ObjectCorrupt, ObjectMissing, Transient
from autocode.jobs.ledger import attempts, queries, results, statuses
from autocode.jobs.ledger.queries import JobRows
from autocode.jobs.projection import ENDED_STATES, Ending, Lease, Outcome, RunState

__all__ = ["AttemptLost", "Reconciler"]


class AttemptLost(Transient):
    """The process that ran an attempt died or went quiet."""

    type = "attempt-lost"
    title = "The process that ran this attempt is gone"
    default_hint = "Nothing to do: the next attempt goes on from the last checkpoint."


class Reconciler:
    """Looks at open jobs, ends what is dead, verifies results, and persists the projection.

    Any number may run at once: each change is conditional, and stamping is serialised by the database.

    Args:
        system: the opened home.
        client: Prefect; ``None`` looks at the ledger alone, where Prefect isn't running.
    """

    def __init__(self, system: System, client: PrefectClient | None) -> None:
        self._system = system
        self._client = client
        self._leases = LeaseWatch(system.db.clock)

    async def sweep(self, job_id: str | None = None) -> None:
        """Bring one job, or all that are open, up to date. Idempotent."""
        wanted = (
            [job_id] if job_id is not None else await asyncio.to_thread(queries.open_jobs, self._system.db)
        )
        for each in wanted:
            await self._reconcile(each)

    async def _reconcile(self, job_id: str) -> None:
        rows = await asyncio.to_thread(self._load, job_id)
        run = await self._run_state(rows)
        lease = self._lease(rows)
        ending = self._ending(rows, run, lease)
        if ending is not None:
            await asyncio.to_thread(self._end, rows, ending)
            rows, run, lease = await asyncio.to_thread(self._load, job_id), RunState(), Lease.ALIVE
        await asyncio.to_thread(self._check_result, rows)
        await asyncio.to_thread(statuses.stamp, self._system.db, job_id, run, lease)
        await self._close_runs(rows)

    def _load(self, job_id: str) -> JobRows:
        with self._system.db.read() as tx:
            return queries.load(tx, job_id)

    async def _run_state(self, rows: JobRows) -> RunState:
        run_id = rows.attempts[-1].flow_run_id
        if self._client is None or run_id is None:
            return RunState()
        try:
            run = await self._client.read_flow_run(UUID(run_id))
        except ObjectNotFound:
            return RunState("GONE")
        if run.state is None:
            return RunState()
        return RunState(run.state.type.value, run.state.name or "", run.state.message or "")

    def _lease(self, rows: JobRows) -> Lease:
        latest = rows.attempts[-1]
        if latest.begun_at is None or latest.ended_at is not None:
            return Lease.ALIVE
        lost = self._leases.lost((latest.job_id, latest.n), latest.renewals)
        return Lease.LOST if lost else Lease.ALIVE

    def _ending(self, rows: JobRows, run: RunState, lease: Lease) -> Ending | None:
        latest = rows.attempts[-1]
        if latest.ended_at is None and proven_dead(self._system.home, latest.holder):
            return Ending(Outcome.CRASHED, "The process that ran this attempt died without a word.")
        return statuses.judge(rows, run, lease).ends

    def _end(self, rows: JobRows, ending: Ending) -> None:
        latest = rows.attempts[-1]
        told = problem(
            AttemptLost(ending.message), step=None, attempt=latest.n, at=self._system.db.clock.now()
        )
        attempts.end(
            self._system.db,
            latest.job_id,
            latest.n,
            ending.outcome,
            error=told,
            renewals=latest.renewals,
        )

    def _check_result(self, rows: JobRows) -> None:
        """Look the committed result up in the store before anybody is told that the job is complete."""
        job = rows.job
        if job.result_digest is None or job.result_verified_at is not None:
            return
        try:
            self._system.store.verify(job.result_digest)
        except (ObjectMissing, ObjectCorrupt) as error:
            told = problem(error, step=None, attempt=job.result_attempt, at=self._system.db.clock.now())
            results.reject_result(self._system.db, job.job_id, job.result_attempt, told)
        else:
            results.mark_verified(self._system.db, job.job_id, job.result_digest)

    async def _close_runs(self, rows: JobRows) -> None:
        """Say in Prefect how ended attempts ended, where their own process can't any more."""
        if self._client is None:
            return
        for row in rows.attempts:
            if row.run_closed or row.ended_at is None:
                continue
            if row.flow_run_id is not None and not await self._closed(row):
                continue
            await asyncio.to_thread(attempts.close_run, self._system.db, row.job_id, row.n)

    async def _closed(self, row: sa.Row[Any]) -> bool:
        assert self._client is not None
        run_id = UUID(row.flow_run_id)
        try:
            run = await self._client.read_flow_run(run_id)
        except ObjectNotFound:
            return True
        if run.state is not None and run.state.type.value in ENDED_STATES:
            return True
        outcome = Outcome(row.outcome)
        if not outcome.killed and not proven_dead(self._system.home, row.holder):
            # its process is still reporting the end itself
            return False
        await self._client.set_flow_run_state(run_id, _final_state(outcome))
        return True


_MESSAGES: Final = {
    Outcome.COMPLETED: "The result was committed; the process died before it could say so.",
    Outcome.CRASHED: "The process that ran this attempt died; the job goes on in another run.",
    Outcome.LOST: "The process that ran this attempt went quiet; the job goes on in another run.",
    Outcome.INTERRUPTED: "The attempt was handed back; the job goes on in another run.",
}


def _final_state(outcome: Outcome) -> State[Any]:
    message = _MESSAGES.get(outcome, f"The attempt ended: {outcome}.")
    if outcome is Outcome.COMPLETED:
        return Completed(message=message)
    if outcome.killed:
        return Crashed(message=message)
    if outcome in {Outcome.INTERRUPTED, Outcome.CANCELLED}:
        return Cancelled(message=message)
    return Failed(message=message)
