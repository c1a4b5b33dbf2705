"""Many callers at once, over each database: one job, one retry, and everybody is told the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from api_world import Api, kill, noop, opened
from autocode.jobs.ledger import audit, jobs, queries, schema
from autocode.jobs.ledger.database import Database
from ledger_world import facts_of, in_threads, new_job, rows

CALLERS = 20


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    """Give an application over each database."""
    with opened(database, tmp_path) as running:
        yield running


def test_one_id_at_once_is_one_job(api: Api) -> None:
    """Of twenty who enqueue one id at once one gets 202 and the others 200, all of them the same job."""
    answers = in_threads(CALLERS, lambda _: api.post("/v1/jobs", noop()))

    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: CALLERS - 1}
    assert {answer.json()["job_id"] for answer in answers} == {"job"}
    assert [answer.headers.get("idempotency-replayed") for answer in answers].count("true") == CALLERS - 1
    assert facts_of(api.db) == ["enqueued"]


def test_one_key_at_once_is_one_job(api: Api) -> None:
    """Of twenty who send one key at once one makes the job, and all are shown it."""
    key = {"Idempotency-Key": '"once"'}

    answers = in_threads(CALLERS, lambda _: api.post("/v1/jobs", noop(None), headers=key))

    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: CALLERS - 1}
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert len(rows(api.db, schema.jobs)) == 1


def test_one_id_for_two_requests_is_one_of_them(api: Api) -> None:
    """Where two payloads fight for an id, the winner is accepted and every other is told what differs."""
    answers = in_threads(CALLERS, lambda number: api.post("/v1/jobs", noop(witness=f"w{number}")))

    assert Counter(answer.status_code for answer in answers) == {202: 1, 422: CALLERS - 1}
    assert {str(answer.json().get("differs")) for answer in answers} == {"None", "['payload.witness']"}


def test_one_retry_of_many_is_heard(api: Api) -> None:
    """Of ten who retry one revision one is heard, nine are told so, and each of them is in the audit."""
    jobs.enqueue(api.db, new_job())
    kill(api.db)
    tag = f'"{queries.get(api.db, "job").rev}"'

    answers = in_threads(
        10, lambda _: api.post("/v1/jobs/job/retry", {"reason": "again"}, headers={"If-Match": tag})
    )

    assert Counter(answer.status_code for answer in answers) == {202: 1, 412: 9}
    outcomes = Counter(row.outcome for row in audit.entries(api.db, target="job"))
    assert outcomes == {"accepted": 1, "refused: revision-moved": 9}
    assert audit.broken_link(api.db) is None
    assert len(rows(api.db, schema.attempts)) == 2
