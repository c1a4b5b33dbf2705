"""What a status request is answered with, state by state."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autocode.jobs import JobQueue
from autocode.jobs.errors import Permanent, Transient
from autocode.jobs.queue import Job
from autocode.jobs.queue_status import job_status
from autocode.jobs.retry import Backoff


def queue_with_job() -> JobQueue:
    """Return a queue of two attempts, with clocks that stand still, and one job in it."""
    queue = JobQueue(
        max_attempts=2, clock=lambda: 0.0, now=lambda: 1_700_000_000.25, backoff=Backoff(first=4, jitter=0)
    )
    queue.enqueue("a", "export", {"secret": "hunter2"})
    return queue


def fail(job: Job) -> None:
    """Fail in a way that a second try may cure."""
    raise Transient("The disk is slow.", hint="Wait.")


def test_an_unknown_id_is_a_404() -> None:
    """The body says what wasn't found."""
    assert job_status(JobQueue(), "nobody") == ({"error": "job not found"}, 404)


def test_a_queued_job_is_shown_without_its_payload() -> None:
    """The whole body, to the last key."""
    body, http_status = job_status(queue_with_job(), "a")

    assert http_status == 200
    assert body == {
        "job_id": "a",
        "kind": "export",
        "status": "queued",
        "attempts": 0,
        "max_attempts": 2,
        "checkpoint": 0,
        "history": [],
        "times": {"enqueued_at": "2023-11-14T22:13:20.250Z"},
    }


def test_a_running_job_says_so_while_it_runs() -> None:
    """Asked from inside the attempt, the answer is running, attempt 1."""
    queue, seen = queue_with_job(), list[dict[str, Any]]()

    queue.run("a", lambda _: seen.append(job_status(queue, "a")[0]))

    assert (seen[0]["status"], seen[0]["attempts"], "result" in seen[0]) == ("running", 1, False)


def test_a_retrying_job_tells_its_error_and_its_pause() -> None:
    """A person sees why it waits, for how long, and what may be done."""
    queue = queue_with_job()
    queue.run("a", fail)

    body, http_status = job_status(queue, "a")

    assert (http_status, body["status"], body["retry_in"], "reason" in body) == (200, "retrying", 4, False)
    assert body["error"] == {
        "type": "transient",
        "title": "A temporary failure",
        "detail": "The disk is slow.",
        "hint": "Wait.",
        "retryable": True,
        "attempt": 1,
    }


def test_a_complete_job_has_a_result_and_no_error() -> None:
    """What went wrong before and was mended isn't held against it."""
    queue = queue_with_job()
    queue.run("a", fail)
    queue.run("a", lambda _: "sha256:ab")

    body, http_status = job_status(queue, "a")

    assert (http_status, body["status"], body["result"], body["history"]) == (
        200,
        "complete",
        "sha256:ab",
        ["sha256:ab"],
    )
    assert (set(body["times"]), "error" in body) == (
        {"enqueued_at", "started_at", "checkpoint_at", "completed_at"},
        False,
    )


@pytest.mark.parametrize(
    ("error", "attempts", "reason"), [(Transient("no"), 2, "exhausted"), (Permanent("no"), 1, "permanent")]
)
def test_a_dead_job_gives_reason_and_last_error(error: Exception, attempts: int, reason: str) -> None:
    """A dead job answers 200: the request about it succeeded."""
    queue = queue_with_job()

    def worker(job: Job) -> None:
        raise error

    for _ in range(attempts):
        queue.run("a", worker)
    body, http_status = job_status(queue, "a")

    assert (http_status, body["status"], body["reason"], body["attempts"]) == (200, "dead", reason, attempts)
    assert (body["error"]["detail"], body["error"]["attempt"]) == ("no", attempts)


def test_every_body_is_plain_json() -> None:
    """A web framework can send it as it is."""
    queue = queue_with_job()
    bodies = [job_status(queue, "a")[0]]
    queue.run("a", fail)
    bodies.append(job_status(queue, "a")[0])
    queue.run("a", fail)
    bodies.append(job_status(queue, "a")[0])

    assert [json.loads(json.dumps(body)) for body in bodies] == bodies


def test_a_body_does_not_change_after_it_was_returned() -> None:
    """An answer that is being sent isn't touched by the worker."""
    queue = queue_with_job()
    body, _ = job_status(queue, "a")

    queue.run("a", lambda _: 1)

    assert (body["history"], "completed_at" in body["times"]) == ([], False)
