"""Lists of jobs: filters, pages that inserts don't shift, and counts that agree with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import attempts, events, jobs, listing, queries, results
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.listing import Filter
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.projection import Outcome
from ledger_world import begin, commit, look, new_job, produced, started


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """Collect the statements that are sent within the block."""
    seen: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    sa.event.listen(database._engine, "after_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(database._engine, "after_cursor_execute", note)


def ids(database: Database, chosen: Filter = listing.EVERYTHING) -> set[str]:
    """Return the ids of all jobs that a filter leaves in, and check that the counts agree."""
    found: set[str] = set()
    token, total = None, 0
    while True:
        page = listing.page(database, chosen, size=2, token=token)
        found |= {job.job_id for job in page.jobs}
        total += len(page.jobs)
        token = page.next_token
        if token is None:
            break
    counted = listing.counts(database, chosen)
    assert total == len(found) == counted.total
    assert sum(counted.dead.values()) == counted.by_status[JobStatus.DEAD]
    return found


@pytest.fixture
def mixed(database: Database) -> Database:
    """Give a ledger with one job in each state, and two that are dead for different reasons."""
    for job_id, session in (
        ("queued", "claude/A_1"),
        ("running", "claude/AB1"),
        ("retrying", None),
        ("complete", "codex/É"),
        ("dead", "claude/A_1"),
        ("cancelled", None),
    ):
        kind = "noop" if session else "export"
        origin = "api" if job_id == "running" else "cli"
        reads = frozenset[str]()
        jobs.enqueue(database, new_job(job_id, session_id=session, kind=kind, origin=origin, reads=reads))
    for job_id in ("running", "retrying", "dead"):
        begin(database, job_id)
    attempts.end(database, "retrying", 1, Outcome.FAILED)
    attempts.end(database, "dead", 1, Outcome.PERMANENT)
    attempt = begin(database, "complete")
    commit(database, attempt, "a")
    results.commit_result(database, attempt, produced("r"))
    results.mark_verified(database, "complete", produced("r").digest)
    results.request_cancel(database, "cancelled")
    for job_id in ("queued", "running", "retrying", "complete", "dead", "cancelled"):
        look(database, job_id)
    return database


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, {"queued", "running", "retrying", "complete", "dead", "cancelled"}),
        ({"status": frozenset({JobStatus.DEAD})}, {"dead", "cancelled"}),
        ({"status": frozenset({JobStatus.QUEUED, JobStatus.RUNNING})}, {"queued", "running"}),
        ({"status": frozenset()}, set()),
        ({"reason": frozenset(DeadReason) - {DeadReason.CANCELLED}}, {"dead"}),
        ({"kind": "export"}, {"retrying", "cancelled"}),
        ({"origin": "api"}, {"running"}),
        ({"session_id": "claude/A_1"}, {"queued", "dead"}),
        ({"sessions": frozenset({"codex/É", "claude/AB1"})}, {"running", "complete"}),
        ({"sessions": frozenset()}, set()),
        ({"q": "NOO"}, {"queued", "running", "complete", "dead"}),
        ({"q": "a_1"}, {"queued", "dead"}),
        ({"q": "É"}, {"complete"}),
        ({"q": "ca"}, {"cancelled"}),
        ({"q": "%"}, set()),
        ({"q": "/"}, {"queued", "running", "complete", "dead"}),
        ({"q": ""}, {"queued", "running", "retrying", "complete", "dead", "cancelled"}),
        ({"q": "claude", "status": frozenset({JobStatus.DEAD})}, {"dead"}),
        ({"kind": "' OR 1=1 --"}, set()),
    ],
)
def test_a_filter_leaves_in_what_it_names(
    mixed: Database, chosen: dict[str, Any], expected: set[str]
) -> None:
    """Each field narrows the list, and the counts under the same filter are those of the list."""
    assert ids(mixed, Filter(**chosen)) == expected


def test_counts_name_every_state_and_reason(mixed: Database) -> None:
    """Counts have a number for each state and each reason of death, as of a time and an event."""
    counted = listing.counts(mixed)

    assert counted.by_status == dict.fromkeys(JobStatus, 1) | {JobStatus.DEAD: 2}
    assert counted.dead == dict.fromkeys(DeadReason, 0) | {DeadReason.PERMANENT: 1, DeadReason.CANCELLED: 1}
    assert counted.total == 6
    assert counted.event_cursor == listing.page(mixed).event_cursor


def test_an_empty_ledger_has_an_empty_page(database: Database) -> None:
    """Where there is no job the page is empty, and so are the counts."""
    page = listing.page(database)

    assert (page.jobs, page.next_token, page.event_cursor) == ((), None, 0)
    assert listing.counts(database).total == 0


def test_pages_are_newest_first_and_miss_nothing(database: Database) -> None:
    """All pages together are the list, newest first, whatever their size; the last has no token."""
    for number in range(7):
        jobs.enqueue(database, new_job(f"job-{number}"))
    expected = [f"job-{number}" for number in reversed(range(7))]

    for size in (1, 3, 7, 500):
        found, token, pages = [], None, 0
        while pages == 0 or token is not None:
            page = listing.page(database, size=size, token=token)
            found += [job.job_id for job in page.jobs]
            token, pages = page.next_token, pages + 1
        assert found == expected
        assert pages == -(-7 // size)


def test_inserts_do_not_shift_the_next_page(database: Database) -> None:
    """Jobs that are accepted between two pages appear on neither, and nothing is shown twice or missed."""
    for number in range(4):
        jobs.enqueue(database, new_job(f"job-{number}"))
    first = listing.page(database, size=2)
    for number in range(4, 9):
        jobs.enqueue(database, new_job(f"job-{number}"))

    second = listing.page(database, size=2, token=first.next_token)

    assert [job.job_id for job in first.jobs + second.jobs] == ["job-3", "job-2", "job-1", "job-0"]
    assert second.next_token is None


def test_jobs_of_one_moment_are_told_apart(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that were accepted in the same millisecond are each on one page."""
    moment = database.clock.now()
    monkeypatch.setattr(database.clock, "now", lambda: moment)
    for number in range(5):
        jobs.enqueue(database, new_job(f"job-{number}"))

    assert ids(database) == {f"job-{number}" for number in range(5)}


@pytest.mark.parametrize("size", [0, -1, 501])
def test_a_senseless_size_is_refused(database: Database, size: int) -> None:
    """A page holds 1 to 500 jobs."""
    with pytest.raises(UsageError, match="page"):
        listing.page(database, size=size)


@pytest.mark.parametrize(
    "token",
    ["", "x", "é", "bnVsbA", "WzFd", "WyJub3QgYSB0aW1lIiwiYSIsImIiXQ", "W251bGwsImEiLCJiIl0", "=" * 9],
)
def test_a_token_that_is_none_is_refused(database: Database, token: str) -> None:
    """What no page gave isn't read as a place in the list."""
    with pytest.raises(UsageError, match="token"):
        listing.page(database, token=token)


def test_a_token_belongs_to_its_filter(mixed: Database) -> None:
    """A page's token with another filter is refused, since it would leave jobs out."""
    token = listing.page(mixed, Filter(kind="noop"), size=1).next_token
    assert token is not None

    with pytest.raises(UsageError, match="another filter"):
        listing.page(mixed, Filter(kind="export"), size=1, token=token)


@pytest.mark.parametrize("field", ["q", "kind", "session_id", "origin"])
@pytest.mark.parametrize("text", ["a\x00", "\ud800"])
def test_text_that_no_database_holds_is_refused(field: str, text: str) -> None:
    """A filter with a NUL or half a character is refused before a database sees it."""
    with pytest.raises(UsageError):
        replace(listing.EVERYTHING, **{field: text})  # type: ignore[arg-type]  # only fields of text


def test_a_page_shows_jobs_as_they_are_but_for_the_history(mixed: Database) -> None:
    """A job on a page is the resource with an empty history, checkpoint and all else included."""
    shown = {job.job_id: job for job in listing.page(mixed).jobs}

    for job_id, job in shown.items():
        assert job == queries.get(mixed, job_id).model_copy(update={"history": ()})
    assert shown["complete"].checkpoint is not None


def test_the_cursor_is_of_the_same_moment(database: Database) -> None:
    """The page's cursor is the last event that its jobs reflect: what comes after it is newer."""
    started(database)
    look(database)
    page = listing.page(database)
    attempts.end(database, "job", 1, Outcome.PERMANENT)
    look(database)

    later = events.read_after(database, page.event_cursor)

    assert page.jobs[0].status is JobStatus.RUNNING
    assert [event.data["status"] for event in later] == ["dead"]
    assert later[0].data["rev"] == page.jobs[0].rev + 1


def test_the_number_of_queries_does_not_grow(mixed: Database) -> None:
    """A page, and the list of the newest, take as many queries for six jobs as for one."""
    numbers = []
    for size in (1, 6):
        with statements(mixed) as seen:
            assert len(listing.page(mixed, size=size).jobs) == size
            assert len(queries.list_jobs(mixed, limit=size)) == size
        numbers.append(len(seen))

    assert numbers[0] == numbers[1]


def test_the_newest_jobs_come_with_their_histories(mixed: Database) -> None:
    """The list of the newest jobs shows each as it is by itself."""
    assert queries.list_jobs(mixed) == [queries.get(mixed, job.job_id) for job in queries.list_jobs(mixed)]
