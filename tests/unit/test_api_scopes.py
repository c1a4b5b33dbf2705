"""Tokens for some sessions: what they may ask for and see, by what the payloads read."""

from __future__ import annotations

from typing import Any

import pytest

from api_world import Api
from autocode.jobs.ledger import access, jobs
from autocode.jobs.ledger.access import Role
from autocode.jobs.operations.export import EXPORT
from ledger_world import deeds, look, new_job

pytest_plugins = ["fixtures_api"]


def token(api: Api, *sessions: str, role: Role = Role.OPERATOR) -> str:
    """Make a token for *sessions*."""
    return access.create_token(api.db, name="guest", role=role, sessions=sessions).text


def reading(job_id: str, sessions: list[str] | None, **members: Any) -> dict[str, Any]:
    """Return a request for a job that reads *sessions*; ``None``: it can't say which."""
    payload = {"witness": "w", "sessions": sessions}
    return {"kind": "scenario-reader", "payload": payload, "job_id": job_id, **members}


@pytest.mark.parametrize(
    ("reads", "session", "status"),
    [
        (["a"], None, 202),
        (["a", "b"], None, 202),
        ([], "a", 202),
        (["b"], "a", 202),
        (["a", "c"], None, 403),
        (["c"], "a", 403),
        (["a"], "c", 403),
        ([], None, 403),
        (None, None, 403),
        (None, "a", 403),
        (["*"], "a", 403),
    ],
)
def test_a_request_is_refused_unless_the_token_has_all_it_reads(
    api: Api, reads: list[str] | None, session: str | None, status: int
) -> None:
    """A payload that reads another session, or nobody knows which, is a 403 that stores no job."""
    guest = token(api, "a", "b")
    before = deeds(api.db)

    answer = api.post("/v1/jobs", reading("job", reads, session_id=session), token=guest)

    assert answer.status_code == status
    if status == 403:
        assert answer.json()["type"] == "not-allowed"
        assert deeds(api.db) == before


def test_an_export_of_a_root_is_not_for_a_scoped_token(api: Api) -> None:
    """An export reads all of a root, so naming a session of one's own doesn't make it allowed."""
    body = {"kind": EXPORT.name, "session_id": "a", "payload": {"sources": [{"root": "codex"}]}}

    answer = api.post("/v1/jobs", body, token=token(api, "a"))

    assert (answer.status_code, answer.json()["type"]) == (403, "not-allowed")
    assert "'export'" in answer.json()["detail"]
    assert "known roots" not in answer.text.lower()


def test_one_rule_holds_everywhere(api: Api) -> None:
    """List, counts, read, preview, retry, cancel and conflict agree on which jobs a token sees."""
    requests = {
        "a": reading("a", ["a"]),
        "ab": reading("ab", ["a", "b"]),
        "a-of-b": reading("a-of-b", ["a"], session_id="b"),
        "abc": reading("abc", ["a", "b", "c"]),
        "c": reading("c", [], session_id="c"),
        "none": reading("none", []),
        "unknown": reading("unknown", None, session_id="a"),
    }
    for body in requests.values():
        assert api.post("/v1/jobs", body).status_code == 202
        look(api.db, body["job_id"])
    seen = {"a": {"a"}, "b": set(), "ab": {"a", "ab", "a-of-b"}, "abc": set(requests) - {"none", "unknown"}}

    for sessions, expected in seen.items():
        guest = token(api, *sessions)
        listed = {job["job_id"] for job in api.get("/v1/jobs", token=guest).json()["jobs"]}
        assert listed == expected, sessions
        assert api.get("/v1/counts", token=guest).json()["queued"] == len(expected)
        for job_id, body in requests.items():
            there = job_id in expected
            why = {"reason": "x"}
            answers = [
                api.get(f"/v1/jobs/{job_id}", token=guest).status_code,
                api.get(f"/v1/jobs/{job_id}/retry", token=guest).status_code,
                api.post(
                    f"/v1/jobs/{job_id}/retry", why, token=guest, headers={"If-Match": '"1"'}
                ).status_code,
            ]
            assert answers == ([200, 200, 409] if there else [404, 404, 404]), (sessions, job_id)
            taken = api.post("/v1/jobs", reading(job_id, list(sessions)), token=guest)
            same = body["payload"]["sessions"] == list(sessions)
            assert taken.status_code == ((200 if same else 422) if there else 409), (sessions, job_id)
            about = api.get("/v1/audit", params={"target": job_id}, token=guest).json()["entries"]
            assert bool(about) is there


def test_a_job_of_before_is_hidden(api: Api) -> None:
    """A job whose kind never said what it reads is seen by tokens for all sessions alone."""
    jobs.enqueue(api.db, new_job(session_id="a"))

    assert api.get("/v1/jobs/job", token=token(api, "a", role=Role.VIEWER)).status_code == 404
    assert api.get("/v1/jobs/job", token=Role.VIEWER).status_code == 200


def test_a_conflict_names_fields_and_never_values(api: Api) -> None:
    """What differs is named; neither payload is quoted, wherever the caller looks."""
    guest = token(api, "a")
    first = reading("job", ["a"])
    first["payload"]["salt"] = "s3cret-one"
    api.post("/v1/jobs", first, token=guest)
    second = reading("job", ["a"])
    second["payload"]["salt"] = "s3cret-two"

    answers = [
        api.post("/v1/jobs", second, token=guest),
        api.get("/v1/jobs/job", token=guest),
        api.get("/v1/jobs", token=guest),
        api.get("/v1/audit", token=guest),
        api.get("/v1/audit"),
    ]

    assert answers[0].json()["differs"] == ["payload.salt"]
    assert [answer.text for answer in answers if "s3cret" in answer.text] == []
