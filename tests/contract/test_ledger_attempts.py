"""Attempts: begun once under a growing fence, renewed however late, ended once, followed by one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from autocode.jobs.errors import AttemptEnded, JobNotFound
from autocode.jobs.ledger import attempts, checkpoints, effects, jobs, queries, results, schema
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import JobStatus
from autocode.jobs.projection import Outcome
from ledger_world import (
    PAUSE,
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
)

COUNTING = [Outcome.FAILED, Outcome.CRASHED, Outcome.LOST, Outcome.TIMED_OUT, Outcome.CANCELLED]
FREE = [Outcome.INTERRUPTED, Outcome.GONE]


def numbers(database: Database) -> list[int]:
    """Return the numbers of the job's attempts."""
    return [row.n for row in rows(database, schema.attempts)]


def test_begin_records_who_and_when(database: Database) -> None:
    """A begun attempt has its run, holder, fence and first renewal, and a job's time limit."""
    jobs.enqueue(database, new_job(time_limit=12.5))

    attempt = begin(database)

    row = rows(database, schema.attempts)[0]
    assert (row.flow_run_id, row.holder, row.fence, row.token) == (
        "job-run-1",
        "worker",
        attempt.fence,
        attempt.token,
    )
    assert (row.renewals, row.begun_at == row.renewed_at, attempt.time_limit) == (1, True, 12.5)
    assert facts_of(database) == ["enqueued", "begun"]


def test_a_second_begin_is_refused(database: Database) -> None:
    """An attempt begins once, even for the run that began it."""
    started(database)
    before = contents(database)

    with pytest.raises(AttemptEnded):
        begin(database)

    assert contents(database) == before


def test_a_begin_whose_answer_was_lost_is_answered_again(database: Database) -> None:
    """With its own token a process gets its attempt once more, and nothing is begun twice; others don't."""
    jobs.enqueue(database, new_job())
    run = {"flow_run_id": "job-run-1", "holder": "worker"}
    first = attempts.begin(database, "job", 1, token="mine", **run)
    before = contents(database)

    again = attempts.begin(database, "job", 1, token="mine", **run)
    with pytest.raises(AttemptEnded):
        attempts.begin(database, "job", 1, token="another's", **run)

    assert again == first
    assert contents(database) == before


def test_an_attempt_that_was_ended_is_not_answered_again(database: Database) -> None:
    """The token of an attempt that is over begins nothing."""
    jobs.enqueue(database, new_job())
    run = {"flow_run_id": "job-run-1", "holder": "worker"}
    attempts.begin(database, "job", 1, token="mine", **run)
    attempts.end(database, "job", 1, Outcome.LOST)

    with pytest.raises(AttemptEnded):
        attempts.begin(database, "job", 1, token="mine", **run)


def test_an_ended_attempt_does_not_begin(database: Database) -> None:
    """An attempt that was given up before it began can't begin any more; the next one can."""
    jobs.enqueue(database, new_job())
    attempts.end(database, "job", 1, Outcome.GONE)

    with pytest.raises(AttemptEnded):
        begin(database)

    assert begin(database, n=2).n == 2


def test_a_cancelled_job_does_not_begin(database: Database) -> None:
    """Once a job is called off none of its attempts begins, and no fence is used up."""
    jobs.enqueue(database, new_job())
    results.request_cancel(database, "job")
    before = contents(database)

    with pytest.raises(AttemptEnded):
        begin(database)

    assert contents(database) == before


def test_another_flow_run_is_refused(database: Database) -> None:
    """An attempt that has a flow run begins only as that one."""
    jobs.enqueue(database, new_job())
    attempts.set_run(database, "job", 1, "run-a")

    with pytest.raises(AttemptEnded):
        attempts.begin(database, "job", 1, flow_run_id="run-b", holder="worker")

    assert attempts.begin(database, "job", 1, flow_run_id="run-a", holder="worker").n == 1


def test_a_run_belongs_to_one_attempt(database: Database) -> None:
    """A flow run that has an attempt can't begin one of another job."""
    started(database)
    jobs.enqueue(database, new_job("other"))

    with pytest.raises(AttemptEnded):
        attempts.begin(database, "other", 1, flow_run_id="job-run-1", holder="worker")


@pytest.mark.parametrize(("job_id", "n", "error"), [("nobody", 1, JobNotFound), ("job", 2, AttemptEnded)])
def test_what_does_not_exist_does_not_begin(
    database: Database, job_id: str, n: int, error: type[Exception]
) -> None:
    """Neither an unknown job nor an attempt that isn't planned begins."""
    jobs.enqueue(database, new_job())

    with pytest.raises(error):
        begin(database, job_id, n)


def test_twenty_processes_claim_one_attempt(database: Database) -> None:
    """Of twenty simultaneous claims one wins and the others are refused."""
    jobs.enqueue(database, new_job())

    outcomes = in_threads(20, lambda _: begin(database))

    assert sum(isinstance(outcome, attempts.Attempt) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, AttemptEnded) for outcome in outcomes) == 19


def test_fences_grow(database: Database) -> None:
    """Fences strictly grow in the order in which attempts begin, across jobs."""
    fences = []
    for number in range(5):
        fences.append(started(database, f"job-{number}").fence)
        attempts.end(database, f"job-{number}", 1, Outcome.CRASHED)
        fences.append(begin(database, f"job-{number}", 2).fence)

    assert fences == sorted(set(fences))


def test_simultaneous_claims_get_different_fences(database: Database) -> None:
    """Attempts of different jobs that begin together get a fence each."""
    for number in range(10):
        jobs.enqueue(database, new_job(f"job-{number}"))

    begun = in_threads(10, lambda number: begin(database, f"job-{number}"))

    assert len({attempt.fence for attempt in begun}) == 10


def test_renew_moves_the_counter(database: Database) -> None:
    """Each renewal moves the counter, however late it comes."""
    attempt = started(database)

    for _ in range(3):
        attempts.renew(database, attempt)

    assert rows(database, schema.attempts)[0].renewals == 4


def test_renew_fails_once_ended(database: Database) -> None:
    """A process whose attempt was ended learns it at its next renewal, and moves nothing."""
    attempt = started(database)
    attempts.end(database, "job", 1, Outcome.LOST)

    with pytest.raises(AttemptEnded):
        attempts.renew(database, attempt)

    assert rows(database, schema.attempts)[0].renewals == 1


def test_renew_needs_the_token(database: Database) -> None:
    """Only the process that began the attempt renews it."""
    attempt = started(database)
    stranger = attempts.Attempt("job", 1, "another-token", attempt.fence, 60.0)

    with pytest.raises(AttemptEnded):
        attempts.renew(database, stranger)


@pytest.mark.parametrize("outcome", COUNTING)
def test_end_plans_one_next_attempt_after_a_pause(database: Database, outcome: Outcome) -> None:
    """A counted end plans exactly one next attempt, due within the bounds of the backoff."""
    started(database, max_attempts=4)
    for n in (1, 2, 3):
        if n > 1:
            begin(database, n=n)

        assert attempts.end(database, "job", n, outcome)

        now = rows(database, schema.attempts)[n - 1].ended_at
        pause = rows(database, schema.attempts)[n].due_at - now
        full = timedelta(seconds=PAUSE.first * PAUSE.factor ** (n - 1))
        assert full * (1 - PAUSE.jitter) - timedelta(milliseconds=1) <= pause <= full
        assert numbers(database) == list(range(1, n + 2))


@pytest.mark.parametrize("outcome", FREE)
def test_handing_back_costs_nothing(database: Database, outcome: Outcome) -> None:
    """An attempt that was handed back, or whose run vanished, uses no budget.

    The next one is due at once after a hand-back, and after the first pause where a run vanished.
    """
    started(database, max_attempts=1)

    for n in range(1, 6):
        attempts.end(database, "job", n, outcome)

    last, planned = rows(database, schema.attempts)[-2:]
    assert numbers(database) == [1, 2, 3, 4, 5, 6]
    longest = timedelta() if outcome is Outcome.INTERRUPTED else timedelta(seconds=PAUSE.first)
    assert (
        longest * (1 - PAUSE.jitter) - timedelta(milliseconds=1) <= planned.due_at - last.ended_at <= longest
    )
    assert not any(row.counts for row in rows(database, schema.attempts))


def test_end_is_idempotent(database: Database) -> None:
    """An attempt ends once: what comes later changes neither its outcome nor what follows."""
    started(database)
    attempts.end(database, "job", 1, Outcome.CRASHED, error=problem())
    before = contents(database)

    again = attempts.end(database, "job", 1, Outcome.PERMANENT, error=problem("Other."))

    assert not again
    assert contents(database) == before


def test_many_end_one_attempt(database: Database) -> None:
    """Of simultaneous ends one counts, and one attempt follows."""
    started(database)
    kinds = [Outcome.FAILED, Outcome.CRASHED, Outcome.LOST, Outcome.INTERRUPTED]

    outcomes = in_threads(12, lambda number: attempts.end(database, "job", 1, kinds[number % 4]))

    assert sorted(outcomes) == [False] * 11 + [True]
    assert numbers(database) == [1, 2]
    assert facts_of(database) == ["enqueued", "begun", "ended"]


def test_a_permanent_error_is_followed_by_nothing(database: Database) -> None:
    """After a permanent error no attempt is planned, whatever the budget."""
    started(database)

    attempts.end(database, "job", 1, Outcome.PERMANENT)

    assert numbers(database) == [1]


def test_a_spent_budget_is_followed_by_nothing(database: Database) -> None:
    """The budget counts failures, and nothing follows the last one."""
    started(database, max_attempts=2)
    attempts.end(database, "job", 1, Outcome.FAILED)
    attempts.end(database, "job", 2, Outcome.INTERRUPTED)

    attempts.end(database, "job", 3, Outcome.FAILED)

    assert numbers(database) == [1, 2, 3]


def test_a_cancelled_job_gets_no_further_attempt(database: Database) -> None:
    """An attempt that ends after the job was called off is the last."""
    started(database)
    results.request_cancel(database, "job")

    attempts.end(database, "job", 1, Outcome.CANCELLED)

    assert numbers(database) == [1]


def test_a_cancel_that_nobody_asked_for_is_a_failure(database: Database) -> None:
    """An attempt cancelled by somebody outside doesn't strand the job: the next one is planned."""
    started(database)

    attempts.end(database, "job", 1, Outcome.CANCELLED)

    assert numbers(database) == [1, 2]


def test_end_never_means_completed(database: Database) -> None:
    """Completion comes with a result, so an end without one can't claim it."""
    started(database)

    with pytest.raises(ValueError, match="commit_result"):
        attempts.end(database, "job", 1, Outcome.COMPLETED)

    assert rows(database, schema.attempts)[0].ended_at is None


def test_end_with_a_stale_counter_is_refused(database: Database) -> None:
    """A lease that moved since it was judged is not lost."""
    attempt = started(database)
    seen = rows(database, schema.attempts)[0].renewals
    attempts.renew(database, attempt)

    assert not attempts.end(database, "job", 1, Outcome.LOST, renewals=seen)
    assert attempts.end(database, "job", 1, Outcome.LOST, renewals=seen + 1)


def test_work_counts_as_a_renewal(database: Database) -> None:
    """A commit under the fence moves the counter as a renewal does."""
    attempt = started(database)

    commit(database, attempt, "a")

    assert not attempts.end(database, "job", 1, Outcome.LOST, renewals=1)


def test_end_needs_the_token_where_one_is_given(database: Database) -> None:
    """A process that ends its own attempt can't end somebody else's."""
    attempt = started(database)

    assert not attempts.end(database, "job", 1, Outcome.FAILED, token="another")
    assert attempts.end(database, "job", 1, Outcome.FAILED, token=attempt.token)


def test_end_of_what_does_not_exist(database: Database) -> None:
    """Ending an attempt that isn't there does nothing; an unknown job is said to be unknown."""
    jobs.enqueue(database, new_job())

    assert not attempts.end(database, "job", 7, Outcome.LOST)
    with pytest.raises(JobNotFound):
        attempts.end(database, "nobody", 1, Outcome.LOST)


def test_a_malformed_error_is_refused_at_the_door(database: Database) -> None:
    """An error that the contract can't show is refused when it is written, not at every later look."""
    started(database)
    before = contents(database)

    with pytest.raises(ValueError, match="title"):
        attempts.end(database, "job", 1, Outcome.FAILED, error={"type": "transient"})

    assert contents(database) == before


def test_the_error_is_shown(database: Database) -> None:
    """The last error of a job is part of what people see until the job is complete."""
    started(database)
    attempts.end(database, "job", 1, Outcome.FAILED, error=problem("Bad \ud800 line\x00.", 1))
    look(database)

    shown = queries.get(database, "job").error

    assert shown is not None
    assert (shown.detail, shown.attempt) == ("Bad \ud800 line\x00.", 1)


def test_set_run_notes_the_run_once(database: Database) -> None:
    """The first run noted for an attempt stays its run."""
    jobs.enqueue(database, new_job())

    answers = [attempts.set_run(database, "job", 1, run) for run in ("run-a", "run-a", "run-b")]

    assert answers == [True, True, False]
    assert rows(database, schema.attempts)[0].flow_run_id == "run-a"


def test_set_run_leaves_a_begun_attempt_alone(database: Database) -> None:
    """The run that began an attempt can't be written over by a late outbox pass."""
    started(database)

    assert not attempts.set_run(database, "job", 1, "late")
    assert rows(database, schema.attempts)[0].flow_run_id == "job-run-1"


def test_wants_run_lists_what_to_submit(database: Database) -> None:
    """The outbox is shown planned attempts without a run, and no others."""
    jobs.enqueue(database, new_job("fresh"))
    jobs.enqueue(database, new_job("submitted"))
    attempts.set_run(database, "submitted", 1, "run")
    started(database, "begun")
    started(database, "again")
    attempts.end(database, "again", 1, Outcome.CRASHED)
    jobs.enqueue(database, new_job("called-off"))
    results.request_cancel(database, "called-off")

    wanted = attempts.wants_run(database)

    due = {
        row.job_id: row.due_at
        for row in rows(database, schema.attempts, schema.attempts.c.ended_at.is_(None))
    }
    assert sorted(wanted) == [("again", 2, due["again"]), ("fresh", 1, due["fresh"])]


def test_two_leases_of_a_dead_worker(database: Database) -> None:
    """A process that comes back from the dead can't write anything that belongs to its attempt."""
    stale = started(database)
    attempts.end(database, "job", 1, Outcome.LOST)
    begin(database, n=2)
    before = contents(database)
    writes: list[Callable[[], object]] = [
        lambda: commit(database, stale, "a"),
        lambda: checkpoints.reserve(database, stale, produced("a").digest, 1),
        lambda: effects.intend(database, stale, "mail"),
        lambda: results.set_progress(database, stale, done=1),
        lambda: results.commit_result(database, stale, produced("a")),
        lambda: attempts.renew(database, stale),
    ]

    for write in writes:
        with pytest.raises(AttemptEnded):
            write()

    assert contents(database) == before


def test_a_lost_attempt_may_still_be_running(database: Database) -> None:
    """While an attempt runs after a lost one, the job says that two processes may be alive."""
    started(database)
    attempts.end(database, "job", 1, Outcome.LOST)
    begin(database, n=2)
    look(database)

    job = queries.get(database, "job")

    assert (job.status, job.possible_double_run) == (JobStatus.RUNNING, True)


def test_a_due_attempt_is_picked_once(database: Database) -> None:
    """Of many processes that look for work one picks the attempt, and gets the id of its run."""
    jobs.enqueue(database, new_job())
    attempts.set_run(database, "job", 1, "run")

    picked = in_threads(10, lambda number: attempts.pick_due(database, "job", f"process-{number}"))

    assert sorted(picked, key=str) == [None] * 9 + ["run"]
    assert rows(database, schema.attempts)[0].holder == f"process-{picked.index('run')}"


def test_what_cannot_be_picked(database: Database) -> None:
    """An attempt is picked once it is due, and only if it has a run and hasn't begun or ended."""
    jobs.enqueue(database, new_job("no-run"))
    started(database, "begun")
    started(database, "later")
    attempts.end(database, "later", 1, Outcome.FAILED)
    attempts.set_run(database, "later", 2, "later-run-2")
    jobs.enqueue(database, new_job("ended", max_attempts=1))
    attempts.set_run(database, "ended", 1, "ended-run-1")
    attempts.end(database, "ended", 1, Outcome.FAILED)

    picked = [
        attempts.pick_due(database, name, "p") for name in ("no-run", "begun", "later", "ended", "nobody")
    ]

    assert picked == [None] * 5


def test_a_picked_attempt_belongs_to_its_process(database: Database) -> None:
    """An attempt that one process picked is begun by that process and no other."""
    jobs.enqueue(database, new_job())
    attempts.set_run(database, "job", 1, "run")
    attempts.pick_due(database, "job", "mine")

    with pytest.raises(AttemptEnded):
        attempts.begin(database, "job", 1, flow_run_id="run", holder="another")

    assert attempts.begin(database, "job", 1, flow_run_id="run", holder="mine").n == 1


def test_close_run_is_noted(database: Database) -> None:
    """That Prefect knows of an end is noted, twice as once."""
    started(database)
    attempts.end(database, "job", 1, Outcome.CRASHED)

    for _ in range(2):
        attempts.close_run(database, "job", 1)

    assert [(row.n, row.run_closed) for row in rows(database, schema.attempts)] == [(1, True), (2, False)]


def refusal(database: Database, n: int = 1) -> str:
    """Return what somebody is told who restarts the run of attempt *n*."""
    with pytest.raises(AttemptEnded) as raised:
        begin(database, n=n)
    assert raised.value.hint in raised.value.detail
    return raised.value.detail


def test_who_restarts_the_run_of_a_dead_job_is_told_how_to_retry(database: Database) -> None:
    """The text alone says it, since Prefect shows no more of an error."""
    started(database, max_attempts=1)
    attempts.end(database, "job", 1, Outcome.FAILED)

    assert "the job is dead. To try it again: autocode-jobs jobs retry job --reason TEXT" in refusal(database)


def test_who_restarts_an_old_run_is_told_which_attempt_goes_on(database: Database) -> None:
    """While the job goes on there is nothing to do."""
    started(database)
    attempts.end(database, "job", 1, Outcome.FAILED)

    assert "the job goes on in attempt 2" in refusal(database)


def test_who_restarts_the_run_of_a_complete_or_cancelled_job_is_told_so(database: Database) -> None:
    """A result stands, and a cancel too."""
    attempt = started(database)
    results.commit_result(database, attempt, produced("r"))
    complete = refusal(database)
    jobs.enqueue(database, new_job("called-off"))
    results.request_cancel(database, "called-off")

    with pytest.raises(AttemptEnded) as raised:
        begin(database, "called-off")

    assert "the job has its result" in complete
    assert "the job was cancelled" in raised.value.detail


def test_a_job_is_accepted_together_with_the_run_that_it_has(database: Database) -> None:
    """Nobody finds an adopted job without its run, so nobody makes it another."""
    jobs.enqueue(database, new_job("adopted"), flow_run_id="run")

    assert attempts.wants_run(database) == []
    assert [row.flow_run_id for row in rows(database, schema.attempts)] == ["run"]
