"""The in-process queue: requests, attempts, checkpoints and ends, as the status contract has them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from autocode.jobs import JobQueue, JobStatus
from autocode.jobs.errors import (
    IllegalTransition,
    JobConflict,
    JobNotFound,
    PayloadInvalid,
    Permanent,
    Transient,
    UsageError,
)
from autocode.jobs.model import DeadReason
from autocode.jobs.queue import Job, Worker


def failing(error: BaseException) -> Worker:
    """Return a worker that raises *error*."""

    def worker(job: Job) -> None:
        raise error

    return worker


def never(job: Job) -> None:
    """Fail the test if it is called."""
    pytest.fail(f"the worker ran for {job.job_id}")


def after(failures: int, result: Any, error: type[Exception] = Transient) -> Worker:
    """Return a worker that fails in its first *failures* attempts."""

    def worker(job: Job) -> Any:
        if job.attempts <= failures:
            raise error(f"attempt {job.attempts} failed")
        return result

    return worker


def test_a_new_job_waits_at_its_start() -> None:
    """An accepted job is queued, with checkpoint 0, no attempt and no past."""
    job = JobQueue().enqueue("a", "reindex", {"document": 1})

    assert (job.job_id, job.kind, job.payload) == ("a", "reindex", {"document": 1})
    assert (job.status, job.checkpoint, job.attempts, job.history, job.error) == ("queued", 0, 0, [], None)


def test_the_same_request_again_is_the_same_job() -> None:
    """Enqueueing twice leaves one job, wherever it has got to meanwhile."""
    queue = JobQueue()
    first = queue.enqueue("a", "export", {"x": 1, "y": [2]})
    queue.run("a", lambda _: 7)

    second = queue.enqueue("a", "export", {"y": (2,), "x": 1})

    assert second is first
    assert (second.status, second.checkpoint, list(queue.jobs)) == ("complete", 7, ["a"])
    assert queue.dequeue(timeout=0) is None


@pytest.mark.parametrize(
    ("kind", "payload", "differs", "pointers"),
    [
        ("reindex", {"x": 1}, ["kind"], ["/kind"]),
        ("export", {"x": 2}, ["payload"], ["/payload/x"]),
        ("export", {"x": 1, "a/b~c": 0}, ["payload"], ["/payload/a~1b~0c"]),
        ("export", {}, ["payload"], ["/payload/x"]),
        ("export", {"x": 1.0}, ["payload"], ["/payload/x"]),
        ("export", {"x": True}, ["payload"], ["/payload/x"]),
        ("export", [1], ["payload"], ["/payload"]),
        ("reindex", {"x": None}, ["kind", "payload"], ["/kind", "/payload/x"]),
    ],
)
def test_another_request_under_the_same_id_is_refused_and_changes_nothing(
    kind: str, payload: Any, differs: list[str], pointers: list[str]
) -> None:
    """The error names the fields that differ, never their values, and the first job is as it was."""
    queue = JobQueue()
    queue.enqueue("a", "export", {"x": 1})
    before = queue.snapshot("a")

    with pytest.raises(JobConflict) as caught:
        queue.enqueue("a", kind, payload)

    assert (caught.value.data["differs"], caught.value.data["pointers"]) == (differs, pointers)
    assert all(pointer in caught.value.detail for pointer in pointers)
    assert (queue.snapshot("a"), list(queue.jobs)) == (before, ["a"])


def test_the_payload_is_the_queue_s_own_copy() -> None:
    """A caller that goes on using its dict doesn't change the job."""
    queue, payload = JobQueue(), {"members": ["one"]}
    job = queue.enqueue("a", "export", payload)

    payload["members"].append("two")

    assert job.payload == {"members": ["one"]}


@pytest.mark.parametrize("payload", [{"x": object()}, {"x": float("nan")}, {1: "x"}, b"bytes"])
def test_a_payload_that_is_no_json_is_refused(payload: Any) -> None:
    """What couldn't be stored isn't accepted."""
    queue = JobQueue()

    with pytest.raises(PayloadInvalid):
        queue.enqueue("a", "export", payload)

    assert queue.jobs == {}


@pytest.mark.parametrize("job_id", ["", ".a", "a b", "a\n", "ä", "x" * 129, "a/b"])
def test_an_id_that_could_not_stand_in_a_url_is_refused(job_id: str) -> None:
    """Ids follow the contract's pattern."""
    with pytest.raises(UsageError, match="isn't a job id"):
        JobQueue().enqueue(job_id, "export", {})


def test_a_budget_below_one_attempt_is_refused() -> None:
    """A queue whose jobs could never run can't be made."""
    with pytest.raises(UsageError, match="max_attempts"):
        JobQueue(max_attempts=0)


def test_a_successful_attempt_records_what_the_worker_returned() -> None:
    """The job is complete, and checkpoint and history hold the result."""
    queue = JobQueue()
    queue.enqueue("a", "reindex", {})

    job = queue.run("a", lambda current: current.checkpoint + 4)

    assert (job.status, job.checkpoint, job.history, job.attempts) == (JobStatus.COMPLETE, 4, [4], 1)


def test_the_worker_sees_a_running_job() -> None:
    """During the attempt the status is running and the attempt is counted."""
    queue, seen = JobQueue(), list[object]()
    queue.enqueue("a", "reindex", {})

    queue.run("a", lambda job: seen.extend((str(job.status), job.attempts)))

    assert seen == ["running", 1]


def test_an_error_keeps_the_checkpoint_and_makes_the_next_attempt_due() -> None:
    """A failed attempt leaves the job retrying, where it was, with the error to read."""
    queue = JobQueue(max_attempts=2)
    queue.enqueue("a", "export", {})
    queue.jobs["a"].checkpoint = 2

    job = queue.run("a", failing(RuntimeError("worker stopped")))

    assert (job.status, job.checkpoint, job.history) == (JobStatus.RETRY, 2, [])
    assert (job.error, job.problem and job.problem["attempt"]) == ("RuntimeError: worker stopped", 1)


def test_a_job_recovers_from_transient_failures_within_its_budget() -> None:
    """Two failures and a success make a complete job of three attempts, and the error is mended."""
    queue, pauses = JobQueue(max_attempts=3, clock=lambda: 0.0, draw=lambda: 0.0), list[float]()
    queue.enqueue("a", "summarize", {"text": "report"})
    queue._sleep = pauses.append

    job = queue.run_until_done("a", after(2, "summary"))

    assert (job.status, job.attempts, job.checkpoint, job.error) == (JobStatus.COMPLETE, 3, "summary", None)
    assert pauses == [0.2, 0.4]


def test_a_spent_budget_ends_in_the_dead_letters() -> None:
    """After the last attempt the job is dead, exhausted, and listed with its last error."""
    queue = JobQueue(max_attempts=3, sleep=lambda _: None)
    queue.enqueue("a", "summarize", {})

    job = queue.run_until_done("a", after(9, None))

    assert (job.status, job.reason, job.attempts) == (JobStatus.DEAD, DeadReason.EXHAUSTED, 3)
    assert [(letter.job_id, letter.error) for letter in queue.dead_letters] == [("a", "attempt 3 failed")]


def test_a_permanent_error_is_not_tried_again() -> None:
    """The first attempt is the last, however large the budget."""
    queue = JobQueue(max_attempts=9)
    queue.enqueue("a", "export", {})

    job = queue.run("a", failing(Permanent("The selection is empty.", hint="Select something.")))

    assert (job.status, job.reason, job.attempts) == (JobStatus.DEAD, DeadReason.PERMANENT, 1)
    assert job.problem is not None
    assert (job.problem["hint"], job.problem["retryable"]) == ("Select something.", False)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_ends_the_attempt_and_comes_out(interrupt: BaseException) -> None:
    """Ctrl-C isn't swallowed, and the job waits for its next attempt instead of hanging in running."""
    queue = JobQueue()
    queue.enqueue("a", "export", {})

    with pytest.raises(type(interrupt)):
        queue.run("a", failing(interrupt))

    assert (queue.jobs["a"].status, queue.jobs["a"].attempts) == (JobStatus.RETRY, 1)


@pytest.mark.parametrize("last", [lambda _: 1, failing(Permanent("no"))], ids=["complete", "dead"])
def test_a_terminal_job_is_not_run_again(last: Worker) -> None:
    """A delivery that comes twice calls no worker and changes nothing."""
    queue = JobQueue()
    queue.enqueue("a", "export", {})
    queue.run("a", last)
    before = queue.snapshot("a")

    job = queue.run("a", never)

    assert (job is queue.jobs["a"], queue.snapshot("a")) == (True, before)


def test_a_running_job_is_not_run_a_second_time() -> None:
    """The second taker is told, and the first goes on undisturbed."""
    queue, refusals = JobQueue(), list[IllegalTransition]()
    queue.enqueue("a", "export", {})

    def worker(job: Job) -> int:
        with pytest.raises(IllegalTransition) as caught:
            queue.run("a", never)
        refusals.append(caught.value)
        return 1

    job = queue.run("a", worker)

    assert (job.status, job.attempts, refusals[0].data["status"]) == (JobStatus.COMPLETE, 1, "running")


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.run("nobody", never),
        lambda queue: queue.run_until_done("nobody", never),
        lambda queue: queue.retry("nobody"),
        lambda queue: queue.cancel("nobody"),
        lambda queue: queue.save_checkpoint("nobody", 1),
    ],
)
def test_an_unknown_id_is_named(call: Callable[[JobQueue], object]) -> None:
    """Every call that needs a job says which one is missing."""
    with pytest.raises(JobNotFound, match="'nobody'"):
        call(JobQueue())


def test_a_checkpoint_saved_on_the_way_outlives_the_attempt() -> None:
    """The next attempt starts from the last save, and the history tells of each once."""
    queue, starts = JobQueue(), list[int]()
    queue.enqueue("a", "reindex", {})

    def worker(job: Job) -> int:
        starts.append(job.checkpoint)
        for step in range(job.checkpoint, 4):
            if (step, job.attempts) == (2, 1):
                raise Transient("stopped")
            queue.save_checkpoint("a", step + 1)
        return int(job.checkpoint)

    queue.run("a", worker)
    job = queue.run("a", worker)

    assert (starts, job.checkpoint, job.history, job.status) == ([0, 2], 4, [1, 2, 3, 4], "complete")


def test_a_worker_that_returns_nothing_keeps_its_last_checkpoint() -> None:
    """``None`` means that everything was saved already."""
    queue = JobQueue()
    queue.enqueue("a", "reindex", {})

    job = queue.run("a", lambda _: queue.save_checkpoint("a", 3))

    assert (job.status, job.checkpoint, job.history) == (JobStatus.COMPLETE, 3, [3])


def test_no_checkpoint_is_saved_without_an_attempt() -> None:
    """A latecomer can't move a job that isn't running."""
    queue = JobQueue()
    queue.enqueue("a", "reindex", {})

    with pytest.raises(IllegalTransition, match="is queued"):
        queue.save_checkpoint("a", 1)

    assert queue.jobs["a"].checkpoint == 0


def test_a_manual_retry_gives_one_more_attempt_from_the_checkpoint() -> None:
    """The dead job is due again, its budget grew by one, and its checkpoint is kept."""
    queue = JobQueue(max_attempts=1)
    queue.enqueue("a", "export", {})
    queue.jobs["a"].checkpoint = 5
    queue.run("a", failing(Transient("down")))

    job = queue.retry("a")

    assert (job.status, job.max_attempts, job.checkpoint, job.reason) == (JobStatus.RETRY, 2, 5, None)
    assert (job.error, queue.dead_letters, queue.dequeue(timeout=0)) == ("down", [], job)
    assert queue.run("a", lambda current: current.checkpoint + 1).checkpoint == 6


def test_a_retried_job_that_fails_again_is_dead_again() -> None:
    """One more attempt is one, not a new budget."""
    queue = JobQueue(max_attempts=2, sleep=lambda _: None)
    queue.enqueue("a", "export", {})
    queue.run_until_done("a", failing(Transient("down")))
    queue.retry("a")

    job = queue.run("a", failing(Transient("still down")))

    assert (job.status, job.attempts, job.max_attempts, job.error) == (JobStatus.DEAD, 3, 3, "still down")


@pytest.mark.parametrize("ran", [False, True])
def test_only_a_dead_job_is_retried_by_hand(ran: bool) -> None:
    """A queued or complete job keeps its state and its budget."""
    queue = JobQueue()
    queue.enqueue("a", "export", {})
    if ran:
        queue.run("a", lambda _: 1)

    with pytest.raises(IllegalTransition, match="only a dead job"):
        queue.retry("a")

    assert queue.jobs["a"].max_attempts == 3


def test_a_waiting_job_is_called_off_at_once_and_is_no_dead_letter() -> None:
    """Cancelled is dead, isn't listed, isn't handed out, and saying it twice changes nothing."""
    queue = JobQueue()
    queue.enqueue("a", "export", {})

    job = queue.cancel("a")

    assert queue.cancel("a") is job
    assert (job.status, job.reason, queue.dead_letters) == (JobStatus.DEAD, DeadReason.CANCELLED, [])
    assert queue.dequeue(timeout=0) is None


@pytest.mark.parametrize("error", [None, Transient("no"), Permanent("no")])
def test_a_running_job_is_called_off_when_its_attempt_ends(error: Exception | None) -> None:
    """Whatever the attempt comes to, it doesn't count any more."""
    queue, during = JobQueue(), list[str]()
    queue.enqueue("a", "export", {})

    def worker(job: Job) -> int:
        during.append(queue.cancel("a").status.value)
        if error is not None:
            raise error
        return 9

    job = queue.run("a", worker)

    assert (during, job.status, job.reason) == (["running"], JobStatus.DEAD, DeadReason.CANCELLED)
    assert (job.checkpoint, queue.dequeue(timeout=0)) == (0, None)


def test_a_job_called_off_before_its_first_attempt_returns_to_the_queue() -> None:
    """After the manual retry it is queued, since no attempt has begun, and it can complete."""
    queue = JobQueue()
    queue.enqueue("a", "export", {})
    queue.cancel("a")

    status = queue.retry("a").status

    assert (status, queue.run("a", lambda _: 1).status) == (JobStatus.QUEUED, JobStatus.COMPLETE)


@pytest.mark.parametrize("last", [lambda _: 1, failing(Permanent("no"))], ids=["complete", "dead"])
def test_what_has_ended_cannot_be_called_off(last: Worker) -> None:
    """A committed result and a dead letter stay what they are."""
    queue = JobQueue()
    queue.enqueue("a", "export", {})
    queue.run("a", last)
    before = queue.snapshot("a")

    with pytest.raises(IllegalTransition):
        queue.cancel("a")

    assert queue.snapshot("a") == before


def test_counts_show_all_five_states() -> None:
    """The view's numbers include states that no job is in."""
    queue = JobQueue(max_attempts=1)
    for job_id in ("a", "b", "c"):
        queue.enqueue(job_id, "export", {})
    queue.run("a", lambda _: 1)
    queue.run("b", failing(Transient("x")))

    assert queue.counts() == {"queued": 1, "running": 0, "retrying": 0, "complete": 1, "dead": 1}


def test_a_snapshot_does_not_follow_the_job() -> None:
    """What was read stays as it was read."""
    queue = JobQueue()
    queue.enqueue("a", "export", {})
    before = queue.snapshot("a")
    queue.run("a", lambda _: 1)

    assert before is not None
    assert (before.status, before.history, "completed_at" in before.times) == (JobStatus.QUEUED, [], False)
    assert queue.snapshot("nobody") is None


def test_importing_the_package_brings_nothing_heavy() -> None:
    """A lesson that needs the queue alone doesn't wait for Prefect, a database library or pandas."""
    script = (
        "import sys; sys.path[:0] = eval(sys.argv[1]); import autocode.jobs, json\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )

    output = subprocess.run(
        [sys.executable, "-c", script, repr(sys.path)], capture_output=True, text=True, check=True
    ).stdout

    heavy = {"prefect", "sqlalchemy", "pandas", "numpy", "pydantic", "httpx", "asyncio"}
    assert heavy & set(json.loads(output)) == set()


def test_the_package_s_front_door_is_sorted() -> None:
    """``__all__`` names what the lessons import, in order."""
    import autocode.jobs

    assert autocode.jobs.__all__ == sorted(autocode.jobs.__all__)
    assert {"JobQueue", "JobStatus"} <= set(autocode.jobs.__all__)
