"""Stamping: cursors without gaps, revisions that never fall, and events that are right as of their fact."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa

from autocode.jobs.errors import JobNotFound
from autocode.jobs.ledger import attempts, events, jobs, queries, results, schema
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import TRANSITIONS, JobStatus
from autocode.jobs.projection import Lease, Outcome, RunState
from ledger_world import (
    begin,
    commit,
    contents,
    in_threads,
    look,
    new_job,
    problem,
    produced,
    rows,
    started,
    told,
)


def shown(event: dict[str, Any]) -> tuple[str, str, int]:
    """Return an event's type and what its data says of status and attempts."""
    return event["type"], event["data"]["status"], event["data"]["attempts"]


def test_each_fact_is_told_as_of_itself(database: Database) -> None:
    """A whole life between two looks is told fact by fact, each with the resource right after it."""
    attempt = started(database)
    commit(database, attempt, "a")
    attempts.end(database, "job", 1, Outcome.FAILED, error=problem())
    second = begin(database, n=2)
    commit(database, second, "b")
    results.commit_result(database, second, produced("r"))
    results.mark_verified(database, "job", produced("r").digest)

    look(database)

    assert [shown(event) for event in told(database)] == [
        ("job.queued", "queued", 0),
        ("job.running", "running", 1),
        ("job.checkpoint", "running", 1),
        ("job.retrying", "retrying", 1),
        ("job.running", "running", 2),
        ("job.checkpoint", "running", 2),
        ("job.running", "running", 2),
        ("job.complete", "complete", 2),
    ]
    data = [event["data"] for event in told(database)]
    assert [d["checkpoint"] and d["checkpoint"]["seq"] for d in data] == [None, None, 1, 1, 1, 2, 2, 2]
    assert [d["error"] is not None for d in data] == [False, False, False, True, True, True, True, False]
    assert [d["next_attempt_at"] is not None for d in data] == [False, False, False, True, *[False] * 4]
    assert [d["result"] is not None for d in data] == [False] * 7 + [True]
    assert [d["times"]["started_at"] is not None for d in data] == [False] + [True] * 7
    assert [d["rev"] for d in data] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_looking_often_or_once_tells_the_same(database: Database) -> None:
    """The same life is told in the same words, whether somebody looked after each fact or once."""

    def live(job_id: str, after_each: bool) -> list[tuple[str, str, int]]:
        def maybe() -> None:
            if after_each:
                look(database, job_id)

        jobs.enqueue(database, new_job(job_id))
        maybe()
        attempt = begin(database, job_id)
        maybe()
        commit(database, attempt, "a")
        maybe()
        attempts.end(database, job_id, 1, Outcome.LOST, error=problem())
        maybe()
        second = begin(database, job_id, 2)
        maybe()
        results.request_cancel(database, job_id)
        maybe()
        commit(database, second, "b")
        maybe()
        attempts.end(database, job_id, 2, Outcome.CANCELLED)
        look(database, job_id)
        return [shown(event) for event in told(database, job_id)]

    often, once = live("often", after_each=True), live("once", after_each=False)

    assert often == once
    assert [status for _, status, _ in once] == [
        "queued",
        "running",
        "running",
        "retrying",
        "running",
        "running",
        "running",
        "dead",
    ]


def test_a_cancel_says_nothing_of_what_came_before(database: Database) -> None:
    """Facts from before a cancel are told without it."""
    started(database)
    results.request_cancel(database, "job")

    look(database)

    assert [shown(event)[:2] for event in told(database)] == [
        ("job.queued", "queued"),
        ("job.running", "running"),
        ("job.cancel_requested", "running"),
    ]


def test_what_changes_nothing_that_is_shown_leaves_it_as_it_was(database: Database) -> None:
    """Two reads with one revision are the same in every field, also in the time as of which they are."""
    started(database)
    look(database)
    before = queries.get(database, "job")
    results.request_cancel(database, "job")
    look(database)

    after = queries.get(database, "job")

    assert after == before
    assert told(database)[-1]["type"] == "job.cancel_requested"


def test_a_verified_result_says_nothing_of_what_came_before(database: Database) -> None:
    """Facts from before the result is verified are told as they were."""
    started(database)
    attempts.end(database, "job", 1, Outcome.CRASHED)
    results.commit_result(database, begin(database, n=2), produced("r"))
    results.mark_verified(database, "job", produced("r").digest)

    look(database)

    statuses_told = [event["data"]["status"] for event in told(database)]
    assert statuses_told == ["queued", "running", "retrying", "running", "running", "complete"]


def test_progress_is_told_as_of_itself(database: Database) -> None:
    """An event from before a progress report doesn't know of it, and reports in a row are told as one."""
    attempt = started(database)
    results.set_progress(database, attempt, done=1)
    commit(database, attempt, "a")
    results.set_progress(database, attempt, done=2)
    results.set_progress(database, attempt, done=3)

    look(database)

    progress = [event["data"]["progress"] and event["data"]["progress"]["done"] for event in told(database)]
    assert [event["type"] for event in told(database)] == [
        "job.queued",
        "job.running",
        "job.checkpoint",
        "job.progress",
    ]
    assert progress == [None, None, None, 3]
    assert told(database)[-1]["data"]["progress"]["at"] is not None


def test_times_of_events_follow_their_order(database: Database) -> None:
    """Within a job a later event never has an earlier time, even where progress reports were merged."""
    attempt = started(database)
    results.set_progress(database, attempt, done=1)
    attempts.end(database, "job", 1, Outcome.FAILED)
    second = begin(database, n=2)
    results.set_progress(database, second, done=2)

    look(database)

    times = [event["at"] for event in told(database)]
    assert times == sorted(times)
    assert [event["fact"] for event in told(database)] == ["enqueued", "begun", "ended", "begun", "progress"]


def test_progress_after_a_look_is_told_again(database: Database) -> None:
    """A report that was told stays as it was told; the next one is an event of its own."""
    attempt = started(database)
    results.set_progress(database, attempt, done=1)
    look(database)
    results.set_progress(database, attempt, done=2)
    look(database)

    assert [event["data"]["progress"]["done"] for event in told(database) if event["fact"] == "progress"] == [
        1,
        2,
    ]


def test_what_is_read_belongs_to_its_revision(database: Database) -> None:
    """What people read changes only together with its revision."""
    attempt = started(database)
    look(database)
    before = queries.get(database, "job")
    results.set_progress(database, attempt, done=1)
    commit(database, attempt, "a")

    between = queries.get(database, "job")
    look(database)

    assert between == before
    assert queries.get(database, "job").rev == before.rev + 2


def test_stamping_with_nothing_new_writes_nothing(database: Database) -> None:
    """A look that finds nothing new leaves every row of the database as it was."""
    attempt = started(database)
    commit(database, attempt, "a")
    look(database)
    before = contents(database)

    answers = [look(database), look(database, run=RunState("RUNNING", "Running"))]

    assert answers == [False, False]
    assert contents(database) == before


def test_a_note_is_a_visible_change(database: Database) -> None:
    """What Prefect says of a live attempt is shown, with a revision and an event of its own."""
    started(database)
    look(database)
    rev = queries.get(database, "job").rev

    look(database, run=RunState("PAUSED", "Suspended"))

    job = queries.get(database, "job")
    assert (job.status, job.note, job.rev) == (JobStatus.RUNNING, "Prefect says Suspended", rev + 1)
    assert told(database)[-1]["type"] == "job.running"


def test_revisions_count_visible_changes(database: Database) -> None:
    """A revision grows by one exactly where the resource changed, and never falls."""
    attempt = started(database)
    commit(database, attempt, "a")
    look(database)
    results.request_cancel(database, "job")
    results.set_progress(database, attempt, done=1)
    attempts.end(database, "job", 1, Outcome.CANCELLED)
    look(database)

    for before, after in pairwise(event["data"] for event in told(database)):
        visible = {k: v for k, v in before.items() if k not in {"rev", "as_of"}} != {
            k: v for k, v in after.items() if k not in {"rev", "as_of"}
        }
        assert after["rev"] == before["rev"] + visible


def test_an_event_never_runs_ahead_of_the_job(database: Database) -> None:
    """Reading the job right after an event shows that event's revision."""
    started(database)
    look(database)

    assert queries.get(database, "job").rev == told(database)[-1]["rev"]


def test_event_data_is_the_resource_without_history(database: Database) -> None:
    """The data of the last event is the resource as it is read, but for the history."""
    attempt = started(database)
    commit(database, attempt, "a")
    results.set_progress(database, attempt, done=1, total=2, unit="files")
    look(database)

    assert told(database)[-1]["data"] == {**queries.get(database, "job").to_json(), "history": []}


def test_cursors_are_consecutive_across_jobs(database: Database) -> None:
    """Whatever jobs are looked at in whatever order, their events' cursors count from one without a gap."""
    for number in range(4):
        started(database, f"job-{number}")
    for number in (2, 0, 3, 2, 1):
        look(database, f"job-{number}")
    attempts.end(database, "job-1", 1, Outcome.FAILED)
    look(database, "job-1")

    cursors = [row.cursor for row in events.read_after(database, 0)]

    assert cursors == list(range(1, 10))


def test_read_after_pages(database: Database) -> None:
    """Reading goes on after a cursor, in pages, and ends with nothing."""
    for number in range(3):
        jobs.enqueue(database, new_job(f"job-{number}"))
        look(database, f"job-{number}")

    assert [row.cursor for row in events.read_after(database, 0, limit=2)] == [1, 2]
    assert [row.cursor for row in events.read_after(database, 2, limit=2)] == [3]
    assert events.read_after(database, 3) == []


def test_unstamped_facts_are_not_read(database: Database) -> None:
    """A fact is shown to readers only once it is stamped."""
    started(database)

    assert events.read_after(database, 0) == []


def test_two_reconcilers_stamp_each_fact_once(database: Database) -> None:
    """When several stamp the same job together each fact is told once, in order."""
    attempt = started(database)
    for number in range(10):
        commit(database, attempt, str(number))

    in_threads(6, lambda _: look(database))

    assert [event["fact"] for event in told(database)] == ["enqueued", "begun", *["checkpoint"] * 10]
    assert [event["cursor"] for event in told(database)] == list(range(1, 13))


def test_a_failed_stamp_uses_no_cursor(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stamp that fails leaves no gap: its cursors go to the next one."""
    from autocode.jobs import crash

    started(database)
    monkeypatch.setenv("AUTOCODE_CRASH", "unused")
    crash.arm("reconcile.before-commit=raise", tokens=None)
    with pytest.raises(crash.CrashRaised):
        look(database)
    crash.disarm()

    look(database)

    assert [event["cursor"] for event in told(database)] == [1, 2]


def complete(database: Database) -> None:
    """Bring the job to complete."""
    results.commit_result(database, started(database), produced("r"))
    results.mark_verified(database, "job", produced("r").digest)


def die_permanently(database: Database) -> None:
    """Bring the job to its end by a permanent error."""
    started(database)
    attempts.end(database, "job", 1, Outcome.PERMANENT)


def die_exhausted(database: Database) -> None:
    """Bring the job to its end by one failure of one."""
    started(database, max_attempts=1)
    attempts.end(database, "job", 1, Outcome.FAILED)


def die_cancelled(database: Database) -> None:
    """Call the job off while it waits."""
    jobs.enqueue(database, new_job())
    results.request_cancel(database, "job")


ENDS = [complete, die_permanently, die_exhausted, die_cancelled]
RUNS = [
    RunState(),
    RunState("GONE"),
    *[RunState(s, s.title()) for s in ("FAILED", "CRASHED", "RUNNING", "SCHEDULED")],
]


@pytest.mark.parametrize("end", ENDS)
def test_terminal_is_sticky(database: Database, end: Any) -> None:
    """Whatever Prefect or a lease says afterwards, a job that is over stays as it is."""
    end(database)
    look(database)
    before = contents(database)

    answers = [look(database, run=run, lease=lease) for run in RUNS for lease in Lease]

    assert not any(answers)
    assert contents(database) == before


def test_stamping_an_unknown_job(database: Database) -> None:
    """There is nothing to stamp for a job that doesn't exist."""
    with pytest.raises(JobNotFound):
        look(database, "nobody")


def test_a_lease_judged_lost_too_early_heals(database: Database) -> None:
    """A job shown as retrying since its worker seemed lost runs again, by legal moves, when it isn't."""
    attempt = started(database)
    look(database, lease=Lease.LOST)
    results.commit_result(database, attempt, produced("r"))
    results.mark_verified(database, "job", produced("r").digest)
    look(database)

    seen = [JobStatus(event["data"]["status"]) for event in told(database)]
    moves = [(a, b) for a, b in pairwise(seen) if a is not b]
    assert all(b in TRANSITIONS[a] for a, b in moves)
    assert seen[-1] is JobStatus.COMPLETE


def test_a_backlog_is_told_in_order(database: Database) -> None:
    """However many facts came while nobody looked, all are told in order, and the state is the newest."""
    attempt = started(database)
    with database.write() as tx:
        at = database.clock.now()
        for seq in range(1, 1201):
            tx.execute(
                sa.insert(schema.checkpoints).values(
                    job_id="job", seq=seq, step=str(seq), digest=f"d{seq}", attempt=1, at=at, reused=False
                )
            )
            events.record(tx, "job", events.Fact.CHECKPOINT, {"seq": seq}, at)
    attempts.end(database, "job", attempt.n, Outcome.PERMANENT)

    while look(database):
        pass

    seqs = [event["data"]["checkpoint"]["seq"] for event in told(database) if event["fact"] == "checkpoint"]
    assert seqs == list(range(1, 1201))
    assert queries.get(database, "job").status is JobStatus.DEAD
    assert rows(database, schema.events, schema.events.c.cursor.is_(None)) == []
