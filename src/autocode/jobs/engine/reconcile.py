"""Reconcile: facts, leases and Prefect's word brought together; it alone writes what people see."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Protocol

import sqlalchemy as sa

from autocode.jobs.engine import holder
from autocode.jobs.engine.holder import proven_alive, proven_dead
from autocode.jobs.engine.lease import LeaseWatch
from autocode.jobs.engine.messages import closing_message
from autocode.jobs.engine.problems import problem
from autocode.jobs.engine.rescue import Rescue, SeenRun
from autocode.jobs.engine.system import System
from autocode.jobs.errors import LeadershipLost, LedgerUnavailable, ObjectCorrupt, ObjectMissing, Transient
from autocode.jobs.ledger import attempts, queries, results, statuses
from autocode.jobs.ledger.queries import JobRows
from autocode.jobs.ledger.runs import open_holders
from autocode.jobs.projection import ENDED_STATES, Ending, Lease, Outcome
from autocode.jobs.settings import CANCEL_GRACE_SECONDS, LEASE_SECONDS

__all__ = ["AttemptLost", "CancelUnanswered", "Reconciler", "Reporting", "Runs", "sweep_ledger"]

_REPORT_SECONDS: Final = 30.0
"""How long a process that can't be seen from here has to tell Prefect itself how its attempt ended."""


_AT_ONCE: Final = 4
"""How many jobs are brought up to date at the same time; stamping is serialised by the database anyway."""

logger = logging.getLogger(__name__)


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

    async def look(self, run_ids: Collection[str]) -> Mapping[str, SeenRun]:
        """Return what Prefect says of each run; what it doesn't answer about is left out."""
        ...

    async def close(self, run_id: str, outcome: Outcome, message: str) -> bool:
        """Make sure that the run has a final state, and return whether it has one.

        Never forced, and never over a final state. Idempotent.
        """
        ...


class Reporting(Protocol):
    """What the reconciler asks of whoever tells people in Prefect what an attempt left."""

    async def settled(self, attempt: sa.Row[Any], seen: SeenRun) -> bool:
        """Say whether nothing is to be told (any more) of *attempt*, which is over; never raises."""
        ...


class Reconciler:
    """Looks at open jobs, ends what is dead, verifies results, and persists the projection.

    Any number may run at once: each change is conditional, and stamping is serialised by the database. Where
    Prefect doesn't answer, a look goes by the ledger alone.

    Args:
        system: the opened home.
        runs: Prefect's view of the flow runs; ``None``: Prefect isn't running, the ledger alone is looked at.
        rescue: finds what else must end; a one-shot command has none: it brings one job to its end.
        reports: tells in Prefect what attempts left that can't tell it themselves; ``None``: nobody does.
        buried: called in the event loop when all is told of an attempt whose process died; what that process
            left may be cleared away.
    """

    def __init__(
        self,
        system: System,
        runs: Runs | None,
        *,
        rescue: Rescue | None = None,
        reports: Reporting | None = None,
        buried: Callable[[], None] = lambda: None,
    ) -> None:
        self._system = system
        self._runs = runs
        self._rescue = rescue
        self._reports = reports
        self._buried = buried
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
        if self._rescue is not None:
            self._rescue.forget_all()

    async def sweep(self, job_id: str | None = None) -> None:
        """Bring one job, or all that are open, up to date. Idempotent.

        However many are open, what is read comes in a constant number of queries; only what changes costs
        more. One job's trouble doesn't keep the others waiting: its error is raised after the others' turn.

        Raises:
            LedgerUnavailable: the ledger's database can't be reached.
            LeadershipLost: this process led, and doesn't any more.
            JobNotFound: no job has this id.
        """
        every, untold = await asyncio.to_thread(self._load, job_id)
        seen = await self._look(every.values())
        if job_id is None:
            self._forget_but(every)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(rows: JobRows) -> None:
            async with gate:
                await self._reconcile(rows, seen, told=rows.job.job_id not in untold)

        done = await asyncio.gather(*map(one, every.values()), return_exceptions=True)
        troubles = [each for each in done if each is not None]
        # that the ledger is away, or the lead lost, says more than what came of it
        troubles.sort(key=lambda error: not isinstance(error, (LedgerUnavailable, LeadershipLost)))
        if troubles:
            raise troubles[0]

    def _forget_but(self, every: Collection[str]) -> None:
        self._called_off = {key: since for key, since in self._called_off.items() if key[0] in every}
        self._leases.keep(lambda key: isinstance(key, tuple) and key[0] in every)
        if self._rescue is not None:
            self._rescue.keep(every)

    def _load(self, job_id: str | None) -> tuple[dict[str, JobRows], set[str]]:
        with self._system.db.read() as tx:
            if job_id is not None:
                return {job_id: queries.load(tx, job_id, history=False)}, {job_id}
            found = queries.load_many(tx, queries.open_ids(tx), reach="since")
            return {rows.job.job_id: rows for rows in found}, queries.untold(tx)

    async def _look(self, every: Iterable[JobRows]) -> Mapping[str, SeenRun]:
        if self._runs is None:
            return {}
        wanted = [row.flow_run_id for rows in every for row in rows.attempts if _matters(rows, row)]
        return await self._runs.look(wanted) if wanted else {}

    async def _reconcile(self, rows: JobRows, every: Mapping[str, SeenRun], *, told: bool) -> None:
        seen = self._seen(rows, every)
        lease = await self._lease(rows)
        ending = self._ending(rows, seen, lease)
        called_off = ending is None and self._ignores_cancel(rows)
        if called_off:
            await asyncio.to_thread(self._end_called_off, rows.attempts[-1])
        elif ending is not None:
            await asyncio.to_thread(self._end, rows, ending)
        if called_off or ending is not None:
            # also where somebody else was faster: what was seen is about an attempt that may be over
            rows, seen, lease = await asyncio.to_thread(self._reload, rows), SeenRun(), Lease.ALIVE
            told = False
        if rows.job.result_digest is not None and rows.job.result_verified_at is None:
            told = False
            await asyncio.to_thread(self._check_result, rows)
        if not told or not statuses.is_current(rows, seen.state, lease):
            await asyncio.to_thread(statuses.stamp, self._system.db, rows.job.job_id, seen.state, lease)
        await self._close_runs(rows, every)

    def _seen(self, rows: JobRows, every: Mapping[str, SeenRun]) -> SeenRun:
        latest = rows.attempts[-1]
        seen = every.get(latest.flow_run_id or "", SeenRun())
        # a service looks at Prefect aside: that a begun attempt's run waits is what it saw before the claim
        outdated = latest.begun_at is not None and seen.state.type in {"SCHEDULED", "PENDING"}
        return SeenRun() if outdated and self._rescue is not None else seen

    def _reload(self, rows: JobRows) -> JobRows:
        with self._system.db.read() as tx:
            return queries.load(tx, rows.job.job_id, history=False)

    async def _lease(self, rows: JobRows) -> Lease:
        """Judge the latest attempt's lease. While the ledger is locked, nobody can renew or is lost."""
        latest = rows.attempts[-1]
        if latest.begun_at is None or latest.ended_at is not None:
            return Lease.ALIVE
        still = self._leases.stood_still((latest.job_id, latest.n), latest.renewals)
        if still < 1 / 2:
            return Lease.ALIVE
        if not await asyncio.to_thread(self._writable):
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

    def _ending(self, rows: JobRows, seen: SeenRun, lease: Lease) -> Ending | None:
        latest = rows.attempts[-1]
        if latest.ended_at is None and proven_dead(self._system.home, latest.holder):
            return Ending(Outcome.CRASHED, "The process that ran this attempt died without a word.")
        ending = statuses.judge(rows, seen.state, lease).ends
        if ending is None and self._rescue is not None:
            ending = self._rescue.ending(rows, seen)
        return ending

    def _end(self, rows: JobRows, ending: Ending) -> None:
        latest = rows.attempts[-1]
        lost, now = AttemptLost(ending.message), self._system.db.clock.now()
        # an attempt that was called off before it began is no error, and nothing follows it
        waived = ending.outcome is Outcome.CANCELLED and latest.begun_at is None
        told = None if waived else problem(lost, step=None, attempt=latest.n, at=now)
        # an attempt over its time goes on renewing; of any other, a renewal proves that the look was too old
        whatever = ending.outcome in {Outcome.TIMED_OUT, Outcome.CANCELLED} and latest.begun_at is not None
        ended = attempts.end(
            self._system.db,
            latest.job_id,
            latest.n,
            ending.outcome,
            error=told,
            renewals=None if whatever else latest.renewals,
        )
        # a one-shot command has a person before it, who is told by the job itself
        if ended and self._rescue is not None:
            about = {"job_id": latest.job_id, "attempt": latest.n}
            logger.warning("attempt ended as %s: %s", ending.outcome.value, ending.message, extra=about)

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
        try:
            self._system.store.verify(job.result_digest)
        except (ObjectMissing, ObjectCorrupt) as error:
            told = problem(error, step=None, attempt=job.result_attempt, at=self._system.db.clock.now())
            results.reject_result(self._system.db, job.job_id, job.result_attempt, told)
        else:
            results.mark_verified(self._system.db, job.job_id, job.result_digest)

    async def _close_runs(self, rows: JobRows, every: Mapping[str, SeenRun]) -> None:
        """Say in Prefect how ended attempts ended, where their own process can't any more."""
        if self._runs is None:
            return
        for row in rows.attempts:
            if row.run_closed or row.ended_at is None:
                continue
            seen = every.get(row.flow_run_id or "", SeenRun())
            closed = await self._is_closed(rows, row, seen)
            if closed and (self._reports is None or await self._reports.settled(row, seen)):
                await asyncio.to_thread(attempts.close_run, self._system.db, row.job_id, row.n)
                if Outcome(row.outcome).killed:
                    self._buried()

    async def _is_closed(self, rows: JobRows, row: sa.Row[Any], seen: SeenRun) -> bool:
        if self._runs is None or row.flow_run_id is None or seen.state.type in ENDED_STATES:
            return True
        outcome = Outcome(row.outcome)
        if seen.state.type is None or (not outcome.killed and not seen.state.gone and self._may_report(row)):
            return False
        return await self._runs.close(row.flow_run_id, outcome, closing_message(rows, row))

    def _may_report(self, row: sa.Row[Any]) -> bool:
        """Say whether the attempt's process may still tell Prefect itself how it ended."""
        if (
            row.begun_at is None
            or row.flow_run_id in self._over
            or proven_dead(self._system.home, row.holder)
        ):
            return False
        waited = self._system.db.clock.now() - row.ended_at
        if row.outcome == Outcome.TIMED_OUT and waited > timedelta(seconds=_REPORT_SECONDS):
            # it may hang for ever, and its lock with it
            return False
        return proven_alive(self._system.home, row.holder) or waited < timedelta(seconds=_REPORT_SECONDS)


def _matters(rows: JobRows, row: sa.Row[Any]) -> bool:
    """Say whether Prefect's word about the attempt's run can change anything."""
    open_ = row.ended_at is None and rows.job.result_verified_at is None
    return row.flow_run_id is not None and (open_ or not row.run_closed)


def sweep_ledger(system: System) -> None:
    """Bring every open job up to date as far as the ledger alone tells, without Prefect. Idempotent.

    What processes that were killed left in the home is removed: files half-written, and proofs of death that
    nobody needs any more.
    """
    asyncio.run(Reconciler(system, None).sweep())
    holder.sweep(system.home, open_holders(system.db))
    system.store.sweep_temp()
