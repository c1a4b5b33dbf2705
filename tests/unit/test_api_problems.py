"""Errors on the wire: one status for each class, a hint, and the same class again in the client."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from api_world import Api, noop
from autocode.jobs import errors, request_errors
from autocode.jobs.api import problems
from autocode.jobs.client.transport import error_of
from autocode.jobs.errors import JobsError

pytest_plugins = ["fixtures_api"]


def family(cls: type[JobsError]) -> Iterator[type[JobsError]]:
    """Yield every class of the tree."""
    yield cls
    for child in cls.__subclasses__():
        if child.__module__ in {errors.__name__, request_errors.__name__}:
            yield from family(child)


# what ends a job, or a process of ours, is never the answer to a request
INSIDE = {
    errors.BackupDamaged,
    errors.BackupIncomplete,
    errors.BundleDamaged,
    errors.JobsError,
    errors.LeadershipLost,
    errors.NoSessions,
    errors.ObjectCorrupt,
    errors.ObjectMissing,
    errors.Permanent,
    errors.RedactionFailed,
    errors.ServiceRunning,
    errors.SourceChanged,
    errors.SourceUnreadable,
    errors.StepTimedOut,
    errors.Transient,
    errors.UnexpectedError,
}
OURS = sorted(set(family(JobsError)), key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", OURS)
def test_each_class_has_its_status(cls: type[JobsError]) -> None:
    """Every error that a request may meet has a status of the table; others are 500."""
    assert (problems.status_of(cls("It happened.")) == 500) is (cls in INSIDE)


@pytest.mark.parametrize("cls", OURS)
def test_a_problem_becomes_the_same_error(cls: type[JobsError]) -> None:
    """The client raises the class that the service raised, with detail, hint and data."""
    error = cls("It happened.", hint="Do that.", fields=[{"pointer": "/a"}], rev=3)

    answer = problems.problem(error)
    received = httpx.Response(
        answer.status_code, content=bytes(answer.body), request=httpx.Request("GET", "http://127.0.0.1/")
    )
    again = error_of(received)

    body = json.loads(bytes(answer.body))
    assert {"type", "title", "status", "detail", "hint", "errors", "rev"} <= set(body)
    assert (type(again), again.detail, again.hint) == (cls, error.detail, error.hint)
    assert (again.data["fields"], again.data["rev"]) == ([{"pointer": "/a"}], 3)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/docs", 404),
        ("DELETE", "/v1/jobs/job", 405),
        ("GET", "/v1/jobs/", 404),
    ],
)
def test_an_unknown_address_is_a_problem(api: Api, method: str, path: str, status: int) -> None:
    """What isn't an address of ours is answered in the same form."""
    answer = api.send(method, path)

    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["hint"]
    assert ("allow" in answer.headers) is (status == 405)


def test_an_unexpected_error_tells_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody expected is a 500 problem without its text."""

    def broken(*_: object) -> None:
        raise RuntimeError("the password is s3cret")

    monkeypatch.setattr("autocode.jobs.api.submitting._accept", broken)

    answer = api.post("/v1/jobs", noop())

    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "s3cret" not in answer.text
    assert api.get("/v1/jobs/job").status_code == 404


def test_half_a_surrogate_goes_through(api: Api) -> None:
    """Text that UTF-8 can't hold is written as JSON escapes."""
    answer = problems.problem(JobsError("half \ud83d"))

    assert json.loads(bytes(answer.body))["detail"] == "half \ud83d"


def test_the_interface_describes_itself(api: Api) -> None:
    """The OpenAPI document names every call, its body and what it answers; it needs no token."""
    document = api.get("/openapi.json", token=None).json()

    views = ("result.zip", "result.html", "result.md", "result/html/{page}", "result/markdown/{page}")
    results = ("result", "result/{member}", *views)
    calls = {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item}
    assert calls == {
        "GET /livez",
        "GET /metrics",
        "POST /v1/bulk/retry",
        "GET /readyz",
        "GET /v1/audit",
        "GET /v1/counts",
        "GET /v1/jobs",
        "GET /v1/jobs/{job_id}",
        "GET /v1/jobs/{job_id}/retry",
        "POST /v1/jobs",
        "POST /v1/jobs/{job_id}/cancel",
        "POST /v1/jobs/{job_id}/retry",
        "POST /v1/logins",
        "HEAD /v1/objects/{digest}",
        "PUT /v1/objects/{digest}",
        "POST /v1/snapshots",
        "GET /v1/snapshots/{digest}",
        "POST /v1/subscriptions",
        "GET /v1/subscriptions",
        "GET /v1/subscriptions/{subscription_id}",
        "DELETE /v1/subscriptions/{subscription_id}",
        "POST /v1/subscriptions/{subscription_id}/enable",
        "POST /v1/subscriptions/{subscription_id}/test",
        "GET /v1/deliveries",
        "GET /v1/deliveries/{delivery_id}",
        "POST /v1/deliveries/{delivery_id}/replay",
    } | {f"{method} /v1/jobs/{{job_id}}/{end}" for method in ("GET", "HEAD") for end in results}
    retry = document["paths"]["/v1/jobs/{job_id}/retry"]["post"]
    assert {"job_id", "If-Match"} == {parameter["name"] for parameter in retry["parameters"]}
    assert {"202", "401", "403", "404", "409", "412", "428"} <= set(retry["responses"])
    body = retry["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/RetryBody"}
    assert "reason" in document["components"]["schemas"]["RetryBody"]["required"]
