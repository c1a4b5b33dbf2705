"""Retries of many jobs: what a dry run shows is what is done, and each job is decided by itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from api_world import Api, kill, noop
from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger import access, attempts, audit, bulk, effects, results, retries
from autocode.jobs.ledger.access import Role
from autocode.jobs.projection import Outcome
from autocode.jobs.resource import BulkRetry
from ledger_world import begin, look, problem

pytest_plugins = ["fixtures_api"]

PATH = "/v1/bulk/retry"
WHY = "the disk is free again"


def dead(api: Api, *job_ids: str, **members: Any) -> None:
    """Let these jobs have died of a permanent error."""
    for job_id in job_ids:
        assert api.post("/v1/jobs", noop(job_id, **members)).status_code == 202
        look(api.db, job_id)
        kill(api.db, job_id)


def outcomes(answer: Any) -> dict[str, str]:
    """Return what came of each job, in the order of the answer."""
    return {each["job_id"]: each["outcome"] for each in answer.json()["jobs"]}


def status(api: Api, job_id: str) -> str:
    """Return a job's state, once reconcile has looked at it."""
    look(api.db, job_id)
    found: str = api.get(f"/v1/jobs/{job_id}").json()["status"]
    return found


def test_what_a_dry_run_shows_is_what_is_retried(api: Api) -> None:
    """A dry run changes nothing; its jobs, sent back, are retried at the revisions that it showed."""
    dead(api, "one", "two")
    shown = api.post(PATH, {"filter": {}, "dry_run": True})
    assert shown.status_code == 200
    assert outcomes(shown) == {"two": "would-retry", "one": "would-retry"}
    assert status(api, "one") == "dead"
    done = api.post(PATH, {"jobs": shown.json()["jobs"], "reason": WHY})
    assert done.status_code == 202, done.text
    assert outcomes(done) == {"two": "retried", "one": "retried"}
    assert done.json()["accepted"] == done.json()["meant"] == 2
    assert {status(api, each) for each in ("one", "two")} == {"retrying"}


def test_a_job_that_moved_since_is_refused_and_the_rest_is_retried(api: Api) -> None:
    """Somebody else who was first with one job costs the others nothing."""
    dead(api, "one", "two")
    shown = api.post(PATH, {"filter": {}, "dry_run": True}).json()["jobs"]
    retries.request_retry(api.db, "one", actor="somebody", reason="else")
    look(api.db, "one")
    done = api.post(PATH, {"jobs": shown, "reason": WHY})
    assert outcomes(done) == {"two": "retried", "one": "refused"}
    assert {each["job_id"]: each["error"] and each["error"]["type"] for each in done.json()["jobs"]} == {
        "two": None,
        "one": "revision-moved",
    }


def test_the_same_request_again_retries_nothing_twice(api: Api) -> None:
    """Who didn't hear the answer may send the revisions again."""
    dead(api, "one", "two")
    shown = api.post(PATH, {"filter": {}, "dry_run": True}).json()["jobs"]
    first = api.post(PATH, {"jobs": shown, "reason": WHY})
    again = api.post(PATH, {"jobs": shown, "reason": WHY})
    assert set(outcomes(first).values()) == {"retried"}
    assert set(outcomes(again).values()) == {"refused"}
    requested = [each for each in audit.entries(api.db) if each.action == "retry"]
    assert [each.outcome for each in requested].count("accepted") == 2


def test_two_at_once_retry_each_job_once(api: Api) -> None:
    """Of two operators with one dry run each job is one's."""
    dead(api, *(f"job-{number}" for number in range(6)))
    shown = api.post(PATH, {"filter": {}, "dry_run": True}).json()["jobs"]
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(api.post, PATH, {"jobs": shown, "reason": WHY}) for _ in range(2)]
    told = [outcomes(each.result()) for each in both]
    for number in range(6):
        assert sorted(each[f"job-{number}"] for each in told) == ["refused", "retried"]


def test_a_filter_means_dead_letters_alone(api: Api) -> None:
    """Jobs that live, and those that somebody called off, aren't meant unless they are asked for."""
    dead(api, "dead", session_id="mine")
    for job_id in ("queued", "cancelled"):
        api.post("/v1/jobs", noop(job_id))
        look(api.db, job_id)
    results.request_cancel(api.db, "cancelled", actor="somebody", reason="no need")
    look(api.db, "cancelled")

    def meant(**chosen: Any) -> set[str]:
        return set(outcomes(api.post(PATH, {"filter": chosen, "dry_run": True})))

    assert meant() == {"dead"}
    assert meant(reason=["cancelled"]) == {"cancelled"}
    assert meant(session_id="mine") == {"dead"}
    assert meant(session_id="other") == set()
    assert meant(kind="unheard-of") == set()


def test_jobs_that_are_named_are_answered_in_their_order(api: Api) -> None:
    """One that isn't there, or isn't dead, says so and changes nothing."""
    dead(api, "dead")
    api.post("/v1/jobs", noop("queued"))
    look(api.db, "queued")
    names = ["unheard-of", "dead", "queued"]
    for body in ({"dry_run": True}, {"reason": WHY}):
        found = api.post(PATH, {"ids": names, **body}).json()["jobs"]
        assert [each["job_id"] for each in found] == names
        refused = [None if each["error"] is None else each["error"]["type"] for each in found]
        assert refused == ["job-not-found", None, "job-not-dead"]


def test_what_a_token_may_not_see_isnt_there(api: Api) -> None:
    """A token for some sessions retries its own jobs; of the others not even their being is told."""
    dead(api, "mine", session_id="mine")
    dead(api, "other", session_id="other")
    made = access.create_token(api.db, name="bound", role=Role.OPERATOR, sessions=["mine"])
    dry = api.post(PATH, {"filter": {}, "dry_run": True}, token=made.text)
    shown = api.post(PATH, {"ids": ["mine", "other"], "reason": WHY}, token=made.text)
    assert outcomes(dry) == {"mine": "would-retry"}
    assert outcomes(shown) == {"mine": "retried", "other": "refused"}
    assert shown.json()["jobs"][1]["error"]["type"] == "job-not-found"
    assert shown.json()["jobs"][1]["rev"] is None
    assert status(api, "other") == "dead"
    assert api.post(PATH, {"ids": ["mine"], "reason": WHY}, token=Role.VIEWER).status_code == 403


def test_effects_that_may_repeat_are_shown(api: Api) -> None:
    """An effect that was begun and not recorded as done is named before anybody retries its job."""
    api.post("/v1/jobs", noop("job"))
    look(api.db, "job")
    attempt = begin(api.db, "job")
    effects.intend(api.db, attempt, "mail:job")
    attempts.end(api.db, "job", 1, Outcome.PERMANENT, error=problem())
    look(api.db, "job")
    (shown,) = api.post(PATH, {"filter": {}, "dry_run": True}).json()["jobs"]
    assert shown["effects_open"] == ["mail:job"]


def test_a_ledger_that_goes_away_in_between_is_told_honestly(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was retried is retried, the one at hand isn't known, and the rest wasn't tried."""
    dead(api, "one", "two", "three")
    original = retries.request_retry

    def failing(db: Any, job_id: str, **asked: Any) -> None:
        if job_id == "two":
            raise LedgerUnavailable("The database is away.")
        original(db, job_id, **asked)

    monkeypatch.setattr(retries, "request_retry", failing)
    answer = api.post(PATH, {"ids": ["one", "two", "three"], "reason": WHY})
    assert [each.action for each in audit.entries(api.db)][-2:] == ["bulk.retry", "retry"]
    assert outcomes(answer) == {"one": "retried", "two": "unknown", "three": "not-tried"}
    monkeypatch.undo()
    again = api.post(PATH, {"jobs": answer.json()["jobs"], "reason": WHY})
    assert outcomes(again) == {"one": "refused", "two": "retried", "three": "retried"}


def test_a_ledger_that_is_away_from_the_start_is_a_refusal(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing was decided, nothing is reported: the whole request failed."""
    dead(api, "one")

    def failing(*_: Any, **__: Any) -> None:
        raise LedgerUnavailable("The database is away.")

    monkeypatch.setattr(retries, "request_retry", failing)
    assert api.post(PATH, {"ids": ["one"], "reason": WHY}).status_code == 503


@pytest.mark.parametrize(
    "body",
    [
        {"reason": WHY},
        {"reason": WHY, "ids": ["a"], "filter": {}},
        {"ids": ["a"]},
        {"ids": ["a", "a"], "reason": WHY},
        {"ids": ["a"] * 501, "reason": WHY},
        {"filter": {"status": ["complete"]}, "reason": WHY},
        {"jobs": [{"job_id": "a"}], "reason": WHY},
        {"ids": ["not an id"], "reason": WHY},
    ],
)
def test_a_request_that_isnt_clear_is_refused(api: Api, body: dict[str, Any]) -> None:
    """Nothing is guessed, and nothing is changed."""
    assert api.post(PATH, body).status_code == 422


def test_a_filter_over_too_many_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody retries part of what was asked for; the refusal says how many there are."""
    dead(api, "one", "two", "three")
    monkeypatch.setattr(bulk, "MOST_JOBS", 2)
    answer = api.post(PATH, {"filter": {}, "reason": WHY})
    assert answer.status_code == 422
    assert "3 dead letters" in answer.json()["detail"]
    assert status(api, "one") == "dead"


def test_the_audit_has_each_job_and_the_request(api: Api) -> None:
    """They share the request's id, and the request's entry counts what came of it."""
    dead(api, "one", "two")
    answer = api.post(PATH, {"ids": ["one", "two", "gone"], "reason": WHY}, headers={"X-Request-Id": "r-1"})
    assert answer.status_code == 202
    found = [each for each in audit.entries(api.db) if each.data.get("request_id") == "r-1"]
    assert [(each.action, each.target, each.reason) for each in found] == [
        ("bulk.retry", "jobs", WHY),
        ("retry", "one", WHY),
        ("retry", "two", WHY),
    ]
    assert found[0].data["after"] == {"meant": 3}


def test_a_dry_run_knows_what_a_retry_would_be_told(api: Api) -> None:
    """A job that moved since it was seen, or that is about to, is refused by both in the same words."""
    dead(api, "moved", "moving")
    shown = api.post(PATH, {"filter": {}, "dry_run": True}).json()["jobs"]
    retries.request_retry(api.db, "moved", actor="somebody", reason="else")
    look(api.db, "moved")
    retries.request_retry(api.db, "moving", actor="somebody", reason="nobody was told yet")

    answers = [
        api.post(PATH, {"jobs": shown, **body}).json() for body in ({"dry_run": True}, {"reason": WHY})
    ]

    for answer in answers:
        assert {each["error"]["type"] for each in answer["jobs"]} == {"revision-moved"}


@pytest.mark.parametrize("asked", [{"dry_run": True}, {"reason": WHY}])
def test_what_an_answer_says_was_refused_isnt_retried_by_sending_it_back(
    api: Api, asked: dict[str, Any]
) -> None:
    """A job that died anew since it was seen stays refused, until somebody looks at it anew."""
    dead(api, "one")
    shown = api.post(PATH, {"filter": {}, "dry_run": True}).json()["jobs"]
    retries.request_retry(api.db, "one", actor="somebody", reason="else")
    look(api.db, "one")
    begin(api.db, "one", 2)
    attempts.end(api.db, "one", 2, Outcome.PERMANENT, error=problem())
    look(api.db, "one")

    refused = api.post(PATH, {"jobs": shown, **asked})
    again = api.post(PATH, {"jobs": refused.json()["jobs"], "reason": WHY})

    assert outcomes(refused) == outcomes(again) == {"one": "refused"}
    assert status(api, "one") == "dead"


def test_the_client_retries_what_it_looked_at(api: Api) -> None:
    """A dry run's answer is what the next call takes."""
    dead(api, "one", "two")
    with api.client() as client:
        shown = client.retry_many(chosen={"kind": noop()["kind"]}, dry_run=True)
        done = client.retry_many(seen=shown, reason=WHY)
    assert isinstance(done, BulkRetry)
    assert (shown.accepted, done.accepted, done.dry_run) == (2, 2, False)
