"""Retry and cancel: who may, when it is too late, and the one entry that each leaves in the audit."""

from __future__ import annotations

from typing import Any

import pytest

from api_world import Api, complete, kill, noop
from autocode.jobs.ledger import access, audit, jobs, queries
from autocode.jobs.ledger.access import Role
from autocode.jobs.resource import Job, RetryPreview
from ledger_world import contents, deeds, look, new_job, started

pytest_plugins = ["fixtures_api"]

WHY = {"reason": "the disk has room again"}


def entries(api: Api) -> list[tuple[str, str, str, str]]:
    """Return what the audit has about the job: actor's name, action, reason and outcome."""
    return [
        (row.actor.partition(" ")[0], row.action, row.reason, row.outcome)
        for row in audit.entries(api.db, target="job")
        if row.action != "enqueue"
    ]


def dead(api: Api) -> str:
    """Make a dead job and return its ETag."""
    jobs.enqueue(api.db, new_job(session_id="s-1"))
    kill(api.db)
    return f'"{queries.get(api.db, "job").rev}"'


def test_a_dead_job_is_retried(api: Api) -> None:
    """An operator who names the revision gets 202; the job goes on, and the audit says why."""
    tag = dead(api)

    answer = api.post(
        "/v1/jobs/job/retry", {**WHY, "from": "start"}, headers={"If-Match": tag}, token=Role.OPERATOR
    )

    assert (answer.status_code, answer.headers["location"]) == (202, "/v1/jobs/job")
    Job.model_validate(answer.json())
    look(api.db)
    assert queries.get(api.db, "job").status == "retrying"
    assert entries(api) == [("operator", "retry", WHY["reason"], "accepted")]


def test_a_preview_changes_nothing(api: Api) -> None:
    """What a retry would reuse and do again can be read by anybody who may see the job."""
    tag = dead(api)
    before = contents(api.db)

    answer = api.get("/v1/jobs/job/retry", token=Role.VIEWER)

    preview = RetryPreview.model_validate(answer.json())
    assert (answer.headers["etag"], f'"{preview.rev}"') == (tag, tag)
    assert (preview.dead, [entry.seq for entry in preview.reused]) == (True, [1])
    assert contents(api.db) == before


@pytest.mark.parametrize(
    ("token", "headers", "status", "kind"),
    [
        (Role.VIEWER, {"If-Match": "TAG"}, 403, "not-allowed"),
        (Role.OPERATOR, {}, 428, "precondition-missing"),
        (Role.OPERATOR, {"If-Match": '"1"'}, 412, "revision-moved"),
        (Role.OPERATOR, {"If-Match": "*"}, 400, "request-invalid"),
        ("scoped", {"If-Match": "TAG"}, 404, "job-not-found"),
    ],
)
def test_a_refused_retry_is_audited_and_changes_nothing(
    api: Api, token: Role | str, headers: dict[str, str], status: int, kind: str
) -> None:
    """Whoever is refused leaves one entry that says so, and the job stays as it is."""
    tag = dead(api)
    if token == "scoped":
        token = access.create_token(api.db, name="guest", role=Role.OPERATOR, sessions=["s-2"]).text
    job = queries.get(api.db, "job")

    answer = api.post(
        "/v1/jobs/job/retry",
        WHY,
        token=token,
        headers={name: value.replace("TAG", tag) for name, value in headers.items()},
    )

    assert (answer.status_code, answer.json()["type"]) == (status, kind)
    assert [outcome for *_, outcome in entries(api)] == [f"refused: {kind}"]
    assert queries.get(api.db, "job") == job


def test_only_a_dead_job_is_retried(api: Api) -> None:
    """A job that isn't dead is a 409, and audited."""
    api.post("/v1/jobs", noop())
    look(api.db)

    answer = api.post("/v1/jobs/job/retry", WHY, headers={"If-Match": '"1"'})

    assert (answer.status_code, answer.json()["type"]) == (409, "job-not-dead")
    assert [outcome for *_, outcome in entries(api)] == ["refused: job-not-dead"]


def test_of_two_who_retry_one_is_told(api: Api) -> None:
    """The second of two who decided on the same revision is told that somebody else was first."""
    headers = {"If-Match": dead(api)}

    answers = [api.post("/v1/jobs/job/retry", WHY, headers=headers).status_code for _ in range(2)]

    assert answers == [202, 412]
    assert [outcome for *_, outcome in entries(api)] == ["accepted", "refused: revision-moved"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reason": " "},
        {"reason": "a\x00b"},
        {**WHY, "from": "middle"},
        {**WHY, "attempts": 0},
        {**WHY, "force": True},
        {"reason": 1},
    ],
)
def test_a_retry_that_makes_no_sense_is_refused(api: Api, body: dict[str, Any]) -> None:
    """Without a reason, or with something that there isn't, nothing is done; the audit says who tried."""
    tag = dead(api)
    before = deeds(api.db)

    answer = api.post("/v1/jobs/job/retry", body, headers={"If-Match": tag})

    assert (answer.status_code, answer.json()["type"]) == (422, "usage")
    assert deeds(api.db) == before
    assert entries(api) == [("admin", "retry", "", "refused: usage")]


def test_a_job_is_called_off(api: Api) -> None:
    """A cancel is accepted with 202, twice; the job is dead once reconcile has looked."""
    api.post("/v1/jobs", noop())

    answers = [api.post("/v1/jobs/job/cancel", WHY, token=Role.OPERATOR).status_code for _ in range(2)]

    look(api.db)
    job = queries.get(api.db, "job")
    assert (answers, job.status, job.reason) == ([202, 202], "dead", "cancelled")
    assert [outcome.partition(":")[0] for *_, outcome in entries(api)] == ["accepted", "accepted"]


def test_it_can_be_too_late_to_cancel(api: Api) -> None:
    """A committed result excludes the cancel: 409, and audited."""
    complete(api.db, started(api.db))

    answer = api.post("/v1/jobs/job/cancel", WHY)

    assert (answer.status_code, answer.json()["type"]) == (409, "job-finished")
    assert [outcome for *_, outcome in entries(api)] == ["refused: job-finished"]


def test_a_viewer_cancels_nothing(api: Api) -> None:
    """A viewer is refused, and the refusal audited; nobody at all isn't, since nobody is known."""
    api.post("/v1/jobs", noop())

    viewer = api.post("/v1/jobs/job/cancel", WHY, token=Role.VIEWER)
    nobody = api.post("/v1/jobs/job/cancel", WHY, token=None)

    assert (viewer.status_code, nobody.status_code) == (403, 401)
    assert entries(api) == [("viewer", "cancel", WHY["reason"], "refused: not-allowed")]


@pytest.mark.parametrize("action", ["retry", "cancel"])
def test_an_unknown_job_is_not_acted_on(api: Api, action: str) -> None:
    """What isn't there can't be acted on; that somebody tried is in the audit, as with a job of others."""
    before = deeds(api.db)

    answer = api.post(f"/v1/jobs/none/{action}", WHY, headers={"If-Match": '"1"'})

    assert (answer.status_code, answer.json()["error"]) == (404, "job not found")
    assert deeds(api.db) == before
    (entry,) = audit.entries(api.db, target="none")
    assert (entry.action, entry.reason, entry.outcome) == (action, WHY["reason"], "refused: job-not-found")
