"""What every queue of this project must do with a job, as test classes to inherit from.

A queue's own test is a subclass named ``Test…`` with a ``subject`` fixture. The in-process queue and the
service pass the same scenarios; what takes a process of its own stands apart in :class:`ProcessContract`.
"""

from __future__ import annotations

import secrets
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import pytest

from autocode.jobs.errors import JobConflict, JobNotFound, JobsError
from autocode.jobs.model import DeadReason, JobStatus

__all__ = ["ProcessContract", "QueueContract", "Seen", "Subject", "Work"]


class Work(StrEnum):
    """What the work of a job does."""

    SUCCEED = "succeed"
    FAIL_ONCE = "fail-once"
    """Ends its first attempt with a transient error."""
    FAIL_THRICE = "fail-thrice"
    """As often as the budget allows."""
    REFUSE = "refuse"
    """Ends with a permanent error."""
    HOLD = "hold"
    """Takes until the job is called off."""
    CRASH = "crash"
    """Takes its process down, whenever it is tried."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a queue says about a job.

    Args:
        status: one of the five states.
        reason: why it is dead.
        attempts: how many have begun.
        max_attempts: how many may end without success.
        error: the type, detail and hint of the last error that somebody can act on.
    """

    status: JobStatus
    reason: DeadReason | None
    attempts: int
    max_attempts: int
    error: tuple[str, str, str] | None


class Subject(Protocol):
    """A queue under test. Its jobs have a budget of three attempts, and short pauses between them."""

    def enqueue(self, job_id: str, work: Work) -> Seen:
        """Ask for a job, by its id."""
        ...

    def get(self, job_id: str) -> Seen:
        """Look at a job."""
        ...

    def settled(self, job_id: str) -> Seen:
        """Run the job, or let it run, until it is complete or dead."""
        ...

    def running(self, job_id: str) -> None:
        """Run the job, or let it run, until its work has begun."""
        ...

    def busy(self) -> AbstractContextManager[None]:
        """Let no other job begin for the length of the block."""
        ...

    def cancel(self, job_id: str) -> None:
        """Call a job off."""
        ...

    def retry(self, job_id: str) -> Seen:
        """Give a dead job one attempt more."""
        ...

    def tries(self, job_id: str) -> int:
        """Return how often the job's work was begun, by its own account."""
        ...


class QueueContract:
    """The life of a job, whoever runs it."""

    @pytest.fixture
    def job_id(self) -> str:
        """Give an id that no other test uses."""
        return f"contract-{secrets.token_hex(4)}"

    def test_success(self, subject: Subject, job_id: str) -> None:
        """A job is queued at once, and complete after one attempt."""
        accepted = subject.enqueue(job_id, Work.SUCCEED)
        done = subject.settled(job_id)

        assert accepted == Seen(JobStatus.QUEUED, None, 0, 3, None)
        assert done == Seen(JobStatus.COMPLETE, None, 1, 3, None)
        assert subject.tries(job_id) == 1

    def test_transient_then_success(self, subject: Subject, job_id: str) -> None:
        """A transient error costs one attempt, and the next one completes."""
        subject.enqueue(job_id, Work.FAIL_ONCE)
        done = subject.settled(job_id)

        assert (done.status, done.reason, done.attempts, done.max_attempts) == ("complete", None, 2, 3)
        assert done.error is None
        assert subject.tries(job_id) == 2

    def test_permanent(self, subject: Subject, job_id: str) -> None:
        """A permanent error ends the job at its first attempt, and says what to do."""
        subject.enqueue(job_id, Work.REFUSE)
        dead = subject.settled(job_id)

        assert (dead.status, dead.reason, dead.attempts) == ("dead", "permanent", 1)
        assert dead.error is not None
        assert all(dead.error)
        assert subject.tries(job_id) == 1

    def test_exhausted(self, subject: Subject, job_id: str) -> None:
        """A spent budget ends the job, and the last error stays to be seen."""
        subject.enqueue(job_id, Work.FAIL_THRICE)
        dead = subject.settled(job_id)

        assert (dead.status, dead.reason, dead.attempts, dead.max_attempts) == ("dead", "exhausted", 3, 3)
        assert dead.error is not None
        assert subject.tries(job_id) == 3

    def test_cancel_while_queued(self, subject: Subject, job_id: str) -> None:
        """A job that is called off before it began is dead, and its work is never begun."""
        with subject.busy():
            subject.enqueue(job_id, Work.SUCCEED)
            subject.cancel(job_id)
            dead = subject.settled(job_id)
        again = subject.settled(job_id)

        assert dead == again == Seen(JobStatus.DEAD, DeadReason.CANCELLED, 0, 3, None), dead
        assert subject.tries(job_id) == 0

    def test_cancel_while_running(self, subject: Subject, job_id: str) -> None:
        """A job that is called off while it runs ends, and is not tried again."""
        subject.enqueue(job_id, Work.HOLD)
        subject.running(job_id)
        begun = subject.get(job_id)
        subject.cancel(job_id)
        dead = subject.settled(job_id)

        assert (begun.status, begun.attempts) == ("running", 1)
        assert (dead.status, dead.reason, dead.attempts) == ("dead", "cancelled", 1)
        assert subject.tries(job_id) == 1

    def test_manual_retry(self, subject: Subject, job_id: str) -> None:
        """A dead job gets one attempt more and may complete by it; only a dead job can be retried."""
        subject.enqueue(job_id, Work.FAIL_THRICE)
        with pytest.raises(JobsError):
            subject.retry(job_id)
        subject.settled(job_id)
        retried = subject.retry(job_id)
        done = subject.settled(job_id)

        assert retried.status in {JobStatus.RETRY, JobStatus.RUNNING}
        assert (done.status, done.reason, done.attempts, done.max_attempts) == ("complete", None, 4, 4)
        assert subject.tries(job_id) == 4
        with pytest.raises(JobsError):
            subject.retry(job_id)
        assert subject.get(job_id) == done

    def test_idempotent_enqueue(self, subject: Subject, job_id: str) -> None:
        """The same request is the same job, also when that has ended; another request is refused."""
        subject.enqueue(job_id, Work.SUCCEED)
        subject.enqueue(job_id, Work.SUCCEED)
        done = subject.settled(job_id)
        again = subject.enqueue(job_id, Work.SUCCEED)
        with pytest.raises(JobConflict) as refused:
            subject.enqueue(job_id, Work.REFUSE)

        assert again == done
        assert refused.value.data["differs"]
        assert subject.settled(job_id) == done
        assert subject.tries(job_id) == 1

    def test_what_is_complete_stays(self, subject: Subject, job_id: str) -> None:
        """A complete job can't be called off."""
        subject.enqueue(job_id, Work.SUCCEED)
        done = subject.settled(job_id)
        with pytest.raises(JobsError):
            subject.cancel(job_id)

        assert subject.get(job_id) == done

    def test_an_unknown_job(self, subject: Subject, job_id: str) -> None:
        """A job that nobody asked for is told from any other."""
        with pytest.raises(JobNotFound):
            subject.get(job_id)


class ProcessContract(QueueContract):
    """The same, where each attempt has a process of its own that may die alone."""

    def test_poison(self, subject: Subject, job_id: str) -> None:
        """A job that takes every process down ends dead, and is named so."""
        subject.enqueue(job_id, Work.CRASH)
        dead = subject.settled(job_id)

        assert (dead.status, dead.reason, dead.attempts) == ("dead", "poison", 3)
        assert dead.error is not None
        assert subject.tries(job_id) == 3
