"""Reading jobs: one, many, counted, and held until something moves."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from api_world import Api, complete, kill, opened
from autocode.jobs.api.settings import Settings
from autocode.jobs.ledger import access, attempts, jobs, queries
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import JobStatus
from autocode.jobs.projection import Outcome
from autocode.jobs.resource import Counts, Job, JobPage
from ledger_world import begin, commit, look, new_job

pytest_plugins = ["fixtures_api"]


def enqueue(api: Api, *job_ids: str, **changes: Any) -> None:
    """Accept jobs as another process would."""
    for job_id in job_ids:
        jobs.enqueue(api.db, new_job(job_id, **changes))


def test_a_job_is_shown_as_the_ledger_has_it(api: Api) -> None:
    """The resource is the ledger's own, field for field; the revision is its ETag."""
    enqueue(api, "job", session_id="s-1")
    commit(api.db, begin(api.db), "text")
    look(api.db)

    answer = api.get("/v1/jobs/job", token=Role.VIEWER)

    assert Job.model_validate(answer.json()) == queries.get(api.db, "job")
    assert len(answer.json()["history"]) == 1
    assert answer.headers["etag"] == f'"{answer.json()["rev"]}"'
    assert answer.headers["retry-after"] == "2"


@pytest.mark.parametrize("job_id", ["none", "a%00b", "%F0%9F%98%80", "x" * 200, "a'b"])
def test_an_unknown_job_is_a_problem(api: Api, job_id: str) -> None:
    """No job, and what could be no job's id, is a 404 problem with the words of the contract in it."""
    answer = api.get(f"/v1/jobs/{job_id}")

    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.json()["error"] == "job not found"
    assert answer.json()["type"] == "job-not-found"


@pytest.mark.parametrize(
    ("known", "status"),
    [('"1"', 304), ('W/"1"', 304), ('"0", "1"', 304), ("*", 304), ('"2"', 200), ("1", 200)],
)
def test_an_unchanged_job_is_not_sent_again(api: Api, known: str, status: int) -> None:
    """Whoever has the revision already gets 304 without a body."""
    enqueue(api, "job")

    answer = api.get("/v1/jobs/job", headers={"If-None-Match": known})

    assert (answer.status_code, answer.headers["etag"]) == (status, '"1"')
    assert bool(answer.content) is (status == 200)


def test_a_finished_job_says_nothing_of_looking_again(api: Api) -> None:
    """Complete and dead jobs have no Retry-After."""
    enqueue(api, "good", "bad")
    complete(api.db, begin(api.db, "good"))
    kill(api.db, "bad")

    answers = [api.get(f"/v1/jobs/{job_id}") for job_id in ("good", "bad")]

    assert [answer.json()["status"] for answer in answers] == ["complete", "dead"]
    assert [answer.headers.get("retry-after") for answer in answers] == [None, None]


def test_the_run_is_linked_where_the_ui_is_known(sqlite_ledger: Database, tmp_path: Path) -> None:
    """The link leads to the run of the attempt that the resource tells of, in the resource and in lists."""
    with opened(sqlite_ledger, tmp_path, Settings(prefect_ui="http://127.0.0.1:4200")) as api:
        enqueue(api, "job", "waiting")
        begin(api.db)
        before = api.get("/v1/jobs/job").json()
        look(api.db)

        after = api.get("/v1/jobs/job").json()
        listed = {job["job_id"]: job for job in api.get("/v1/jobs").json()["jobs"]}

    link = "http://127.0.0.1:4200/runs/flow-run/job-run-1"
    assert (before["links"]["prefect"], before["rev"]) == (None, 1)
    assert (after["links"]["prefect"], after["attempts"]) == (link, 1)
    assert (listed["job"]["links"]["prefect"], listed["waiting"]["links"]["prefect"]) == (link, None)


async def _held(api: Api, path: str, headers: dict[str, str], change: Any) -> tuple[httpx.Response, float]:
    """Send a request, change something once it is held, and return the answer and how long it took."""
    began = time.monotonic()
    answer = asyncio.create_task(api.start("GET", path, headers=headers))
    async with asyncio.timeout(10):
        while not api.service.watch.waiting:  # noqa: ASYNC110 - the product needs no event for it
            await asyncio.sleep(0.01)
    await asyncio.to_thread(change)
    return await answer, time.monotonic() - began


def test_waiting_ends_when_the_job_moves(api: Api) -> None:
    """With an ETag the answer is held until the job is another, and no longer."""
    enqueue(api, "job", "other")

    def change() -> None:
        begin(api.db)
        look(api.db)

    headers = {"Prefer": "respond-async, wait=20", "If-None-Match": '"1"'}
    answer, seconds = api.run(_held(api, "/v1/jobs/job", headers, change))

    assert (answer.status_code, answer.json()["status"]) == (200, "running")
    assert answer.headers["preference-applied"] == "wait=20"
    assert seconds < 10


def test_waiting_without_an_etag_is_for_the_end(api: Api) -> None:
    """Without an ETag the answer is held over other changes until the job is complete or dead."""
    enqueue(api, "job")

    def change() -> None:
        begin(api.db)
        look(api.db)
        attempts.end(api.db, "job", 1, Outcome.PERMANENT)
        look(api.db)

    answer, _ = api.run(_held(api, "/v1/jobs/job", {"Prefer": "wait=20"}, change))

    assert answer.json()["status"] == "dead"


def test_waiting_has_an_end(api: Api) -> None:
    """A job that doesn't move is answered when the time is over."""
    enqueue(api, "job")

    answers = [
        api.get("/v1/jobs/job", headers={"Prefer": "wait=1", **more}).status_code
        for more in ({}, {"If-None-Match": '"1"'})
    ]

    assert answers == [200, 304]


def test_nobody_waits_for_what_is_over(api: Api) -> None:
    """A dead job is answered at once, and so is a request while the process is about to end."""
    enqueue(api, "dead", "job")
    kill(api.db, "dead")
    began = time.monotonic()

    api.get("/v1/jobs/dead", headers={"Prefer": "wait=20"})
    api.service.watch.close()
    api.get("/v1/jobs/job", headers={"Prefer": "wait=20"})

    assert time.monotonic() - began < 10


def test_too_many_who_wait_are_answered_at_once(sqlite_ledger: Database, tmp_path: Path) -> None:
    """Beyond the limit nobody is held."""
    with opened(sqlite_ledger, tmp_path, Settings(waiters=0)) as api:
        enqueue(api, "job")
        began = time.monotonic()

        answer = api.get("/v1/jobs/job", headers={"Prefer": "wait=20"})

    assert answer.status_code == 200
    assert time.monotonic() - began < 10


def test_a_list_goes_page_by_page(api: Api) -> None:
    """Pages are newest first, with a token that goes on where the last one ended."""
    enqueue(api, *(f"job-{number}" for number in range(5)))

    pages = [JobPage.model_validate(api.get("/v1/jobs?page_size=2").json())]
    while pages[-1].next_page_token is not None:
        query = {"page_size": 2, "page_token": pages[-1].next_page_token}
        pages.append(JobPage.model_validate(api.get("/v1/jobs", params=query).json()))

    assert [len(page.jobs) for page in pages] == [2, 2, 1]
    assert sorted(job.job_id for page in pages for job in page.jobs) == [
        f"job-{number}" for number in range(5)
    ]
    assert pages[0].event_cursor.endswith(":0")


def test_list_and_counts_have_one_filter(api: Api) -> None:
    """Whatever the filter, the counts are those of the list."""
    enqueue(api, "a", "b", session_id="s-1")
    enqueue(api, "c", session_id="s-2", origin="api")
    kill(api.db, "b")

    for query in (
        "",
        "status=dead",
        "status=dead&status=queued",
        "session_id=s-1",
        "q=c",
        "origin=api",
        "kind=x",
        "reason=permanent",
        "reason=cancelled",
    ):
        listed = JobPage.model_validate(api.get(f"/v1/jobs?{query}").json()).jobs
        counts = Counts.model_validate(api.get(f"/v1/counts?{query}").json())
        told = {status: getattr(counts, status.value) for status in JobStatus}
        assert told == {status: sum(job.status is status for job in listed) for status in JobStatus}
        assert sum(counts.dead_by_reason.values()) == counts.dead


def test_a_token_for_some_sessions_lists_these(api: Api) -> None:
    """Jobs of other sessions are neither listed nor counted."""
    enqueue(api, "mine", session_id="s-1", reads=frozenset())
    enqueue(api, "theirs", session_id="s-2", reads=frozenset())
    enqueue(api, "nobodys")
    scoped = access.create_token(api.db, name="guest", role=Role.VIEWER, sessions=["s-1"]).text

    listed = api.get("/v1/jobs", token=scoped).json()["jobs"]
    theirs = api.get("/v1/jobs?session_id=s-2", token=scoped).json()["jobs"]

    assert ([job["job_id"] for job in listed], theirs) == (["mine"], [])
    assert api.get("/v1/counts", token=scoped).json()["queued"] == 1


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("staus=dead", "staus"),
        ("status=done", "status"),
        ("page_size=0", "page_size"),
        ("page_size=many", "page_size"),
        ("reason=tired", "reason"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(api: Api, query: str, parameter: str) -> None:
    """A misspelt parameter isn't ignored, since the answer would be to another question."""
    answer = api.get(f"/v1/jobs?{query}")

    assert answer.status_code == 422
    assert parameter in answer.json()["detail"]
    assert answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize("query", ["page_token=x", "q=%00", "kind=a%00", "session_id=%00"])
def test_a_query_that_no_database_takes_is_refused(api: Api, query: str) -> None:
    """A token that isn't one, and text that isn't text, are problems and not failures."""
    answer = api.get(f"/v1/jobs?{query}")

    assert (answer.status_code, answer.json()["type"]) == (422, "usage")


def test_a_large_page_is_cut_to_the_largest(api: Api) -> None:
    """More jobs a page than there may be are as many as there may be."""
    enqueue(api, "job")

    assert api.get("/v1/jobs?page_size=1000000").status_code == 200
