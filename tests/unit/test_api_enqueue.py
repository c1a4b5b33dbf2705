"""``POST /v1/jobs``: what is accepted, what is refused, and that a refusal stores nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api_world import NOOP, Api, noop
from autocode.jobs.ledger import access, jobs
from autocode.jobs.ledger.access import Role
from autocode.jobs.operations.export import EXPORT
from autocode.jobs.resource import Job
from ledger_world import deeds

pytest_plugins = ["fixtures_api"]

JSON = {"Content-Type": "application/json"}


def test_a_new_job_is_accepted(api: Api) -> None:
    """A request is answered with 202, where the job is, when to look again, and the resource."""
    answer = api.post("/v1/jobs", noop(session_id="s-1"))

    job = Job.model_validate(answer.json())
    assert (answer.status_code, answer.headers["location"]) == (202, "/v1/jobs/job")
    assert (answer.headers["etag"], answer.headers["retry-after"]) == ('"1"', "1")
    assert "idempotency-replayed" not in answer.headers
    assert (job.job_id, job.kind, job.session_id, job.status, job.rev) == ("job", NOOP, "s-1", "queued", 1)
    assert jobs.payload_of(api.db, "job") == (NOOP, {"witness": "w", "salt": ""})


def test_a_job_without_an_id_gets_one(api: Api) -> None:
    """Two requests without an id are two jobs, whose ids the contract allows."""
    ids = {api.post("/v1/jobs", noop(None)).json()["job_id"] for _ in range(2)}

    assert len(ids) == 2
    assert all(jobs.JOB_ID.fullmatch(job_id) and job_id.startswith(f"{NOOP}-") for job_id in ids)


def test_the_same_request_again_is_the_same_job(api: Api) -> None:
    """The same id with the same payload is answered with 200 and the same resource, and writes nothing."""
    first = api.post("/v1/jobs", noop())
    before = deeds(api.db)

    again = api.post("/v1/jobs", noop())

    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert again.headers["location"] == "/v1/jobs/job"
    assert again.json() == first.json()
    assert deeds(api.db) == before


def test_another_payload_names_what_differs(api: Api) -> None:
    """The same id with another payload is a 422 that names the fields, and changes nothing."""
    api.post("/v1/jobs", noop())
    before = deeds(api.db)

    answer = api.post("/v1/jobs", noop(witness="other"))

    assert answer.status_code == 422
    assert (answer.json()["type"], answer.json()["differs"]) == ("job-conflict", ["payload.witness"])
    assert deeds(api.db) == before


def test_another_session_is_another_request(api: Api) -> None:
    """The same id and payload for another session isn't answered with the first session's job."""
    api.post("/v1/jobs", noop(session_id="s-1"))

    answer = api.post("/v1/jobs", noop(session_id="s-2"))

    assert (answer.status_code, answer.json()["differs"]) == (422, ["session_id"])
    assert "s-1" not in answer.text


@pytest.mark.parametrize("witness", ["w", "other"])
def test_a_job_of_others_is_a_bare_conflict(api: Api, witness: str) -> None:
    """Where the caller may not see the job that has the id, the answer says nothing about it."""
    api.post("/v1/jobs", noop(session_id="s-1"))
    scoped = access.create_token(api.db, name="guest", role=Role.OPERATOR, sessions=["s-2"]).text

    answer = api.post("/v1/jobs", noop(witness=witness, session_id="s-2"), token=scoped)

    assert answer.status_code == 409
    assert set(answer.json()) == {"type", "title", "status", "detail", "hint"}
    assert "s-1" not in answer.text


def test_a_token_for_some_sessions_submits_for_these(api: Api) -> None:
    """A token that is for some sessions can't make a job of another session, or of none."""
    scoped = access.create_token(api.db, name="guest", role=Role.OPERATOR, sessions=["s-2"]).text

    answers = [
        api.post("/v1/jobs", noop(f"job-{session}", session_id=session), token=scoped).status_code
        for session in ("s-1", None, "s-2")
    ]

    assert answers == [403, 403, 202]


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"payload": {}}, ["/kind"]),
        ({"kind": NOOP}, ["/payload"]),
        ({"kind": NOOP, "payload": []}, ["/payload"]),
        ({"kind": "no-such", "payload": {}}, ["/kind"]),
        ({"kind": NOOP, "payload": {}}, ["/payload/witness"]),
        ({"kind": NOOP, "payload": {"witness": 1, "a/b": 2}}, ["/payload/a~1b", "/payload/witness"]),
        (noop("../x"), ["/job_id"]),
        (noop("x" * 129), ["/job_id"]),
        (noop("x\n"), ["/job_id"]),
        (noop(session_id="a\u0000b"), ["/session_id"]),
        (noop(priority=1), ["/priority"]),
        ({"kind": 1, "payload": 2, "job_id": 3}, ["/job_id", "/kind", "/payload"]),
    ],
)
def test_a_bad_request_points_at_each_field(api: Api, body: dict[str, Any], pointers: list[str]) -> None:
    """An unknown kind, a bad payload or an unknown member is a 422 that points at it; nothing is stored."""
    before = deeds(api.db)

    answer = api.post("/v1/jobs", body)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert sorted(error["pointer"] for error in answer.json()["errors"]) == pointers
    assert all(error["detail"] for error in answer.json()["errors"])
    assert deeds(api.db) == before


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"kind": NaN}', 400),
        (b'{"kind": "a", "kind": "b", "payload": {}}', 400),
        (b'{"kind": "\xff"}', 400),
        (b"[" * 100_000, 400),
        (b'{"kind": ' + b"9" * 5_000 + b"}", 400),
        (b'{"kind": "' + b"x" * (1 << 20) + b'"}', 413),
    ],
    ids=["empty", "cut", "list", "nan", "twice", "latin", "deep", "digits", "large"],
)
def test_what_is_no_json_object_is_refused(api: Api, content: bytes, status: int) -> None:
    """A body that isn't a JSON object, or is too large, is refused with a problem; nothing is stored."""
    before = deeds(api.db)

    answer = api.send("POST", "/v1/jobs", content=content, headers=JSON)

    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["hint"]
    assert deeds(api.db) == before


@pytest.mark.parametrize(
    "text",
    ['"a\\u0000b"', '"\\ud800"', "1e999", '{"deep": ["\\u0000"]}'],
    ids=["nul", "surrogate", "huge", "deep"],
)
def test_a_payload_that_nobody_could_store_or_hand_on_is_refused(api: Api, text: str) -> None:
    """NUL, half a surrogate pair and infinity are refused at the door, by their place; nothing is stored."""
    before = deeds(api.db)
    content = f'{{"kind": "{NOOP}", "payload": {{"witness": {text}}}}}'.encode()

    answer = api.send("POST", "/v1/jobs", content=content, headers=JSON)

    assert (answer.status_code, answer.json()["type"]) == (422, "payload-invalid")
    assert answer.json()["errors"][0]["pointer"].startswith("/payload/witness")
    assert deeds(api.db) == before


def test_a_form_is_no_request(api: Api) -> None:
    """Another media type than JSON is refused: a plain form of a foreign page could send it."""
    answer = api.send("POST", "/v1/jobs", data={"kind": NOOP})

    assert (answer.status_code, answer.json()["type"]) == (400, "request-invalid")


@pytest.mark.parametrize(
    ("role", "status"), [(None, 401), (Role.VIEWER, 403), (Role.OPERATOR, 202), (Role.ADMIN, 202)]
)
def test_submitting_needs_an_operator(api: Api, role: Role | None, status: int) -> None:
    """Nobody and a viewer are refused, and store nothing."""
    answer = api.post("/v1/jobs", noop(), token=role)

    assert answer.status_code == status
    assert api.get("/v1/jobs/job").status_code == (200 if status == 202 else 404)


def test_the_same_key_is_the_same_job(api: Api) -> None:
    """A key makes asking again safe without an id, with and without its quotes, and names what differs."""
    key = {"Idempotency-Key": '"8e03978e-40d5"'}
    first = api.post("/v1/jobs", noop(None), headers=key)

    again = api.post("/v1/jobs", noop(None), headers={"Idempotency-Key": "8e03978e-40d5"})
    other = api.post("/v1/jobs", noop(None, witness="other"), headers=key)
    another_id = api.post("/v1/jobs", noop("mine"), headers=key)

    assert (first.status_code, again.status_code, again.json()) == (202, 200, first.json())
    assert (other.status_code, other.json()["differs"]) == (422, ["payload.witness"])
    assert (another_id.status_code, another_id.json()["differs"]) == (422, ["job_id"])


@pytest.mark.parametrize("key", ["", '""', '"', "k" * 256, '"a" "b"', "a, b\u00e9", '"a'])
def test_a_key_that_is_no_string_is_refused(api: Api, key: str) -> None:
    """A malformed key is refused rather than guessed at, and nothing is stored."""
    before = deeds(api.db)

    answer = api.post("/v1/jobs", noop(None), headers={"Idempotency-Key": key.encode("latin-1")})

    assert (answer.status_code, answer.json()["type"]) == (400, "request-invalid")
    assert deeds(api.db) == before


def test_a_root_that_nobody_knows_is_refused_with_those_that_exist(api: Api, tmp_path: Path) -> None:
    """An export of an unknown root is a 422 that names the known ones, and stores nothing."""
    (tmp_path / "sessions").mkdir()
    known = api.home.add_root(tmp_path / "sessions")
    before = deeds(api.db)
    body = {"kind": EXPORT.name, "job_id": "nightly", "payload": {"sources": [{"root": "nowhere"}]}}

    refused = api.post("/v1/jobs", body)
    nothing = deeds(api.db)
    taken = api.post("/v1/jobs", {**body, "payload": {"sources": [{"root": known}]}})

    told = refused.json()
    assert (refused.status_code, told["type"], nothing == before) == (422, "payload-invalid", True)
    assert told["errors"][0]["pointer"] == "/payload/sources"
    assert known in told["hint"]
    assert taken.status_code == 202


def test_a_request_that_was_accepted_is_answered_though_its_root_is_gone(api: Api, tmp_path: Path) -> None:
    """Asking again with the same id is safe, also when the folder isn't known any more."""
    known = api.home.add_root(tmp_path)
    body = {"kind": EXPORT.name, "job_id": "nightly", "payload": {"sources": [{"root": known}]}}
    api.post("/v1/jobs", body)
    (api.home.path / "roots.json").unlink()

    again = api.post("/v1/jobs", body)

    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
