"""Result, cancel and progress: one fenced update, and what excludes it."""

from __future__ import annotations

import pytest

from autocode.jobs.errors import AttemptEnded, JobCancelled, JobFinished, JobNotFound, UsageError
from autocode.jobs.ledger import attempts, audit, effects, jobs, queries, results, schema
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.projection import Outcome
from ledger_world import (
    begin,
    commit,
    contents,
    facts_of,
    in_threads,
    look,
    new_job,
    problem,
    produced,
    rows,
    started,
    told,
)

ROUNDS = 25


def test_a_result_ends_the_attempt(database: Database) -> None:
    """The commit of a result ends its attempt as completed and plans no other."""
    attempt = started(database)

    results.commit_result(database, attempt, produced("r"))

    assert [(row.outcome, row.counts) for row in rows(database, schema.attempts)] == [("completed", False)]
    assert facts_of(database) == ["enqueued", "begun", "ended"]


def test_complete_only_when_verified(database: Database) -> None:
    """A committed result shows as running until somebody found it in the store."""
    attempt = started(database)
    results.commit_result(database, attempt, produced("r"))
    look(database)
    before = queries.get(database, "job")

    marked = results.mark_verified(database, "job", produced("r").digest)
    look(database)

    after = queries.get(database, "job")
    assert marked
    assert (before.status, before.note, before.result) == (JobStatus.RUNNING, "verifying the result", None)
    assert after.status is JobStatus.COMPLETE
    assert after.result is not None
    assert (after.result.digest, after.result.size, after.result.media_type) == (
        produced("r").digest,
        1,
        "text/plain",
    )
    assert after.times.completed_at is not None


def test_verifying_is_idempotent_and_exact(database: Database) -> None:
    """Only the committed digest verifies a result, and only once."""
    attempt = started(database)
    assert not results.mark_verified(database, "job", produced("r").digest)
    results.commit_result(database, attempt, produced("r"))

    answers = [results.mark_verified(database, "job", produced(text).digest) for text in ("other", "r", "r")]

    assert answers == [False, True, False]


def test_a_result_committed_twice_by_its_attempt_is_one(database: Database) -> None:
    """A process that never heard the answer to its commit may commit the same result again."""
    attempt = started(database)
    results.commit_result(database, attempt, produced("r"))
    before = contents(database)

    results.commit_result(database, attempt, produced("r"))

    assert contents(database) == before
    with pytest.raises(AttemptEnded):
        results.commit_result(database, attempt, produced("another"))


def test_cancel_excludes_the_result(database: Database) -> None:
    """Once a job is called off no result can be committed."""
    attempt = started(database)
    assert results.request_cancel(database, "job")
    before = contents(database)

    with pytest.raises(AttemptEnded):
        results.commit_result(database, attempt, produced("r"))

    assert contents(database) == before


def test_the_result_excludes_cancel(database: Database) -> None:
    """Once a result is committed the job can't be called off any more."""
    attempt = started(database)
    results.commit_result(database, attempt, produced("r"))
    before = contents(database)

    assert not results.request_cancel(database, "job")
    assert contents(database) == before


def test_cancel_is_idempotent(database: Database) -> None:
    """Calling off twice answers the same and records once."""
    jobs.enqueue(database, new_job())

    answers = [results.request_cancel(database, "job") for _ in range(2)]

    assert answers == [True, True]
    assert facts_of(database) == ["enqueued", "cancel-requested"]


@pytest.mark.parametrize("outcome", [Outcome.PERMANENT, Outcome.FAILED])
def test_a_dead_job_is_not_called_off(database: Database, outcome: Outcome) -> None:
    """A dead letter stays a dead letter: calling it off afterwards is too late and changes no reason."""
    started(database, max_attempts=1)
    attempts.end(database, "job", 1, outcome)
    look(database)
    before = contents(database)

    assert not results.request_cancel(database, "job")
    look(database)
    assert contents(database) == before


def test_cancel_of_an_unknown_job(database: Database) -> None:
    """A job that doesn't exist can't be called off."""
    with pytest.raises(JobNotFound):
        results.request_cancel(database, "nobody")


def test_a_waiting_job_dies_at_once(database: Database) -> None:
    """A job that is called off before any attempt began is dead at the next look."""
    jobs.enqueue(database, new_job())
    results.request_cancel(database, "job")
    look(database)

    job = queries.get(database, "job")

    assert (job.status, job.reason, job.attempts) == (JobStatus.DEAD, DeadReason.CANCELLED, 0)


def test_a_running_job_dies_when_its_attempt_ends(database: Database) -> None:
    """A job that is called off while an attempt runs is dead once that attempt is over."""
    started(database)
    results.request_cancel(database, "job")
    look(database)
    while_running = queries.get(database, "job").status
    attempts.end(database, "job", 1, Outcome.CANCELLED)
    look(database)

    job = queries.get(database, "job")

    assert while_running is JobStatus.RUNNING
    assert (job.status, job.reason) == (JobStatus.DEAD, DeadReason.CANCELLED)


def test_cancel_and_result_race(database: Database) -> None:
    """Of a cancel and a result that come together exactly one wins, in every round."""
    winners = []
    for number in range(ROUNDS):
        job_id = f"job-{number}"
        attempt = started(database, job_id)

        def race(which: int, attempt: attempts.Attempt = attempt, job_id: str = job_id) -> object:
            if which == 0:
                return results.request_cancel(database, job_id)
            results.commit_result(database, attempt, produced(job_id))
            return None

        cancelled, committed = in_threads(2, race)
        job = rows(database, schema.jobs, schema.jobs.c.job_id == job_id)[0]
        winners.append(cancelled is True)
        assert (cancelled is True) == isinstance(committed, AttemptEnded)
        assert (job.cancel_requested_at is not None) == (cancelled is True)
        assert (job.result_digest is not None) == (committed is None)

    assert len(winners) == ROUNDS


def test_end_and_result_race(database: Database) -> None:
    """Of a lost lease and a result that come together exactly one wins, in every round."""
    for number in range(ROUNDS):
        job_id = f"job-{number}"
        attempt = started(database, job_id)

        def race(which: int, attempt: attempts.Attempt = attempt, job_id: str = job_id) -> object:
            if which == 0:
                return attempts.end(database, job_id, 1, Outcome.LOST)
            results.commit_result(database, attempt, produced(job_id))
            return None

        lost, committed = in_threads(2, race)

        assert (lost is True) == isinstance(committed, AttemptEnded)
        assert (lost is False) == (committed is None)


def test_a_rejected_result_is_tried_again(database: Database) -> None:
    """A result that isn't in the store is taken back: its attempt failed, and the next is planned."""
    attempt = started(database)
    results.commit_result(database, attempt, produced("r"))
    look(database)

    results.reject_result(database, "job", 1, problem("The object is missing."))
    look(database)

    job = queries.get(database, "job")
    assert (job.status, job.result, job.next_attempt_at is not None) == (JobStatus.RETRY, None, True)
    assert job.error is not None
    assert job.error.detail == "The object is missing."
    assert [(row.n, row.outcome, row.counts) for row in rows(database, schema.attempts)] == [
        (1, "failed", True),
        (2, None, False),
    ]
    assert rows(database, schema.references) == []


def test_after_a_rejected_result_another_can_be_committed(database: Database) -> None:
    """The next attempt commits its own result, and the job completes with that."""
    results.commit_result(database, started(database), produced("bad"))
    results.reject_result(database, "job", 1, problem())

    results.commit_result(database, begin(database, n=2), produced("good"))
    results.mark_verified(database, "job", produced("good").digest)
    look(database)

    job = queries.get(database, "job")
    assert job.status is JobStatus.COMPLETE
    assert job.result is not None
    assert job.result.digest == produced("good").digest
    assert job.error is None


def test_a_rejected_last_result_is_a_dead_letter(database: Database) -> None:
    """Where the budget is spent a rejected result leaves the job dead."""
    results.commit_result(database, started(database, max_attempts=1), produced("r"))
    results.reject_result(database, "job", 1, problem())
    look(database)

    job = queries.get(database, "job")

    assert (job.status, job.reason) == (JobStatus.DEAD, DeadReason.EXHAUSTED)


def test_only_an_unverified_result_is_rejected(database: Database) -> None:
    """What isn't a committed and unverified result of that attempt can't be taken back."""
    attempt = started(database)
    before = contents(database)
    results.reject_result(database, "job", 1, problem())
    nothing_committed = contents(database) == before
    results.commit_result(database, attempt, produced("r"))
    before = contents(database)
    results.reject_result(database, "job", 2, problem())
    another_attempt = contents(database) == before
    results.mark_verified(database, "job", produced("r").digest)
    before = contents(database)

    results.reject_result(database, "job", 1, problem())

    assert (nothing_committed, another_attempt, contents(database) == before) == (True, True, True)


def test_rejecting_twice_is_as_once(database: Database) -> None:
    """A result is taken back once."""
    results.commit_result(database, started(database), produced("r"))
    results.reject_result(database, "job", 1, problem())
    before = contents(database)

    results.reject_result(database, "job", 1, problem())

    assert contents(database) == before


def test_a_rejection_loses_no_other_end(database: Database) -> None:
    """When a result is taken back before anybody looked, the ends of earlier attempts are still told."""
    started(database)
    attempts.end(database, "job", 1, Outcome.CRASHED)
    results.commit_result(database, begin(database, n=2), produced("r"))

    results.reject_result(database, "job", 2, problem(attempt=2))
    look(database)

    assert [event["fact"] for event in told(database)] == ["enqueued", "begun", "ended", "begun", "ended"]
    assert [event["data"]["status"] for event in told(database)] == [
        "queued",
        "running",
        "retrying",
        "running",
        "retrying",
    ]


def test_progress_keeps_what_is_not_given(database: Database) -> None:
    """A progress report changes what it names; the time of a pending retry is dropped unless given again."""
    attempt = started(database)
    retry_at = database.clock.now()
    results.set_progress(database, attempt, done=1, total=10, unit="files", retry_at=retry_at)
    look(database)
    first = queries.get(database, "job").progress
    results.set_progress(database, attempt, done=2)
    look(database)

    second = queries.get(database, "job").progress

    assert first is not None
    assert (first.done, first.total, first.unit, first.retry_at is not None) == (1, 10, "files", True)
    assert second is not None
    assert (second.done, second.total, second.unit, second.retry_at) == (2, 10, "files", None)


def test_a_cancel_by_a_person_is_in_the_audit(database: Database) -> None:
    """A cancel with an actor is one entry, and again another that says so; the event has who and why."""
    jobs.enqueue(database, new_job())

    answers = [
        results.request_cancel(database, "job", actor=actor, reason="a mistake") for actor in ("ann", "bob")
    ]

    assert answers == [True, True]
    assert [
        (row.actor, row.action, row.target, row.reason, row.outcome) for row in audit.entries(database)
    ] == [
        ("ann", "cancel", "job", "a mistake", "accepted"),
        ("bob", "cancel", "job", "a mistake", "accepted: already called off"),
    ]
    look(database)
    [event] = [each for each in told(database) if each["fact"] == "cancel-requested"]
    assert event["detail"] == {"actor": "ann", "reason": "a mistake"}


@pytest.mark.parametrize("ending", ["committed", "complete", "dead"])
def test_it_is_too_late_to_call_off(database: Database, ending: str) -> None:
    """Once the result is committed or the job is over a person is told so, and only the audit changes."""
    attempt = started(database, max_attempts=1)
    if ending == "dead":
        attempts.end(database, "job", 1, Outcome.FAILED)
    else:
        results.commit_result(database, attempt, produced("r"))
    if ending == "complete":
        results.mark_verified(database, "job", produced("r").digest)
    look(database)
    before = contents(database)

    with pytest.raises(JobFinished) as refused:
        results.request_cancel(database, "job", actor="ann", reason="no")

    after = contents(database)
    status = {"committed": "running"}.get(ending, ending)
    assert refused.value.data == {"status": status}
    assert [row.outcome for row in audit.entries(database)] == ["refused: job-finished"]
    assert {name for name in after if after[name] != before[name]} == {"audit", "counters"}


def test_an_actor_that_is_no_text_changes_nothing(database: Database) -> None:
    """Words that can't be kept are refused before anything is called off."""
    jobs.enqueue(database, new_job())

    for words in ({"actor": "a\x00"}, {"actor": "ann", "reason": "\ud800"}):
        with pytest.raises(UsageError):
            results.request_cancel(database, "job", **words)

    assert facts_of(database) == ["enqueued"]


def test_an_attempt_hears_of_the_cancel(database: Database) -> None:
    """A renewal says that the job was called off; it succeeds, and so do the steps that are done already."""
    attempt = started(database)
    before = attempts.renew(database, attempt)
    results.request_cancel(database, "job")

    after = attempts.renew(database, attempt)

    commit(database, attempt, "a")
    assert (before, after) == (False, True)


def test_after_a_cancel_no_effect_begins_and_no_result_is_committed(database: Database) -> None:
    """An attempt whose job was called off is told so where it would change the world or end the job."""
    attempt = started(database)
    effects.intend(database, attempt, "begun before")
    results.request_cancel(database, "job")

    with pytest.raises(JobCancelled):
        effects.intend(database, attempt, "mail")
    with pytest.raises(JobCancelled):
        results.commit_result(database, attempt, produced("r"))
    effects.finish_effect(database, attempt, "begun before", None)

    assert [(row.key, row.done_at is not None) for row in rows(database, schema.effects)] == [
        ("begun before", True)
    ]
