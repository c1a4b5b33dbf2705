"""The case of one job heard: who watched it, what it left, and whether that is as it has to be."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import sqlalchemy as sa

from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import TERMINAL
from autocode.jobs.testing.crashes.cases import Case, Fault, Victim
from autocode.jobs.testing.crashes.evidence import Evidence, Prefect, Struck, gather
from autocode.jobs.testing.crashes.judge import judge
from autocode.jobs.testing.crashes.poller import Poller
from autocode.jobs.testing.crashes.rules import CLEARED_LATER
from autocode.jobs.testing.crashes.service import OwnService
from autocode.jobs.testing.crashes.undisturbed import Undisturbed
from autocode.jobs.testing.crashes.violations import Violation
from autocode.jobs.testing.crashes.witness import Effect

__all__ = ["Court", "Found", "Hearing"]

_SETTLE_SECONDS: Final = 90.0
"""How long the service may take to clear away what killed processes left; Prefect may have to start first."""

_LOOK_SECONDS: Final = 0.2

_CLOCKS: Final = frozenset({Fault.CLOCK_BACK, Fault.CLOCK_FORWARD})
"""Faults after which persisted times say nothing about how long something took, or what came first."""

_RUNNERS: Final = frozenset({Victim.CHILD, Victim.WORKER, Victim.EVERYTHING})
"""Victims among which is the process that runs the job."""

_CHILDS_POINTS: Final = ("claim.", "step.", "effect.", "result.")


@dataclass(frozen=True, slots=True)
class Hearing:
    """What is known of a job when the fault strikes.

    Args:
        job_id: the job.
        wall: the moment, in seconds since the epoch.
        at: the same on the monotonic clock.
        attempt: the attempt that was the latest to begin; 0 where none had.
        undisturbed: the same job without a fault.
        effects: what that one did to the world.
    """

    job_id: str
    wall: float
    at: float
    attempt: int
    undisturbed: Undisturbed
    effects: Sequence[Effect]


@dataclass(frozen=True, slots=True)
class Found:
    """What the court found; the fields are those of ``runner.Verdict``."""

    violations: tuple[Violation, ...]
    times: tuple[float | None, float | None, float | None]
    attempts: int
    redelivered: int


class Court:
    """Watches the jobs of a service and judges them, as a context manager.

    Args:
        service: the service.
        url: the ledger's SQLAlchemy URL.
    """

    def __init__(self, service: OwnService, url: str) -> None:
        self._service = service
        self._db = Database(url)
        self._poller = Poller(service.url, service.token, service.store)
        self._cursor = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(self._db.close)
        self._stack.enter_context(self._poller)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def open(self, job_id: str) -> None:
        """Watch a job from now on."""
        self._poller.watch(job_id)

    def is_over(self, job_id: str) -> bool:
        """Say whether the job is complete or dead; while the database is away, it isn't known to be."""
        query = sa.select(t.statuses.c.status).where(t.statuses.c.job_id == job_id)
        try:
            with self._db.read() as tx:
                return tx.execute(query).scalar() in {status.value for status in TERMINAL}
        except LedgerUnavailable:
            return False

    def begun(self, job_id: str) -> int:
        """Return the number of the latest attempt that began; 0: none, or the database is away."""
        query = sa.select(sa.func.max(t.attempts.c.n)).where(
            t.attempts.c.job_id == job_id, t.attempts.c.begun_at.is_not(None)
        )
        try:
            with self._db.read() as tx:
                return tx.execute(query).scalar() or 0
        except LedgerUnavailable:
            return 0

    def went_on(self, hearing: Hearing) -> bool:
        """Say whether another attempt has begun since, or the job is over: its result may have been there."""
        return self.begun(hearing.job_id) > hearing.attempt or self.is_over(hearing.job_id)

    def gave_up(self, hearing: Hearing) -> bool:
        """Say whether the attempt of then was ended, or the job is over."""
        query = sa.select(t.attempts.c.ended_at).where(
            t.attempts.c.job_id == hearing.job_id, t.attempts.c.n == max(1, hearing.attempt)
        )
        try:
            with self._db.read() as tx:
                ended = tx.execute(query).scalar() is not None
        except LedgerUnavailable:
            return False
        return ended or self.is_over(hearing.job_id)

    def made(self, hearing: Hearing, *, whole: bool) -> str:
        """Return the digest of the job's latest checkpoint, or, where the *whole* is done, of its result."""
        if whole:
            return hearing.undisturbed.digest
        query = (
            sa.select(t.checkpoints.c.digest)
            .where(t.checkpoints.c.job_id == hearing.job_id)
            .order_by(t.checkpoints.c.seq.desc())
        )
        with self._db.read() as tx:
            return str(tx.execute(query.limit(1)).scalar_one())

    def begin(self, job_id: str, undisturbed: Undisturbed, effects: Sequence[Effect]) -> Hearing:
        """Note how things stand when the fault strikes."""
        return Hearing(job_id, time.time(), time.monotonic(), self.begun(job_id), undisturbed, effects)

    def verdict(self, case: Case, hearing: Hearing, effects: Callable[[], Sequence[Effect]]) -> Found:
        """Judge a job that is over; what is left of it gets a minute and a half to be cleared away."""
        end = time.monotonic() + _SETTLE_SECONDS
        while True:
            delivered = effects()
            evidence = self._evidence(case, hearing, delivered)
            violations = _judged(case, hearing, evidence)
            if time.monotonic() > end or not any(each.rule in CLEARED_LATER for each in violations):
                break
            time.sleep(_LOOK_SECONDS)
        self._poller.forget(hearing.job_id)
        self._cursor = max([self._cursor, *(each.cursor or 0 for each in evidence.ledger.events)])
        return Found(
            violations=tuple(violations),
            times=self._times(case, hearing),
            attempts=len(evidence.ledger.attempts),
            redelivered=sum(max(0, each.deliveries - each.applied) for each in delivered),
        )

    def _evidence(self, case: Case, hearing: Hearing, effects: Sequence[Effect]) -> Evidence:
        known = json.loads((self._service.home.run / "server.json").read_text("utf-8"))
        # while everything is down nobody can be told anything
        known_to_run = hearing.attempt > 0 and case.victim is not Victim.EVERYTHING
        timed = known_to_run and _strikes_the_runner(case)
        return gather(
            hearing.job_id,
            db=self._db,
            home=self._service.home,
            effects=effects,
            poller=self._poller,
            struck=Struck(hearing.attempt, hearing.at) if timed else None,
            prefect=Prefect(known["url"], known["auth"]),
            events_after=self._cursor,
        )

    def _times(self, case: Case, hearing: Hearing) -> tuple[float | None, float | None, float | None]:
        if case.fault in _CLOCKS:
            return None, None, None
        mine = t.attempts.c.job_id == hearing.job_id
        with self._db.read() as tx:
            rows = {row.n: row for row in tx.execute(sa.select(t.attempts).where(mine))}
            query = sa.select(t.statuses.c.completed_at).where(t.statuses.c.job_id == hearing.job_id)
            complete = tx.execute(query).scalar()
        struck = max(1, hearing.attempt)
        later = [row for n, row in sorted(rows.items()) if n > struck]
        moments = (
            rows[struck].ended_at if later else None,
            next((row.begun_at for row in later if row.begun_at is not None), None),
            complete,
        )
        notice, begun, done = (None if at is None else at.timestamp() - hearing.wall for at in moments)
        return notice, begun, done


def _judged(case: Case, hearing: Hearing, evidence: Evidence) -> list[Violation]:
    runner = _strikes_the_runner(case)
    return judge(
        evidence,
        undisturbed=hearing.undisturbed,
        effects=hearing.effects,
        # a spare worker that ends in order may hand its attempt back, too
        max_attempts_expected=3 if case.fault in {Fault.FREEZE, Fault.CUT_OFF} else 2,
        one_attempt=not runner and case.fault not in {Fault.FULL_DISK, Fault.DAMAGE},
        # elsewhere the process that runs the job goes on while another one is stopped, so it may be anywhere
        may_redeliver=runner
        and (case.point == "effect.after-call" or not case.point.startswith(_CHILDS_POINTS)),
        own_retries=1 if case.fault is Fault.FULL_DISK else 0,
        clocks_agree=case.fault not in _CLOCKS,
    )


def _strikes_the_runner(case: Case) -> bool:
    return case.victim in _RUNNERS or case.fault is Fault.CUT_OFF
