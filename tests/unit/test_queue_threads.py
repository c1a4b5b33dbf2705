"""Producers and consumers: order, pauses, time-outs and threads."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs import JobQueue, JobStatus
from autocode.jobs.errors import Transient
from autocode.jobs.queue import Job
from autocode.jobs.queue_schedule import Schedule
from autocode.jobs.retry import Backoff


class Clock:
    """A clock that goes only when told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """Return the time that was set."""
        return self.seconds


def fail(job: Job) -> None:
    """Fail in a way that a second try may cure."""
    raise Transient("not yet")


def taken(queue: JobQueue) -> list[str]:
    """Take everything that is due and return the ids in the order they came."""
    ids: list[str] = []
    while (job := queue.dequeue(timeout=0)) is not None:
        ids.append(job.job_id)
    return ids


def test_jobs_come_out_in_the_order_they_went_in() -> None:
    """First in, first out, each once."""
    queue = JobQueue(clock=Clock())
    for number in range(5):
        queue.enqueue(f"job-{number}", "export", {})

    assert taken(queue) == ["job-0", "job-1", "job-2", "job-3", "job-4"]


def test_dequeue_hands_out_the_live_job_still_queued() -> None:
    """Taking a job isn't starting it: the attempt begins with run."""
    queue = JobQueue()
    job = queue.enqueue("a", "export", {})

    assert queue.dequeue(timeout=0) is job
    assert (job.status, queue.get("a") is job, queue.get("b")) == (JobStatus.QUEUED, True, None)


def test_an_empty_queue_gives_none_after_the_time_out() -> None:
    """The caller gets its thread back, not an exception, and not much too early."""
    started = time.monotonic()

    job = JobQueue().dequeue(timeout=0.02)

    assert (job, time.monotonic() - started >= 0.02) == (None, True)


def test_the_time_out_holds_even_while_a_retry_is_far_away() -> None:
    """A job that is due next year doesn't hold the consumer."""
    queue = JobQueue(clock=Clock(), backoff=Backoff(first=1e6, ceiling=1e6))
    queue.enqueue("a", "export", {})
    queue.run("a", fail)

    assert queue.dequeue(timeout=0.01) is None


def test_a_failed_job_comes_back_when_its_pause_is_over() -> None:
    """Before that it isn't handed out, and others go first."""
    clock = Clock()
    queue = JobQueue(clock=clock, backoff=Backoff(first=10, jitter=0))
    for job_id in ("a", "b"):
        queue.enqueue(job_id, "export", {})
    assert queue.work(lambda job: fail(job) if job.job_id == "a" else 1) == 2

    clock.seconds += 9.9
    early = taken(queue)
    clock.seconds += 0.1

    assert (early, taken(queue), queue.jobs["a"].next_attempt_at) == ([], ["a"], 110.0)


def test_pauses_grow_from_attempt_to_attempt() -> None:
    """The queue's backoff decides, with the draw that was injected."""
    clock = Clock()
    queue = JobQueue(
        max_attempts=4, clock=clock, backoff=Backoff(first=8, jitter=0.5, ceiling=20), draw=lambda: 0.5
    )
    job = queue.enqueue("a", "export", {})
    pauses = []

    for _ in range(3):
        queue.run("a", fail)
        pauses.append(queue.seconds_until_due(job))

    assert pauses == [6, 12, 15]
    assert (queue.run("a", fail).status, queue.seconds_until_due(job)) == (JobStatus.DEAD, 0)


def test_a_job_that_was_run_by_its_id_is_not_handed_out_as_well() -> None:
    """Running it directly takes it out of the line."""
    queue = JobQueue()
    queue.enqueue("a", "export", {})
    queue.enqueue("b", "export", {})

    queue.run("a", lambda _: 1)

    assert taken(queue) == ["b"]


def start_consumer(
    queue: JobQueue, got: list[Job | None], monkeypatch: pytest.MonkeyPatch
) -> threading.Thread:
    """Start a thread that takes one job, and return it once it waits for one."""
    waits, wait = threading.Event(), queue._changed.wait

    def announce(timeout: float) -> bool:
        # set under the lock, which wait() gives up: whoever gets the lock next finds the thread waiting
        waits.set()
        return wait(timeout)

    monkeypatch.setattr(queue._changed, "wait", announce)
    consumer = threading.Thread(target=lambda: got.append(queue.dequeue()), daemon=True)
    consumer.start()
    assert waits.wait(timeout=30)
    return consumer


def test_a_waiting_consumer_is_woken_by_a_new_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a time-out, dequeue returns as soon as something comes."""
    queue, got = JobQueue(), list[Job | None]()
    consumer = start_consumer(queue, got, monkeypatch)

    job = queue.enqueue("a", "export", {})
    consumer.join(timeout=30)

    assert got == [job]


def test_a_waiting_consumer_is_woken_by_a_manual_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The retried job doesn't wait until something else happens."""
    queue, got = JobQueue(max_attempts=1), list[Job | None]()
    job = queue.enqueue("a", "export", {})
    queue.work(fail)
    consumer = start_consumer(queue, got, monkeypatch)

    queue.retry("a")
    consumer.join(timeout=30)

    assert got == [job]


def test_a_consumer_waits_for_a_retry_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is cut at the moment when the failed job is due."""
    clock, got, pauses = Clock(), list[Job | None](), list[float]()
    queue = JobQueue(clock=clock, backoff=Backoff(first=5, jitter=0))
    job = queue.enqueue("a", "export", {})
    queue.run("a", fail)

    def pass_time(timeout: float) -> bool:
        pauses.append(timeout)
        clock.seconds += timeout
        return False

    monkeypatch.setattr(queue._changed, "wait", pass_time)
    got.append(queue.dequeue())

    assert (got, pauses) == ([job], [5])


def test_many_producers_and_consumers_lose_and_repeat_nothing() -> None:
    """Every job of every producer is completed by exactly one successful attempt."""
    queue = JobQueue(max_attempts=5, backoff=Backoff(first=0.001, ceiling=0.002))
    done: Counter[str] = Counter()
    lock, produced = threading.Lock(), threading.Event()

    def produce(name: str) -> None:
        for number in range(50):
            # the second producer of each pair sends the same ids: idempotent, not twice the work
            queue.enqueue(f"{name}-{number}", "export", {"number": number})

    def worker(job: Job) -> int:
        if job.attempts <= job.payload["number"] % 3:
            raise Transient("flaky")
        with lock:
            done[job.job_id] += 1
        return 1

    def consume() -> None:
        while not produced.is_set() or queue.counts()["complete"] < 100:
            queue.work(worker, timeout=0.01)

    producers = [threading.Thread(target=produce, args=(name,), daemon=True) for name in ("x", "y", "x", "y")]
    consumers = [threading.Thread(target=consume, daemon=True) for _ in range(4)]
    for thread in producers + consumers:
        thread.start()
    for thread in producers:
        thread.join(timeout=60)
    produced.set()
    for thread in consumers:
        thread.join(timeout=60)

    assert set(done.values()) == {1}
    assert queue.counts() == {"queued": 0, "running": 0, "retrying": 0, "complete": 100, "dead": 0}


def test_a_consumer_survives_a_job_that_somebody_else_is_running() -> None:
    """Losing the race for one job doesn't end the consumer, and the next job is done."""
    queue = JobQueue()
    queue.enqueue("a", "export", {})
    queue.enqueue("b", "export", {})

    def rival(job: Job) -> int:
        # the consumer that runs inside this attempt finds "a" in the line, but taken
        queue._schedule.offer("a", 0.0)
        assert queue.work(lambda _: 2) == 2
        return 1

    queue.run("a", rival)

    assert {job_id: job.checkpoint for job_id, job in queue.jobs.items()} == {"a": 1, "b": 2}


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3) | st.none()), max_size=30))
def test_the_schedule_agrees_with_a_plain_sorted_list(moves: list[tuple[str, int | None]]) -> None:
    """Offers, replacements and withdrawals leave what a naive model says, in its order."""
    schedule, model = Schedule(), dict[str, tuple[int, int]]()
    for number, (job_id, due) in enumerate(moves):
        if due is None:
            schedule.withdraw(job_id)
            model.pop(job_id, None)
        else:
            schedule.offer(job_id, due)
            model[job_id] = (due, number)
    expected = sorted(model, key=lambda job_id: model[job_id])

    actual = []
    while schedule.first_due() is not None:
        actual.append(schedule.take())

    assert actual == expected
