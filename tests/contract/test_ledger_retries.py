"""The manual retry: one wins, the others are told, and what follows is judged by itself."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from autocode.jobs.errors import AttemptEnded, JobNotDead, JobNotFound, JobsError, RevisionMoved, UsageError
from autocode.jobs.ledger import (
    attempts,
    audit,
    checkpoints,
    effects,
    jobs,
    queries,
    results,
    retries,
    schema,
)
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import TRANSITIONS, DeadReason, JobStatus
from autocode.jobs.projection import Lease, Outcome
from ledger_world import (
    begin,
    commit,
    contents,
    facts_of,
    in_threads,
    look,
    memo_key,
    new_job,
    problem,
    produced,
    rows,
    started,
    told,
)


def dead(database: Database, outcome: Outcome = Outcome.PERMANENT, **changes: Any) -> None:
    """Bring a job to its death in its first attempt, and tell."""
    started(database, **{"max_attempts": 1, **changes})
    attempts.end(database, "job", 1, outcome, error=problem())
    look(database)


def retry(database: Database, **changes: Any) -> None:
    """Ask for a retry as Ann."""
    asked: dict[str, Any] = {"actor": "ann", "reason": "the disk was full", "attempts": 2}
    retries.request_retry(database, "job", **{**asked, **changes})


def outcomes(database: Database) -> list[str]:
    """Return the outcomes of all audit entries."""
    return [row.outcome for row in audit.entries(database)]


def test_a_dead_job_gets_further_attempts(database: Database) -> None:
    """A retry plans the next attempt, due at once, raises the budget and is told as an event of its own."""
    dead(database)

    retry(database)
    look(database)

    job = queries.get(database, "job")
    assert (job.status, job.reason, job.attempts, job.max_attempts) == (JobStatus.RETRY, None, 1, 3)
    assert job.next_attempt_at is not None
    assert job.error is not None
    assert facts_of(database)[-1] == "retry-requested"
    event = told(database)[-1]
    assert event["type"] == "job.retry_requested"
    assert event["detail"] == {
        "actor": "ann",
        "reason": "the disk was full",
        "start": "checkpoint",
        "attempt": 2,
    }
    assert (event["data"]["status"], event["data"]["max_attempts"]) == ("retrying", 3)


def test_a_retry_is_in_the_audit(database: Database) -> None:
    """An accepted retry is one entry with who, why, what and the outcome."""
    dead(database)

    retry(database, start="start", expected_rev=queries.get(database, "job").rev)

    [entry] = audit.entries(database, target="job")
    assert (entry.actor, entry.action, entry.reason, entry.outcome) == (
        "ann",
        "retry",
        "the disk was full",
        "accepted",
    )
    assert entry.data["start"] == "start"
    assert entry.data["after"] == {"attempt": 2, "max_attempts": 3}
    assert entry.data["before"]["status"] == "dead"
    assert audit.broken_link(database) is None


def test_what_is_shown_before_the_next_look_belongs_to_its_revision(database: Database) -> None:
    """Until somebody tells of the retry the resource is what it was, budget included."""
    dead(database)
    before = queries.get(database, "job")

    retry(database)

    assert queries.get(database, "job") == before


def test_a_retried_job_can_complete(database: Database) -> None:
    """The attempt after a retry commits the result, and the job completes."""
    dead(database)
    retry(database)

    results.commit_result(database, begin(database, n=2), produced("r"))
    results.mark_verified(database, "job", produced("r").digest)
    look(database)

    assert queries.get(database, "job").status is JobStatus.COMPLETE
    seen = [JobStatus(event["data"]["status"]) for event in told(database)]
    assert all(a is b or b in TRANSITIONS[a] for a, b in pairwise(seen))


def test_a_retried_job_dies_again(database: Database) -> None:
    """After as many further failures as were asked for the job is dead again, and can be retried again."""
    dead(database)
    retry(database, attempts=2)
    for n in (2, 3):
        begin(database, n=n)
        attempts.end(database, "job", n, Outcome.FAILED, error=problem(attempt=n))
    look(database)
    again = queries.get(database, "job")

    retry(database, attempts=1)
    look(database)

    job = queries.get(database, "job")
    assert (again.status, again.reason, again.attempts) == (JobStatus.DEAD, DeadReason.EXHAUSTED, 3)
    assert (job.status, job.max_attempts) == (JobStatus.RETRY, 4)
    budgets = [event["data"]["max_attempts"] for event in told(database) if event["fact"] == "ended"]
    assert budgets == [1, 3, 3]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (Outcome.FAILED, Outcome.CRASHED, DeadReason.POISON),
        (Outcome.CRASHED, Outcome.FAILED, DeadReason.EXHAUSTED),
    ],
)
def test_only_attempts_since_the_retry_decide_why_it_died(
    database: Database, before: Outcome, after: Outcome, reason: DeadReason
) -> None:
    """Poison or exhausted is judged over the attempts that the last retry allowed."""
    dead(database, before)
    retry(database, attempts=1)
    begin(database, n=2)
    attempts.end(database, "job", 2, after)

    look(database)

    assert queries.get(database, "job").reason is reason


def test_pauses_begin_anew(database: Database) -> None:
    """The first failure after a retry is followed by the first pause, however many came before it."""
    started(database, max_attempts=4)
    for n in range(1, 5):
        attempts.end(database, "job", n, Outcome.FAILED)
    look(database)
    retry(database)
    begin(database, n=5)

    attempts.end(database, "job", 5, Outcome.FAILED)

    ended, planned = rows(database, schema.attempts)[-2:]
    assert 0.4 < (planned.due_at - ended.ended_at).total_seconds() <= 1.0


def test_a_job_called_off_before_it_began_is_queued_again(database: Database) -> None:
    """A cancelled job may be retried: nothing has begun, so it is queued, with an attempt of its own."""
    jobs.enqueue(database, new_job())
    attempts.set_run(database, "job", 1, "old-run")
    results.request_cancel(database, "job")
    look(database)

    retry(database)
    look(database)

    job = queries.get(database, "job")
    assert (job.status, job.reason, job.max_attempts) == (JobStatus.QUEUED, None, 3)
    assert [(row.n, row.outcome, row.flow_run_id) for row in rows(database, schema.attempts)] == [
        (1, "cancelled", "old-run"),
        (2, None, None),
    ]
    assert [n for _, n, _ in attempts.wants_run(database)] == [2]
    with pytest.raises(AttemptEnded):
        attempts.begin(database, "job", 1, flow_run_id="old-run", holder="worker")
    assert begin(database, n=2).n == 2


def test_a_job_called_off_while_it_ran_is_retried(database: Database) -> None:
    """After a cancel that its attempt answered a job goes on with the next, and may be called off again."""
    started(database)
    results.request_cancel(database, "job")
    attempts.end(database, "job", 1, Outcome.CANCELLED)
    look(database)
    retry(database)
    look(database)
    retried = queries.get(database, "job").status

    results.request_cancel(database, "job")
    look(database)

    job = queries.get(database, "job")
    assert retried is JobStatus.RETRY
    assert (job.status, job.reason) == (JobStatus.DEAD, DeadReason.CANCELLED)
    types = [event["type"] for event in told(database)]
    assert types[-2:] == ["job.retry_requested", "job.cancel_requested"]


@pytest.mark.parametrize("status", ["queued", "running", "retrying", "complete"])
def test_only_dead_jobs_are_retried(database: Database, status: str) -> None:
    """A job that isn't dead is left as it is; the refusal is in the audit."""
    jobs.enqueue(database, new_job())
    if status in {"running", "retrying"}:
        begin(database)
    if status == "retrying":
        attempts.end(database, "job", 1, Outcome.FAILED)
    if status == "complete":
        attempt = begin(database)
        results.commit_result(database, attempt, produced("r"))
        results.mark_verified(database, "job", produced("r").digest)
    look(database)
    before = contents(database)

    with pytest.raises(JobNotDead) as refused:
        retry(database)

    after = contents(database)
    changed = {name for name, content in after.items() if content != before[name]}
    assert refused.value.data["status"] == status
    assert changed == {"audit", "counters"}
    assert outcomes(database) == ["refused: job-not-dead"]


def test_a_death_that_nobody_was_told_of_is_too_early(database: Database) -> None:
    """Before the death of a job is told it can't be retried: nobody has seen it dead."""
    started(database, max_attempts=1)
    attempts.end(database, "job", 1, Outcome.FAILED)

    with pytest.raises(JobNotDead):
        retry(database)


def test_an_older_revision_is_refused(database: Database) -> None:
    """Who saw another revision is told, and the refusal is in the audit."""
    dead(database)
    rev = queries.get(database, "job").rev

    with pytest.raises(RevisionMoved) as refused:
        retry(database, expected_rev=rev - 1)

    assert refused.value.data["rev"] == rev
    assert outcomes(database) == ["refused: revision-moved"]
    assert facts_of(database)[-1] == "ended"


@pytest.mark.parametrize("looked", [True, False])
def test_who_comes_second_is_told(database: Database, looked: bool) -> None:
    """The second of two people with the same revision is refused, whether or not somebody looked between."""
    dead(database)
    rev = queries.get(database, "job").rev
    retry(database, expected_rev=rev)
    if looked:
        look(database)

    with pytest.raises(RevisionMoved):
        retry(database, expected_rev=rev)
    with pytest.raises(JobNotDead):
        retry(database)

    assert outcomes(database) == ["accepted", "refused: revision-moved", "refused: job-not-dead"]


def test_of_two_people_at_once_one_wins(database: Database) -> None:
    """Of simultaneous retries exactly one is heard, the others are told, and each is in the audit."""
    dead(database)
    rev = queries.get(database, "job").rev

    answers = in_threads(6, lambda number: retry(database, actor=f"person-{number}", expected_rev=rev))

    assert answers.count(None) == 1
    assert sum(isinstance(answer, RevisionMoved) for answer in answers) == 5
    assert sorted(outcomes(database)) == ["accepted"] + ["refused: revision-moved"] * 5
    assert [row.n for row in rows(database, schema.attempts)] == [1, 2]
    assert audit.broken_link(database) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": ""},
        {"reason": " \n"},
        {"reason": "x" * 2001},
        {"reason": "a\x00b"},
        {"reason": "a\ud800b"},
        {"actor": ""},
        {"start": "middle"},
        {"attempts": 0},
        {"attempts": 101},
    ],
)
def test_a_senseless_request_changes_nothing(database: Database, changes: dict[str, Any]) -> None:
    """A retry without a reason, or with numbers that make no sense, writes nothing at all."""
    dead(database)
    before = contents(database)

    with pytest.raises(UsageError):
        retry(database, **changes)

    assert contents(database) == before


def test_an_unknown_job(database: Database) -> None:
    """A job that doesn't exist can be neither retried nor previewed."""
    for ask in (retry, lambda db: retries.preview(db, "job")):
        with pytest.raises(JobNotFound):
            ask(database)
    assert outcomes(database) == []


def test_a_retry_from_the_start_remembers_the_fence(database: Database) -> None:
    """From the start, nothing made up to now counts, in no later attempt of the job."""
    dead(database)
    started(database, "other")
    retry(database, start="start")
    afresh = begin(database, n=2)
    attempts.end(database, "job", 2, Outcome.PERMANENT)
    look(database)

    retry(database, start="checkpoint")

    assert (afresh.fresh_fence, afresh.fence) == (2, 3)
    assert begin(database, n=3).fresh_fence == 2


def test_a_lost_attempt_before_the_retry_may_still_run(database: Database) -> None:
    """An attempt that was ended over its process's head may be alive beside the retry's."""
    started(database)
    results.request_cancel(database, "job")
    attempts.end(database, "job", 1, Outcome.CANCELLED, error=problem("It didn't stop."))
    look(database)
    retry(database)
    begin(database, n=2)

    look(database)

    assert queries.get(database, "job").possible_double_run


def test_the_preview_says_what_a_retry_would_do(database: Database) -> None:
    """Checkpoints that are remembered, steps that are left, effects by what is known of them, the budget."""
    attempt = started(database, max_attempts=1)
    for text in ("a", "b"):
        commit(database, attempt, text)
    for key in ("mail", "call"):
        effects.intend(database, attempt, key)
    effects.finish_effect(database, attempt, "mail", {"id": 1})
    attempts.end(database, "job", 1, Outcome.FAILED, error={**problem(), "step": "bundle"})
    look(database)
    checkpoints.forget(database, memo_key(inputs="b"))
    before = contents(database)

    preview = retries.preview(database, "job", attempts=5)

    assert contents(database) == before
    assert [(entry.seq, entry.step) for entry in preview.reused] == [(1, "read a")]
    assert preview.steps == ("read b", "bundle")
    assert (preview.effects_done, preview.effects_open) == (("mail",), ("call",))
    assert (preview.dead, preview.rev) == (True, queries.get(database, "job").rev)
    assert preview.max_attempts_after == 6
    retry(database, attempts=5)
    look(database)
    assert queries.get(database, "job").max_attempts == 6


def test_the_preview_of_a_job_afresh(database: Database) -> None:
    """After a retry from the start only what that run made counts as reusable."""
    attempt = started(database, max_attempts=1)
    for text in ("a", "b"):
        commit(database, attempt, text)
    attempts.end(database, "job", 1, Outcome.FAILED)
    look(database)
    retry(database, start="start", attempts=1)
    fresh = begin(database, n=2)
    commit(database, fresh, "a")
    attempts.end(database, "job", 2, Outcome.LOST)
    look(database, lease=Lease.ALIVE)

    preview = retries.preview(database, "job")

    assert [(entry.seq, entry.step) for entry in preview.reused] == [(3, "read a")]
    assert preview.steps == ("read b",)


def test_the_preview_of_a_job_that_is_alive(database: Database) -> None:
    """The preview of a job that isn't dead, or was retried already, says that a retry would be refused."""
    dead(database)
    retry(database)
    untold = retries.preview(database, "job").dead
    look(database)

    preview = retries.preview(database, "job")

    assert (untold, preview.dead) == (False, False)
    with pytest.raises(JobsError):
        retry(database)
