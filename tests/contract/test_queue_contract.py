"""The in-process queue passes the scenarios that the service passes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autocode.jobs import JobQueue
from autocode.jobs.errors import JobNotFound, Permanent, Transient
from autocode.jobs.queue import Job
from autocode.jobs.retry import Backoff
from autocode.jobs.testing.queue_contract import QueueContract, Seen, Work


class InProcess:
    """The in-process queue; its consumer is this thread, or another for work that waits to be called off."""

    def __init__(self) -> None:
        self._queue = JobQueue(max_attempts=3, backoff=Backoff(first=0.001, ceiling=0.01))
        self._tries: Counter[str] = Counter()
        self._begun = threading.Event()
        self._thread: threading.Thread | None = None

    def enqueue(self, job_id: str, work: Work) -> Seen:
        """Ask for a job."""
        return _seen(self._queue.enqueue(job_id, "contract", {"work": work.value}))

    def get(self, job_id: str) -> Seen:
        """Look at a job."""
        job = self._queue.jobs.get(job_id)
        if job is None:
            raise JobNotFound(f"No job has the id {job_id!r}.")
        return _seen(job)

    def settled(self, job_id: str) -> Seen:
        """Run the job to its end."""
        if self._thread is not None:
            self._thread.join(30)
        return _seen(self._queue.run_until_done(job_id, self._work))

    def running(self, job_id: str) -> None:
        """Run the job in a thread, until its work has begun."""
        self._thread = threading.Thread(target=self._queue.run_until_done, args=(job_id, self._work))
        self._thread.start()
        assert self._begun.wait(30)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Do nothing: nothing runs here unless it is told to."""
        yield

    def cancel(self, job_id: str) -> None:
        """Call a job off."""
        self._queue.cancel(job_id)

    def retry(self, job_id: str) -> Seen:
        """Give a dead job one attempt more."""
        return _seen(self._queue.retry(job_id))

    def tries(self, job_id: str) -> int:
        """Return how often the worker was called."""
        return self._tries[job_id]

    def _work(self, job: Job) -> None:
        self._tries[job.job_id] += 1
        work = Work(job.payload["work"])
        if work is Work.HOLD:
            self._begun.set()
            pause = threading.Event()
            while not job.cancel_requested:
                pause.wait(0.005)
        failures = {Work.FAIL_ONCE: 1, Work.FAIL_THRICE: 3}.get(work, 0)
        if self._tries[job.job_id] <= failures:
            raise Transient("It fails for now.")
        if work is Work.REFUSE:
            raise Permanent("It can't succeed.", hint="Don't ask for it.")


def _seen(job: Job) -> Seen:
    told = job.problem
    error = None if told is None else (str(told["type"]), str(told["detail"]), str(told["hint"]))
    return Seen(job.status, job.reason, job.attempts, job.max_attempts, error)


class TestInProcessQueue(QueueContract):
    """The reference."""

    @pytest.fixture
    def subject(self) -> InProcess:
        """Give an empty queue."""
        return InProcess()
