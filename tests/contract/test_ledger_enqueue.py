"""Accepting jobs: once, durably, and with an answer that names what differs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from autocode.jobs.errors import JobConflict, JobNotFound, UsageError
from autocode.jobs.ledger import attempts, jobs, queries, results, schema
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import JobStatus
from autocode.jobs.projection import Outcome
from ledger_world import begin, contents, facts_of, in_threads, look, new_job, produced, rows, started


def test_enqueue_writes_job_attempt_and_event(database: Database) -> None:
    """A new job has its row, a planned first attempt, one event and the state queued."""
    created = jobs.enqueue(database, new_job(session_id="s-1", origin="api"))

    job = queries.get(database, "job")
    assert created
    assert (job.status, job.attempts, job.max_attempts, job.session_id, job.rev) == (
        JobStatus.QUEUED,
        0,
        3,
        "s-1",
        1,
    )
    assert [(row.n, row.begun_at) for row in rows(database, schema.attempts)] == [(1, None)]
    assert facts_of(database) == ["enqueued"]


def test_the_same_request_changes_nothing(database: Database) -> None:
    """Enqueueing the same id and payload again answers that nothing is new, and writes nothing."""
    jobs.enqueue(database, new_job())
    before = contents(database)

    created = jobs.enqueue(database, new_job())

    assert not created
    assert contents(database) == before


def test_key_order_does_not_make_another_request(database: Database) -> None:
    """A payload is the same whatever the order of its keys."""
    jobs.enqueue(database, new_job(payload={"a": 1, "b": {"c": 2, "d": 3}}))

    created = jobs.enqueue(database, new_job(payload={"b": {"d": 3, "c": 2}, "a": 1}))

    assert not created


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"payload": {"size": 2}}, ["payload.size"]),
        ({"payload": {"size": 1, "extra": None}}, ["payload.extra"]),
        ({"payload": {}}, ["payload.size"]),
        ({"payload": {"size": True}}, ["payload.size"]),
        ({"payload": {"size": 1.0}}, ["payload.size"]),
        ({"kind": "export"}, ["kind"]),
        ({"kind": "export", "payload": {"b": 1, "a": 1}}, ["kind", "payload.a", "payload.b", "payload.size"]),
    ],
)
def test_a_conflict_names_the_fields(database: Database, changes: dict[str, Any], differs: list[str]) -> None:
    """The same id with another request is refused, and the refusal names exactly what differs."""
    jobs.enqueue(database, new_job())
    before = contents(database)

    with pytest.raises(JobConflict) as refused:
        jobs.enqueue(database, new_job(**changes))

    assert refused.value.data["differs"] == differs
    assert contents(database) == before


def test_a_conflict_ignores_how_a_sequence_was_written(database: Database) -> None:
    """A tuple and a list are the same JSON, so a conflict elsewhere doesn't name them."""
    jobs.enqueue(database, new_job(payload={"names": ("a", "b"), "size": 1}))

    with pytest.raises(JobConflict) as refused:
        jobs.enqueue(database, new_job(payload={"names": ("a", "b"), "size": 2}))

    assert refused.value.data["differs"] == ["payload.size"]


@pytest.mark.parametrize("job_id", ["", "-a", ".a", "a b", "a/b", "a\n", "é", "٣", "a" * 129, "a\x00"])
def test_bad_ids_are_refused(database: Database, job_id: str) -> None:
    """An id that the contract doesn't allow is refused and nothing is stored."""
    with pytest.raises(UsageError):
        jobs.enqueue(database, new_job(job_id))

    assert rows(database, schema.jobs) == []


@pytest.mark.parametrize("job_id", ["0", "Z", "a" * 128, "team:0f-1.2_3"])
def test_ids_at_the_edge_are_accepted(database: Database, job_id: str) -> None:
    """Every id that the contract allows is accepted."""
    assert jobs.enqueue(database, new_job(job_id))


def test_any_text_survives_in_a_payload(database: Database) -> None:
    """NUL, lone surrogates, big integers and other alphabets come back from a payload as they went in."""
    payload = {"text": "a\x00b \ud800 é 漢 😀", "big": 2**70, "nested": [None, {"é": -0.5}]}

    jobs.enqueue(database, new_job(payload=payload))

    assert jobs.payload_of(database, "job") == ("noop", payload)


def test_payload_of_an_unknown_job(database: Database) -> None:
    """Asking for a job that doesn't exist says so."""
    with pytest.raises(JobNotFound):
        jobs.payload_of(database, "nobody")


def test_times_are_kept_to_the_millisecond(database: Database) -> None:
    """A time comes back in UTC, cut to whole milliseconds, the same from both databases."""
    saved = datetime(2025, 1, 2, 3, 4, 5, 678_999, tzinfo=UTC)

    jobs.enqueue(database, new_job(file_saved_at=saved))

    assert rows(database, schema.jobs)[0].file_saved_at == saved.replace(microsecond=678_000)


def test_naive_times_are_refused(database: Database) -> None:
    """A time without a zone never gets into the ledger."""
    with pytest.raises(Exception, match="aware times only"):
        jobs.enqueue(database, new_job(file_saved_at=datetime(2025, 1, 2)))

    assert rows(database, schema.jobs) == []


def test_twenty_threads_enqueue_one_job(database: Database) -> None:
    """Of twenty simultaneous requests for the same id one creates it, and there is one of everything."""
    outcomes = in_threads(20, lambda _: jobs.enqueue(database, new_job()))

    assert sorted(outcomes) == [("job", False)] * 19 + [("job", True)]
    assert len(rows(database, schema.jobs)) == 1
    assert len(rows(database, schema.attempts)) == 1
    assert facts_of(database) == ["enqueued"]


def test_twenty_threads_with_two_payloads(database: Database) -> None:
    """Of simultaneous requests with two payloads one payload wins, and all of the other are refused."""
    outcomes = in_threads(20, lambda number: jobs.enqueue(database, new_job(payload={"size": number % 2})))

    assert outcomes.count(("job", True)) == 1
    assert outcomes.count(("job", False)) == 9
    assert sum(isinstance(outcome, JobConflict) for outcome in outcomes) == 10


def test_find_unfinished_picks_the_newest(database: Database) -> None:
    """Of several unfinished jobs of one request the newest is found."""
    for job_id in ("z-first", "a-second", "m-third"):
        jobs.enqueue(database, new_job(job_id))
    jobs.enqueue(database, new_job("other", payload={"size": 2}))

    assert jobs.find_unfinished(database, "noop", {"size": 1}) == "m-third"
    assert jobs.find_unfinished(database, "export", {"size": 1}) is None
    assert jobs.find_unfinished(database, "noop", {"size": 3}) is None


def test_find_unfinished_passes_over_what_cannot_complete(database: Database) -> None:
    """A job that is complete, dead or called off is not found, even before anybody looked at it again."""
    jobs.enqueue(database, new_job("oldest"))
    complete = started(database, "complete")
    results.commit_result(database, complete, produced("result"))
    results.mark_verified(database, "complete", produced("result").digest)
    look(database, "complete")
    started(database, "dead")
    attempts.end(database, "dead", 1, Outcome.PERMANENT)
    jobs.enqueue(database, new_job("called-off"))
    results.request_cancel(database, "called-off")

    assert jobs.find_unfinished(database, "noop", {"size": 1}) == "oldest"


def test_find_unfinished_finds_a_result_that_is_being_verified(database: Database) -> None:
    """A job whose result waits to be verified is still unfinished."""
    attempt = started(database)
    results.commit_result(database, attempt, produced("result"))

    assert jobs.find_unfinished(database, "noop", {"size": 1}) == "job"


def test_list_is_newest_first_and_limited(database: Database) -> None:
    """The list shows the newest jobs first and no more than asked for."""
    for job_id in ("b", "c", "a"):
        jobs.enqueue(database, new_job(job_id))

    assert [job.job_id for job in queries.list_jobs(database)] == ["a", "c", "b"]
    assert [job.job_id for job in queries.list_jobs(database, limit=2)] == ["a", "c"]


def test_an_unknown_job_is_not_found(database: Database) -> None:
    """Reading a job that doesn't exist says so."""
    with pytest.raises(JobNotFound):
        queries.get(database, "nobody")


def test_a_reader_sees_one_moment(database: Database, ledger_url: str) -> None:
    """A job that completes while it is being read shows as it was before or as it is after, not a mixture."""
    attempt = started(database)
    look(database)
    reader = Database(ledger_url)
    happened: list[str] = []

    @sa.event.listens_for(reader._engine, "after_cursor_execute")
    def complete_it(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if "FROM jobs" in statement and not happened:
            happened.append(statement)
            results.commit_result(database, attempt, produced("r"))
            results.mark_verified(database, "job", produced("r").digest)
            look(database)

    seen = queries.get(reader, "job")
    again = queries.get(reader, "job")
    reader.close()

    assert len(happened) == 1
    assert (seen.status, seen.result) == (JobStatus.RUNNING, None)
    assert (again.status, again.result is not None) == (JobStatus.COMPLETE, True)


def test_open_jobs_are_those_to_look_at(database: Database) -> None:
    """Reconcile is shown jobs that are open or untold, and those with an attempt or a run to end."""
    started(database, "running")
    for job_id in ("dead-untold", "dead-unclosed", "dead-settled"):
        started(database, job_id)
        attempts.end(database, job_id, 1, Outcome.PERMANENT)
    attempts.close_run(database, "dead-untold", 1)
    look(database, "dead-unclosed")
    look(database, "dead-settled")
    attempts.close_run(database, "dead-settled", 1)
    jobs.enqueue(database, new_job("dead-unended"))
    results.request_cancel(database, "dead-unended")
    look(database, "dead-unended")

    assert queries.open_jobs(database) == ["dead-unclosed", "dead-unended", "dead-untold", "running"]


def test_begin_is_not_needed_for_open(database: Database) -> None:
    """A job whose first attempt begins later stays open all along."""
    jobs.enqueue(database, new_job())
    look(database)
    begin(database)

    assert queries.open_jobs(database) == ["job"]


def test_attaching_finds_the_unfinished_job(database: Database) -> None:
    """The same request attaches to its unfinished job; once that is over, it makes a new one."""
    first = jobs.attach_or_enqueue(database, new_job("first"))
    again = jobs.attach_or_enqueue(database, new_job("second"))
    other = jobs.attach_or_enqueue(database, new_job("third", payload={"size": 2}))
    results.request_cancel(database, "first")

    after = jobs.attach_or_enqueue(database, new_job("fourth"))

    assert (first, again, other, after) == (
        ("first", True),
        ("first", False),
        ("third", True),
        ("fourth", True),
    )
    assert [row.job_id for row in rows(database, schema.jobs)] == ["first", "fourth", "third"]


def test_attaching_under_a_taken_id(database: Database) -> None:
    """A new job can't take the id of one that is over."""
    die = started(database)
    attempts.end(database, "job", die.n, Outcome.PERMANENT)

    with pytest.raises(JobConflict):
        jobs.attach_or_enqueue(database, new_job())

    assert facts_of(database) == ["enqueued", "begun", "ended"]


def test_many_attach_to_one_job(database: Database) -> None:
    """Simultaneous callers with the same request all get the same job, and one of them made it."""
    outcomes = in_threads(12, lambda number: jobs.attach_or_enqueue(database, new_job(f"job-{number}")))

    assert len({job_id for job_id, _ in outcomes}) == 1
    assert sum(created for _, created in outcomes) == 1
    assert len(rows(database, schema.jobs)) == 1


def test_a_key_finds_the_job_again(database: Database) -> None:
    """The same request with the same key is answered by the job that exists, whatever id was made for it."""
    first = jobs.enqueue(database, new_job("first", idempotency_key="key"))
    before = contents(database)

    again = jobs.enqueue(database, new_job("second", idempotency_key="key"))

    assert (first, again) == (("first", True), ("first", False))
    assert (bool(first), bool(again)) == (True, False)
    assert contents(database) == before


def test_a_key_of_another_request_is_refused(database: Database) -> None:
    """The same key with another payload is refused: the refusal names what differs, and the job."""
    jobs.enqueue(database, new_job("first", idempotency_key="key"))
    before = contents(database)

    with pytest.raises(JobConflict) as refused:
        jobs.enqueue(database, new_job("second", payload={"size": 2}, idempotency_key="key"))

    assert refused.value.data == {"differs": ["payload.size"], "job_id": "first"}
    assert "key" in refused.value.hint
    assert contents(database) == before


def test_keys_tell_requests_apart(database: Database) -> None:
    """The same request under two keys, or without any, is as many jobs."""
    for number, key in enumerate(("a", "b", None, None)):
        assert jobs.enqueue(database, new_job(f"job-{number}", idempotency_key=key))

    assert len(rows(database, schema.jobs)) == 4


def test_an_id_that_exists_answers_under_a_new_key(database: Database) -> None:
    """A job that was made without a key is found by its id, and keeps having none."""
    jobs.enqueue(database, new_job())

    assert jobs.enqueue(database, new_job(idempotency_key="key")) == ("job", False)
    assert rows(database, schema.jobs)[0].idempotency_key is None


@pytest.mark.parametrize("key", ["", "k" * 256, "a\x00", "a\nb", "\ud800"])
def test_bad_keys_are_refused(database: Database, key: str) -> None:
    """A key that can't be kept is refused and nothing is stored."""
    with pytest.raises(UsageError):
        jobs.enqueue(database, new_job(idempotency_key=key))

    assert rows(database, schema.jobs) == []


def test_twenty_threads_with_one_key(database: Database) -> None:
    """Of twenty simultaneous requests with one key, each with an id of its own, one job comes."""
    outcomes = in_threads(
        20, lambda number: jobs.enqueue(database, new_job(f"job-{number}", idempotency_key="key"))
    )

    [made] = rows(database, schema.jobs)
    assert sorted(outcomes) == [(made.job_id, False)] * 19 + [(made.job_id, True)]
    assert facts_of(database, made.job_id) == ["enqueued"]


def test_twenty_threads_with_one_key_and_two_payloads(database: Database) -> None:
    """Of simultaneous requests with one key and two payloads one payload wins; the other is refused."""
    outcomes = in_threads(
        20,
        lambda number: jobs.enqueue(
            database, new_job(f"job-{number}", payload={"size": number % 2}, idempotency_key="key")
        ),
    )

    assert [bool(each) for each in outcomes if isinstance(each, jobs.Accepted)].count(True) == 1
    assert sum(isinstance(outcome, JobConflict) for outcome in outcomes) == 10
    assert len(rows(database, schema.jobs)) == 1


def test_the_ids_of_adopted_jobs_are_nobody_elses(database: Database) -> None:
    """An id under which a run of Prefect's own would be adopted can't be taken by a request."""
    with pytest.raises(UsageError, match="Prefect"):
        jobs.enqueue(database, new_job("prefect:8a9c1f52", origin="api"))

    assert jobs.enqueue(database, new_job("prefect:8a9c1f52", origin="prefect")).new
