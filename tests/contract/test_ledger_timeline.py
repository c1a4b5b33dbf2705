"""The timeline of a job: every fact, in time order, typed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from autocode.jobs.errors import JobNotDead, JobNotFound
from autocode.jobs.ledger import attempts, jobs, queries, results, retries, timeline
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.timeline import Asked, Begun, CancelSeen, Due, Ended, StepRetry, StepsDone
from autocode.jobs.projection import Outcome
from ledger_world import begin, commit, contents, look, new_job, problem, produced, started


def names(database: Database) -> list[str]:
    """Return the types of the job's entries in order."""
    return [type(entry).__name__ for entry in timeline.explain(database, "job").entries]


def test_a_job_that_only_waits(database: Database) -> None:
    """A job that was accepted has that, and when its first attempt was due."""
    jobs.enqueue(database, new_job(session_id="s-1", origin="api"))

    accepted, due = timeline.explain(database, "job").entries

    assert isinstance(accepted, timeline.Enqueued)
    assert (accepted.origin, accepted.session_id) == ("api", "s-1")
    assert isinstance(due, Due)
    assert (due.attempt, due.flow_run_id) == (1, None)


def test_a_whole_life_in_order(database: Database) -> None:
    """Attempts, checkpoints, pauses, errors, people's requests and the result appear in time order."""
    first = started(database, max_attempts=1)
    commit(database, first, "a")
    commit(database, first, "b", reused=True)
    results.set_progress(database, first, retry_at=database.clock.now())
    look(database)
    attempts.end(database, "job", 1, Outcome.FAILED, error={**problem("No room."), "step": "bundle"})
    look(database)
    retries.request_retry(database, "job", actor="ann", reason="made room", attempts=1)
    with pytest.raises(JobNotDead):
        retries.request_retry(database, "job", actor="bob", reason="me too")
    second = begin(database, n=2)
    commit(database, second, "c")
    results.commit_result(database, second, produced("r"))
    results.mark_verified(database, "job", produced("r").digest)
    look(database)
    before = contents(database)

    told = timeline.explain(database, "job")

    assert contents(database) == before
    assert names(database) == [
        "Enqueued",
        "Due",
        "Begun",
        "StepsDone",
        "StepRetry",
        "Ended",
        "Asked",
        "Due",
        "Asked",
        "Begun",
        "StepsDone",
        "ResultCommitted",
        "Ended",
        "ResultVerified",
    ]
    assert all(a.at <= b.at for a, b in pairwise(told.entries))
    assert told.job == queries.get(database, "job")
    steps = [entry for entry in told.entries if isinstance(entry, StepsDone)]
    assert [(s.attempt, s.new, s.reused, s.first_step, s.last_step) for s in steps] == [
        (1, 1, 1, "read a", "read b"),
        (2, 1, 0, "read c", "read c"),
    ]
    ends = [entry for entry in told.entries if isinstance(entry, Ended)]
    assert [(end.outcome, end.counts, end.flow_run_id) for end in ends] == [
        (Outcome.FAILED, True, "job-run-1"),
        (Outcome.COMPLETED, False, "job-run-2"),
    ]
    assert ends[0].error is not None
    assert (ends[0].error.step, ends[0].error.detail) == ("bundle", "No room.")
    asked = [entry for entry in told.entries if isinstance(entry, Asked)]
    assert [(a.actor, a.reason, a.accepted) for a in asked] == [
        ("ann", "made room", True),
        ("bob", "me too", False),
    ]
    assert [entry.holder for entry in told.entries if isinstance(entry, Begun)] == ["worker", "worker"]


def test_a_handed_back_attempt_ends_before_the_next_is_due(database: Database) -> None:
    """Where the next attempt is due the moment that one ends, the end comes first."""
    started(database)

    attempts.end(database, "job", 1, Outcome.INTERRUPTED)

    assert names(database) == ["Enqueued", "Due", "Begun", "Ended", "Due"]


def test_cancels_with_and_without_an_actor(database: Database) -> None:
    """A cancel is told once, with actor and reason where somebody gave them."""
    jobs.enqueue(database, new_job())
    results.request_cancel(database, "job")
    look(database)
    retries.request_retry(database, "job", actor="ann", reason="after all")
    look(database)
    results.request_cancel(database, "job", actor="bob", reason="no")

    entries = timeline.explain(database, "job").entries

    assert [type(entry) for entry in entries if isinstance(entry, Asked | CancelSeen)] == [
        CancelSeen,
        Asked,
        Asked,
    ]
    assert [entry.action for entry in entries if isinstance(entry, Asked)] == ["retry", "cancel"]


def test_a_pause_that_nobody_was_told_of_yet(database: Database) -> None:
    """The pause that a step waits for now is there at once, and once however often somebody looked."""
    attempt = started(database)
    results.set_progress(database, attempt, done=1, retry_at=database.clock.now())
    look(database)
    results.set_progress(database, attempt, done=1, retry_at=database.clock.now())
    untold = [e for e in timeline.explain(database, "job").entries if isinstance(e, StepRetry)]
    look(database)

    pauses = [e for e in timeline.explain(database, "job").entries if isinstance(e, StepRetry)]

    assert untold == pauses
    assert len(pauses) == 2
    assert all(pause.retry_at < pause.at for pause in pauses)


def test_an_unknown_job(database: Database) -> None:
    """A job that doesn't exist has no timeline."""
    with pytest.raises(JobNotFound):
        timeline.explain(database, "job")
