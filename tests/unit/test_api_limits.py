"""Limits: on a clock of the test, per token and per address, in memory of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import api_world
from api_world import BASE, Api, noop
from autocode.jobs.api.app import create_app
from autocode.jobs.api.limits import Buckets
from autocode.jobs.api.settings import Settings
from autocode.jobs.ledger import access, audit
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database

pytest_plugins = ["fixtures_api"]

FORM = {"Content-Type": "application/x-www-form-urlencoded", "Origin": BASE}


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Give the clock of the limits."""
    return Clock()


@pytest.fixture
def limited(
    sqlite_ledger: Database, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Api]:
    """Give an application in which a token may ask for three changes at once, and one more each 2 s."""
    monkeypatch.setattr(
        api_world, "create_app", lambda system, settings: create_app(system, settings, monotonic=clock)
    )
    with Api(sqlite_ledger, tmp_path, Settings(request_rate=0.5, request_burst=3)) as running:
        yield running


def test_a_bucket_gives_a_burst_and_then_the_rate(clock: Clock) -> None:
    """As many at once as it holds, then one whenever it has filled up by one, and no more than it holds."""
    bucket = Buckets(rate=2.0, burst=3, monotonic=clock)

    first = [bucket.take("a") for _ in range(4)]
    clock.now += 0.5
    second = [bucket.take("a") for _ in range(2)]
    clock.now += 1000.0
    third = [bucket.take("a") for _ in range(4)]

    assert first == [0.0, 0.0, 0.0, 0.5]
    assert second == [0.0, 0.5]
    assert third == [0.0, 0.0, 0.0, 0.5]
    assert bucket.take("b") == 0.0


def test_no_rate_is_no_limit(clock: Clock) -> None:
    """A rate of 0 lets everything through, and remembers nobody."""
    bucket = Buckets(rate=0.0, burst=1, monotonic=clock)

    assert {bucket.take(key) for key in range(1000)} == {0.0}
    assert len(bucket) == 0


def test_memory_is_bounded(clock: Clock) -> None:
    """Of more callers than are remembered the one that was quiet for longest is forgotten."""
    bucket = Buckets(rate=1.0, burst=1, monotonic=clock, most=3)

    for key in ("a", "b", "c", "d"):
        bucket.take(key)

    assert len(bucket) == 3
    assert (bucket.take("a"), bucket.take("d")) == (0.0, 1.0)


def test_a_token_that_asks_too_often_is_told_when_to_come_back(limited: Api, clock: Clock) -> None:
    """429 with Retry-After and a hint; nothing is stored; another token goes on; later it is let in again."""
    answers = [limited.post("/v1/jobs", noop(f"job-{n}")) for n in range(5)]
    other = limited.post("/v1/jobs", noop("other"), token=Role.OPERATOR)
    read = limited.get("/v1/jobs/job-0")
    clock.now += 2.0
    again = limited.post("/v1/jobs", noop("job-3"))

    assert [answer.status_code for answer in answers] == [202, 202, 202, 429, 429]
    assert (answers[3].json()["type"], answers[3].headers["retry-after"]) == ("too-many-requests", "2")
    assert "Retry-After" in answers[3].json()["hint"]
    assert (other.status_code, read.status_code, again.status_code) == (202, 200, 202)
    assert limited.get("/v1/jobs/job-4").status_code == 404


def test_repeated_refusals_are_counted_and_not_listed(limited: Api, clock: Clock) -> None:
    """The audit has the first refusal, and a minute later the next one with the number of those between."""
    for _ in range(3):
        limited.post("/v1/jobs", noop())
    for _ in range(10):
        limited.post("/v1/jobs", noop())
    clock.now += 61.0
    for _ in range(4):
        limited.post("/v1/jobs", noop())

    found = [row for row in audit.entries(limited.db) if row.outcome == "refused: too-many-requests"]
    assert [row.data["unsaid"] for row in found] == [0, 9]
    assert limited.service.denied["too-many-requests"] == 11


def test_wrong_tokens_from_one_address_are_limited(limited: Api, clock: Clock) -> None:
    """After sixty wrong ones the next is a 429, and so is one that was never seen; known ones go on."""
    fresh = access.create_token(limited.db, name="new", role=Role.VIEWER).text
    assert limited.get("/v1/jobs").status_code == 200

    wrong = [limited.get("/v1/jobs", token=f"wrong-{n}").status_code for n in range(61)]
    by_page = limited.get("/", token="wrong")
    refused = limited.get("/v1/jobs", token=fresh).status_code
    known = limited.get("/v1/jobs").status_code
    clock.now += 1.0
    later = limited.get("/v1/jobs", token=fresh).status_code

    assert wrong == [401] * 60 + [429]
    assert (by_page.status_code, refused, known, later) == (429, 429, 200, 200)


def test_a_token_that_was_good_and_was_revoked_is_like_any_other(limited: Api) -> None:
    """Being known doesn't help a token that doesn't work any more."""
    made = access.create_token(limited.db, name="old", role=Role.VIEWER)
    limited.get("/v1/jobs", token=made.text)
    access.revoke(limited.db, made.principal.token_id)

    answers = [limited.get("/v1/jobs", token=made.text).status_code for _ in range(61)]

    assert answers == [401] * 60 + [429]


def test_logins_are_limited(limited: Api, clock: Clock) -> None:
    """After twenty tries from one address the next is told to wait, also with a code that is good."""
    code = access.create_login(limited.db)

    tries = [
        limited.send("POST", "/login", token=None, content=f"code={n}", headers=FORM).status_code
        for n in range(20)
    ]
    early = limited.send("POST", "/login", token=None, content=f"code={code}", headers=FORM)
    clock.now += 2.0
    later = limited.send("POST", "/login", token=None, content=f"code={code}", headers=FORM)

    assert tries == [401] * 20
    assert (early.status_code, early.headers["retry-after"], later.status_code) == (429, "2", 303)
    assert "Retry-After" in early.text
