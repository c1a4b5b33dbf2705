"""Reconcile: facts, leases and Prefect's word brought together; it alone writes what people see."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final, Protocol

import sqlalchemy as sa

from autocode.jobs.engine import holder
from autocode.jobs.engine.holder import proven_alive, proven_dead
from autocode.jobs.engine.lease import LeaseWatch
from autocode.jobs.engine.problems import problem
from autocode.jobs.engine.system import System
from autocode.jobs.errors import LedgerUnavailable, ObjectCorrupt, ObjectMissing, Transient
from autocode.jobs.ledger import attempts, queries, results, statuses
from autocode.jobs.ledger.queries import JobRows
from autocode.jobs.projection import Ending, Lease, Outcome, RunState
from autocode.jobs.settings import CANCEL_GRACE_SECONDS, LEASE_SECONDS

__all__ = ["AttemptLost", "CancelUnanswered", "Reconciler", "Runs", "sweep_ledger"]

_REPORT_SECONDS: Final = 30.0
"""How long a process that can't be seen from here has to tell Prefect itself how its attempt ended."""


class AttemptLost(Transient):
    """The process that ran an attempt died or went quiet."""

    type = "attempt-lost"
    title = "The process that ran this attempt is gone"
    default_hint = "Nothing to do: the next attempt goes on from the last checkpoint."


class CancelUnanswered(Transient):
    """The job was called off, and its attempt didn't stop by itself."""

    type = "cancel-unanswered"
    title = "The attempt didn't answer the cancel"
    default_hint = "Nothing to do: whatever its process still does, it can't commit anything."


class Runs(Protocol):
    """What the reconciler asks of Prefect."""

    async def state(self, run_id: str) -> RunState:
        """Return the state of a flow run.

        Its type is ``GONE`` where Prefect no longer knows the run, ``None`` where Prefect doesn't answer.
        """
        ...

    async def close(self, run_id: str, outcome: Outcome, *, only_look: bool) -> bool:
        """Make sure that the run has a final state, and return whether it has one.

        Never forced, and never over a final state. With *only_look* nothing is changed. Idempotent.
        """
        ...


class Reconciler:
    """Looks at open jobs, ends what is dead, verifies results, and persists the projection.

    Any number may run at once: each change is conditional, and stamping is serialised by the database. Where
    Prefect doesn't answer, a look goes by the ledger alone.

    Args:
        system: the opened home.
        runs: Prefect's view of the flow runs; ``None``: Prefect isn't running, the ledger alone is looked at.
    """

    def __init__(self, system: System, runs: Runs | None) -> None:
        self._system = system
        self._runs = runs
        self._leases = LeaseWatch(system.db.clock)
        self._over: set[str] = set()
        self._called_off: dict[tuple[str, int], float] = {}

    def run_is_over(self, flow_run_id: str) -> None:
        """Note that this process, which executed the run, won't report anything about it any more."""
        self._over.add(flow_run_id)

    def forget_leases(self) -> None:
        """Measure every lease and grace time anew: the ledger was away, and nobody could renew or hear."""
        self._leases.forget_all()
        self._called_off.clear()

    async def sweep(self, job_id: str | None = None) -> None:
        """Bring one job, or all that are open, up to date. Idempotent.

        Raises:
            LedgerUnavailable: the ledger's database can't be reached.
        """
        wanted = (
            [job_id] if job_id is not None else await asyncio.to_thread(queries.open_jobs, self._system.db)
        )
        for each in wanted:
            await self._reconcile(each)

    async def _reconcile(self, job_id: str) -> None:
        rows = await asyncio.to_thread(self._load, job_id)
        run = await self._run_state(rows)
        lease = await asyncio.to_thread(self._lease, rows)
        ending = self._ending(rows, run, lease)
        if ending is None and self._ignores_cancel(rows):
            await asyncio.to_thread(self._end_called_off, rows.attempts[-1])
            rows, run, lease = await asyncio.to_thread(self._load, job_id), RunState(), Lease.ALIVE
        elif ending is not None:
            await asyncio.to_thread(self._end, rows, ending)
            rows, run, lease = await asyncio.to_thread(self._load, job_id), RunState(), Lease.ALIVE
        await asyncio.to_thread(self._check_result, rows)
        await asyncio.to_thread(statuses.stamp, self._system.db, job_id, run, lease)
        await self._close_runs(rows)

    def _load(self, job_id: str) -> JobRows:
        with self._system.db.read() as tx:
            return queries.load(tx, job_id, history=False)

    async def _run_state(self, rows: JobRows) -> RunState:
        run_id = rows.attempts[-1].flow_run_id
        if self._runs is None or run_id is None:
            return RunState()
        return await self._runs.state(run_id)

    def _lease(self, rows: JobRows) -> Lease:
        """Judge the latest attempt's lease. While the ledger is locked, nobody can renew or is lost."""
        latest = rows.attempts[-1]
        if latest.begun_at is None or latest.ended_at is not None:
            return Lease.ALIVE
        still = self._leases.stood_still((latest.job_id, latest.n), latest.renewals)
        if still < 1 / 2:
            return Lease.ALIVE
        if not self._writable():
            self._leases.forget_all()
            return Lease.ALIVE
        return Lease.LOST if still >= 1 else Lease.ALIVE

    def _writable(self) -> bool:
        clock = self._system.db.clock
        began = clock.monotonic()
        try:
            with self._system.db.write():
                pass
        except LedgerUnavailable:
            return False
        return clock.monotonic() - began < LEASE_SECONDS / 10

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

    def _ignores_cancel(self, rows: JobRows) -> bool:
        """Say whether the latest attempt has had its time to end itself since the cancel was seen here."""
        latest = rows.attempts[-1]
        key = (latest.job_id, latest.n)
        if rows.job.cancel_requested_at is None or latest.begun_at is None or latest.ended_at is not None:
            self._called_off.pop(key, None)
            return False
        now = self._system.db.clock.monotonic()
        return now - self._called_off.setdefault(key, now) >= CANCEL_GRACE_SECONDS

    def _end_called_off(self, latest: sa.Row[Any]) -> None:
        """End the attempt, though it renews: that is what ignoring a cancel looks like."""
        self._called_off.pop((latest.job_id, latest.n), None)
        error = CancelUnanswered(f"The attempt didn't stop within {CANCEL_GRACE_SECONDS:g} s of the cancel.")
        told = problem(error, step=None, attempt=latest.n, at=self._system.db.clock.now())
        attempts.end(self._system.db, latest.job_id, latest.n, Outcome.CANCELLED, error=told)

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
        if self._runs is None:
            return
        for row in rows.attempts:
            if row.run_closed or row.ended_at is None:
                continue
            outcome = Outcome(row.outcome)
            speaks = not outcome.killed and self._may_report(row)
            if row.flow_run_id is None or await self._runs.close(row.flow_run_id, outcome, only_look=speaks):
                await asyncio.to_thread(attempts.close_run, self._system.db, row.job_id, row.n)

    def _may_report(self, row: sa.Row[Any]) -> bool:
        """Say whether the attempt's process may still tell Prefect itself how it ended."""
        if row.flow_run_id in self._over or proven_dead(self._system.home, row.holder):
            return False
        waited = self._system.db.clock.now() - row.ended_at
        return proven_alive(self._system.home, row.holder) or waited < timedelta(seconds=_REPORT_SECONDS)


def sweep_ledger(system: System) -> None:
    """Bring every open job up to date as far as the ledger alone tells, without Prefect. Idempotent.

    What processes that were killed left in the home is removed: files half-written, and proofs of death that
    nobody needs any more.
    """
    asyncio.run(Reconciler(system, None).sweep())
    holder.sweep(system.home, attempts.open_holders(system.db))
    system.store.sweep_temp()
