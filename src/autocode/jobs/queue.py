"""The in-process job queue: the whole status contract in memory, and the reference that lessons start from.

It dies with its process. Everything else is as in the durable queue: enqueueing is idempotent, an error
leads to another attempt from the last checkpoint, a spent budget to the dead letters.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from autocode.jobs.errors import IllegalTransition, JobNotFound, UsageError, describe, is_transient
from autocode.jobs.model import TERMINAL, TRANSITIONS, DeadReason, JobStatus
from autocode.jobs.queue_job import Job, Worker, own_copy, refuse_other_request
from autocode.jobs.queue_schedule import Schedule
from autocode.jobs.retry import Backoff

__all__ = ["Job", "JobQueue", "Worker"]

_JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class JobQueue:
    """Jobs in memory, handed out first in, first out; safe for any number of threads.

    Args:
        max_attempts: attempts that a job gets before it is dead.
        backoff: the pause before a further attempt.
        clock: seconds that never go back; decides when a further attempt is due.
        sleep: waits that many seconds; used by :meth:`run_until_done` alone.
        draw: a number in [0, 1) for the jitter.
        now: seconds since 1970, for the times that people see.

    Raises:
        UsageError: *max_attempts* is below 1.
    """

    def __init__(
        self,
        max_attempts: int = 3,
        *,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        if max_attempts < 1:
            raise UsageError(
                f"max_attempts is {max_attempts}, and a job needs at least 1.", hint="Give 1 or more."
            )
        self.jobs: dict[str, Job] = {}
        self._max_attempts = max_attempts
        self._backoff = backoff if backoff is not None else Backoff()
        self._clock, self._sleep, self._draw, self._now = clock, sleep, draw, now
        self._changed = threading.Condition()
        self._schedule = Schedule()

    def enqueue(self, job_id: str, kind: str, payload: Any) -> Job:
        """Accept a job and return it; the same id with the same request returns the job there is.

        Atomic and idempotent, whatever state the job has reached; a job that ended isn't run again.

        Raises:
            JobConflict: the id is taken by another kind or payload; nothing was changed.
            PayloadInvalid: *payload* isn't a JSON value.
            UsageError: *job_id* isn't an id.
        """
        if _JOB_ID.fullmatch(job_id) is None:
            raise UsageError(
                f"{job_id!r} isn't a job id.",
                hint="Use 1 to 128 letters, digits and . _ : -, beginning with a letter or a digit.",
            )
        own_payload = own_copy(payload)
        with self._changed:
            job = self.jobs.get(job_id)
            if job is not None:
                refuse_other_request(job, kind, own_payload)
                return job
            job = Job(job_id, kind, own_payload, self._max_attempts, times={"enqueued_at": self._now()})
            self.jobs[job_id] = job
            self._offer(job, self._clock())
            return job

    def get(self, job_id: str) -> Job | None:
        """Return the live record of a job, or ``None`` where no job has this id."""
        return self.jobs.get(job_id)

    def snapshot(self, job_id: str) -> Job | None:
        """Return a copy of a job as it is at one moment, or ``None``; the copy doesn't change any more."""
        with self._changed:
            job = self.jobs.get(job_id)
            return job and replace(job, history=list(job.history), times=dict(job.times))

    def seconds_until_due(self, job: Job) -> float:
        """Return how long it is until the next attempt of *job* is due; 0 if it is, or if none will be."""
        return 0.0 if job.next_attempt_at is None else max(0.0, job.next_attempt_at - self._clock())

    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each of the five states, at one moment."""
        with self._changed:
            found = Counter(job.status for job in self.jobs.values())
        return {status.value: found[status] for status in JobStatus}

    @property
    def dead_letters(self) -> list[Job]:
        """The dead jobs that nobody called off, each with its last error; in the order of their arrival."""
        with self._changed:
            return [
                job
                for job in self.jobs.values()
                if job.status is JobStatus.DEAD and job.reason is not DeadReason.CANCELLED
            ]

    def dequeue(self, timeout: float | None = None) -> Job | None:
        """Take the job that has been due longest; ``None`` after *timeout* seconds without one.

        ``None`` as the *timeout* waits as long as it takes. Each due attempt is handed out once, and nobody
        notices if its taker vanishes before :meth:`run`: a queue with leases would.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                pause = math.inf
                if (due := self._schedule.first_due()) is not None:
                    pause = due - self._clock()
                    if pause <= 0:
                        return self.jobs[self._schedule.take()]
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                # an endless wait is cut into hours, which the operating system can count
                self._changed.wait(min(pause, left, 3600.0))

    def run(self, job_id: str, worker: Worker) -> Job:
        """Run one attempt of a job now, due or not, and return the job; its status says how it went.

        An error leaves the checkpoint as it is and the job retrying, or dead once the budget is spent or
        the error is permanent. A job that is complete or dead is returned untouched and *worker* isn't
        called: deliveries may come twice, and a terminal state stays. An interrupt (Ctrl-C) counts as a
        failed attempt and is raised again.

        Raises:
            JobNotFound: no job has this id.
            IllegalTransition: another thread is running the job.
        """
        job = self._job(job_id)
        if not self._begin(job):
            return job
        try:
            checkpoint = worker(job)
        except BaseException as error:
            self._fail(job, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._succeed(job, checkpoint)
        return job

    def run_until_done(self, job_id: str, worker: Worker) -> Job:
        """Run a job's attempts one after the other, sleeping the pauses between, until it is terminal.

        Raises:
            JobNotFound: no job has this id.
            IllegalTransition: another thread is running the job.
        """
        while (job := self.run(job_id, worker)).status not in TERMINAL:
            self._sleep(self.seconds_until_due(job))
        return job

    def work(self, worker: Worker, *, timeout: float | None = 0.0) -> int:
        """Consume: dequeue and run until no job has come due for *timeout* seconds.

        Returns how many jobs it took. Start it in as many threads as there should be consumers.
        """
        taken = 0
        while (job := self.dequeue(timeout)) is not None:
            taken += 1
            # somebody who runs the same job by its id may come first; that mustn't end this consumer
            with contextlib.suppress(IllegalTransition):
                self.run(job.job_id, worker)
        return taken

    def save_checkpoint(self, job_id: str, checkpoint: Any) -> None:
        """Record progress in the middle of an attempt; the next attempt starts from it if this one fails.

        Raises:
            JobNotFound: no job has this id.
            IllegalTransition: the job isn't running.
        """
        with self._changed:
            job = self._job(job_id)
            if job.status is not JobStatus.RUNNING:
                raise _refusal(job, "a checkpoint is saved by a running attempt alone")
            self._record(job, checkpoint)

    def cancel(self, job_id: str) -> Job:
        """Call a job off: at once if it waits, else when its attempt ends, whose outcome no longer counts.

        Idempotent: a job that was called off before is returned as it is.

        Raises:
            JobNotFound: no job has this id.
            IllegalTransition: the job is complete, or dead for another reason.
        """
        with self._changed:
            job = self._job(job_id)
            if job.reason is DeadReason.CANCELLED:
                return job
            if job.status in TERMINAL:
                raise _refusal(job, "only a job that hasn't ended can be called off")
            job.cancel_requested = True
            if job.status is not JobStatus.RUNNING:
                self._die(job, DeadReason.CANCELLED)
            return job

    def retry(self, job_id: str) -> Job:
        """Give a dead job one more attempt than it had, from its last checkpoint; the manual retry.

        Raises:
            JobNotFound: no job has this id.
            IllegalTransition: the job isn't dead.
        """
        with self._changed:
            job = self._job(job_id)
            if job.status is not JobStatus.DEAD:
                raise _refusal(job, "only a dead job can be retried by hand")
            job.max_attempts += 1
            job.reason, job.cancel_requested = None, False
            _move(job, JobStatus.RETRY if job.attempts else JobStatus.QUEUED)
            self._offer(job, self._clock())
            return job

    def _job(self, job_id: str) -> Job:
        job = self.jobs.get(job_id)
        if job is None:
            raise JobNotFound(f"No job has the id {job_id!r}.", job_id=job_id)
        return job

    def _begin(self, job: Job) -> bool:
        with self._changed:
            if job.status in TERMINAL:
                return False
            if job.status is JobStatus.RUNNING:
                raise _refusal(job, "one attempt runs at a time")
            _move(job, JobStatus.RUNNING)
            job.attempts += 1
            job.next_attempt_at = None
            job.times.setdefault("started_at", self._now())
            self._schedule.withdraw(job.job_id)
            return True

    def _succeed(self, job: Job, checkpoint: Any) -> None:
        with self._changed:
            if job.cancel_requested:
                self._die(job, DeadReason.CANCELLED)
                return
            self._record(job, job.checkpoint if checkpoint is None else checkpoint)
            job.problem = None
            job.times["completed_at"] = self._now()
            _move(job, JobStatus.COMPLETE)

    def _fail(self, job: Job, error: BaseException) -> None:
        # an interrupt says nothing about the input, so only an ordinary error can be permanent
        permanent = isinstance(error, Exception) and not is_transient(error)
        with self._changed:
            job.problem = {**describe(error), "retryable": not permanent, "attempt": job.attempts}
            if job.cancel_requested:
                self._die(job, DeadReason.CANCELLED)
            elif permanent:
                self._die(job, DeadReason.PERMANENT)
            elif job.attempts >= job.max_attempts:
                self._die(job, DeadReason.EXHAUSTED)
            else:
                _move(job, JobStatus.RETRY)
                self._offer(job, self._clock() + self._backoff.delay(job.attempts, self._draw))

    def _die(self, job: Job, reason: DeadReason) -> None:
        _move(job, JobStatus.DEAD)
        job.reason, job.next_attempt_at = reason, None
        self._schedule.withdraw(job.job_id)

    def _record(self, job: Job, checkpoint: Any) -> None:
        job.checkpoint = checkpoint
        job.times["checkpoint_at"] = self._now()
        if not job.history or job.history[-1] != checkpoint:
            job.history.append(checkpoint)

    def _offer(self, job: Job, due: float) -> None:
        job.next_attempt_at = due
        self._schedule.offer(job.job_id, due)
        # everybody: one woken alone may give up before the job is due, and nobody else would know of it
        self._changed.notify_all()


def _move(job: Job, status: JobStatus) -> None:
    assert status in TRANSITIONS[job.status], f"{job.status} -> {status}"
    job.status = status


def _refusal(job: Job, rule: str) -> IllegalTransition:
    return IllegalTransition(
        f"Job {job.job_id!r} is {job.status}: {rule}.", job_id=job.job_id, status=job.status.value
    )
