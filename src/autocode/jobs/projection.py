"""From facts to one of five states: a pure function, driven by a table.

The rows are those of the status contract (``docs/contract.md``), in its order; the first that fits decides.
Prefect's states come in as their type's wire value, so that nothing here imports Prefect; a test walks
Prefect's own ``StateType`` (``prefect/client/schemas/objects.py``) and fails on a type that no row names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from autocode.jobs.model import DeadReason, JobStatus

__all__ = [
    "ENDED_STATES",
    "KNOWN_STATES",
    "LIVE_STATES",
    "AttemptFacts",
    "Ending",
    "JobFacts",
    "Lease",
    "Outcome",
    "RunState",
    "Verdict",
    "budget_spent",
    "counted_failures",
    "project",
]

LIVE_STATES: Final = frozenset({"RUNNING", "PENDING", "PAUSED", "CANCELLING", "SCHEDULED"})
ENDED_STATES: Final = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})
KNOWN_STATES: Final = LIVE_STATES | ENDED_STATES


class Outcome(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    PERMANENT = "permanent"
    CRASHED = "crashed"
    LOST = "lost"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"
    GONE = "gone"

    @property
    def counts(self) -> bool:
        """Whether the attempt uses up budget: handing back and a run that vanished unbegun don't."""
        return self not in {Outcome.INTERRUPTED, Outcome.GONE, Outcome.COMPLETED}

    @property
    def killed(self) -> bool:
        """Whether the attempt's process died rather than report an error."""
        return self in {Outcome.CRASHED, Outcome.LOST}


class Lease(StrEnum):
    """What is known of the attempt's renewals."""

    ALIVE = "alive"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class RunState:
    """What Prefect says of the run of the latest attempt.

    Args:
        type: the wire value of Prefect's ``StateType``; ``None``: no run was made yet; ``"GONE"``: it was
            made and Prefect no longer knows it.
        name: Prefect's free-text state name.
        message: Prefect's message, where it gave one.
    """

    type: str | None = None
    name: str = ""
    message: str = ""

    @property
    def gone(self) -> bool:
        """Whether Prefect no longer knows the run."""
        return self.type == "GONE"


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """One attempt, as the ledger has it."""

    n: int
    due_at: datetime
    begun: bool = False
    outcome: Outcome | None = None
    counts: bool = False

    @property
    def ended(self) -> bool:
        """Whether the attempt is over."""
        return self.outcome is not None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The facts of the job itself that decide its state.

    Args:
        max_attempts: how many attempts may use up budget.
        result_verified: a result was committed and found in the store.
        cancel_requested: the job was called off.
        retried_after: the last attempt before the latest manual retry; 0 where nobody retried.
    """

    max_attempts: int
    result_verified: bool = False
    cancel_requested: bool = False
    retried_after: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """What reconcile must do to the latest attempt before the projection holds."""

    outcome: Outcome
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state that people see, and what reconcile owes.

    ``row`` names the row that decided, for tests and explanations.
    """

    row: str
    status: JobStatus
    reason: DeadReason | None = None
    next_attempt_at: datetime | None = None
    note: str | None = None
    ends: Ending | None = None


@dataclass(frozen=True, slots=True)
class _Situation:
    job: JobFacts
    attempts: Sequence[AttemptFacts]
    run: RunState
    lease: Lease

    @property
    def latest(self) -> AttemptFacts:
        return self.attempts[-1]

    @property
    def begun_alive(self) -> bool:
        return self.latest.begun and not self.latest.ended and self.lease is Lease.ALIVE

    @property
    def unbegun(self) -> bool:
        return not self.latest.begun and not self.latest.ended

    @property
    def waiting(self) -> JobStatus:
        """Queued before the first attempt, retrying after it; one called off before it began is none."""
        earlier = any(
            attempt.begun or (attempt.ended and attempt.outcome is not Outcome.CANCELLED)
            for attempt in self.attempts[:-1]
        )
        return JobStatus.RETRY if earlier else JobStatus.QUEUED


def counted_failures(attempts: Sequence[AttemptFacts], *, after: int = 0) -> int:
    """Return how many attempts used up budget, of those that followed attempt *after*."""
    return sum(attempt.counts for attempt in attempts if attempt.n > after)


def budget_spent(job: JobFacts, attempts: Sequence[AttemptFacts]) -> bool:
    """Say whether no further attempt may be made without a person."""
    return counted_failures(attempts) >= job.max_attempts


def _dead_spent(s: _Situation) -> Verdict:
    counted = [attempt for attempt in s.attempts if attempt.counts and attempt.n > s.job.retried_after]
    poison = all(attempt.outcome is not None and attempt.outcome.killed for attempt in counted)
    return Verdict("spent", JobStatus.DEAD, DeadReason.POISON if poison else DeadReason.EXHAUSTED)


def _running(s: _Situation) -> Verdict:
    note = None if s.run.type in {"RUNNING", None} else f"Prefect says {s.run.name or s.run.type}"
    return Verdict("alive", JobStatus.RUNNING, note=note)


def _cancelled(s: _Situation) -> Verdict:
    # its run would otherwise wait in Prefect, only to be refused
    ending = Ending(Outcome.CANCELLED, "The job was called off before this attempt began.")
    return Verdict("cancelled", JobStatus.DEAD, DeadReason.CANCELLED, ends=ending if s.unbegun else None)


def _lost(_s: _Situation) -> Verdict:
    return Verdict(
        "lease lost",
        JobStatus.RETRY,
        note="worker lost",
        ends=Ending(Outcome.LOST, "The process that ran this attempt stopped renewing its lease."),
    )


def _ended_in_prefect(s: _Situation) -> Verdict:
    outcome = {
        "FAILED": Outcome.FAILED,
        "CRASHED": Outcome.CRASHED,
        "CANCELLED": Outcome.CANCELLED if s.job.cancel_requested else Outcome.FAILED,
        "GONE": Outcome.LOST,
    }.get(s.run.type or "", Outcome.FAILED)
    said = s.run.message or "no message"
    message = f"Prefect ended the run as {s.run.name or s.run.type} without a committed result: {said}"
    return Verdict("ended in Prefect", JobStatus.RETRY, ends=Ending(outcome, message))


def _waiting(s: _Situation) -> Verdict:
    due = s.latest.due_at if s.waiting is JobStatus.RETRY else None
    return Verdict("waiting", s.waiting, next_attempt_at=due)


def _replaced(s: _Situation) -> Verdict:
    gone = s.run.gone
    said = "is gone" if gone else f"ended as {s.run.name or s.run.type} before it began"
    ending = Ending(Outcome.GONE if gone else Outcome.FAILED, f"The run of this attempt {said}.")
    return Verdict("replaced", s.waiting, next_attempt_at=s.latest.due_at, ends=ending)


_Row = tuple[Callable[[_Situation], bool], Callable[[_Situation], Verdict]]

_TABLE: Final[tuple[_Row, ...]] = (
    (lambda s: s.job.result_verified, lambda _: Verdict("result", JobStatus.COMPLETE)),
    (
        lambda s: s.latest.outcome is Outcome.COMPLETED,
        lambda _: Verdict("committed", JobStatus.RUNNING, note="verifying the result"),
    ),
    (lambda s: s.job.cancel_requested and (s.latest.ended or s.unbegun), _cancelled),
    (
        lambda s: s.latest.outcome is Outcome.PERMANENT,
        lambda _: Verdict("permanent", JobStatus.DEAD, DeadReason.PERMANENT),
    ),
    (lambda s: s.latest.ended and budget_spent(s.job, s.attempts), _dead_spent),
    (
        lambda s: s.latest.ended,
        lambda s: Verdict("budget left", JobStatus.RETRY, next_attempt_at=s.latest.due_at),
    ),
    (lambda s: s.latest.begun and s.lease is Lease.LOST, _lost),
    (lambda s: s.begun_alive and (s.run.type is None or s.run.type in LIVE_STATES), _running),
    (lambda s: s.begun_alive, _ended_in_prefect),
    (lambda s: s.unbegun and (s.run.type is None or s.run.type in LIVE_STATES), _waiting),
    (lambda s: s.unbegun, _replaced),
)


def project(job: JobFacts, attempts: Sequence[AttemptFacts], run: RunState, lease: Lease) -> Verdict:
    """Return the contract's state for these facts. Pure.

    Args:
        job: the job's own facts.
        attempts: every attempt in order; at least one.
        run: what Prefect says of the latest attempt's run.
        lease: whether the latest attempt still renews; ignored where none has begun.

    Raises:
        ValueError: no attempt was given, or Prefect's state type is not one that the table knows.
    """
    if not attempts:
        raise ValueError("a job has at least one attempt, planned when it was accepted")
    if run.type is not None and run.type not in KNOWN_STATES and not run.gone:
        raise ValueError(f"the contract has no row for Prefect's state type {run.type!r}")
    situation = _Situation(job, attempts, run, lease)
    return next(verdict(situation) for fits, verdict in _TABLE if fits(situation))
