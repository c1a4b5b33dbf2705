"""A guest: an operator whose token is for some sessions, from the upload of a file to the result."""

from __future__ import annotations

from typing import Any

import pytest

from api_world import Api
from autocode.jobs.canonical import digest_of
from autocode.jobs.ledger import access, audit, jobs
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.checkpoints import Produced
from autocode.jobs.operations.export import ExportPayload
from autocode.jobs.operations.export.payload import MANIFEST_TYPE
from autocode.jobs.store import LocalStore
from export_context import Job, StoreContext, line, run
from ledger_world import deeds
from results_world import finish

pytest_plugins = ["fixtures_api"]

DATA = line("hello", sessionId="mine")
OBJECT = f"/v1/objects/{digest_of(DATA)}"
RESULTS = (
    "",
    ".zip",
    ".html",
    ".md",
    "/manifest.json",
    "/html/index.html",
    "/markdown/index.md",
)


def token(api: Api, *sessions: str, role: Role = Role.OPERATOR) -> str:
    """Make a token for *sessions*."""
    return access.create_token(api.db, name="guest", role=role, sessions=sessions).text


def wanting(digest: str, *roots: str, **members: Any) -> dict[str, Any]:
    """Return a request for an export of a snapshot, and of roots."""
    sources = [{"snapshot": digest}, *({"root": root} for root in roots)]
    return {"kind": "export", "job_id": "job", "payload": {"sources": sources}, **members}


def work(api: Api) -> None:
    """Let the job export what its payload says."""
    store = api.system.store
    assert isinstance(store, LocalStore)
    _, payload = jobs.payload_of(api.db, "job")
    context = StoreContext(api.home.path / "no root", store)
    digest = run(Job(context, ExportPayload.model_validate(payload)))
    info = store.stat(digest)
    assert info is not None
    finish(api.system, Produced(digest, info.size, MANIFEST_TYPE), "job")


@pytest.fixture
def guest(api: Api) -> str:
    """Give the token of a guest for the session "mine"."""
    return token(api, "mine")


@pytest.fixture
def snapshot(api: Api, guest: str) -> str:
    """Give a snapshot that the guest uploaded and named for its session."""
    assert api.send("PUT", OBJECT, content=DATA, token=guest).status_code == 201
    body = {"session_id": "mine", "members": [{"path": "one.jsonl", "digest": digest_of(DATA)}]}
    named = api.post("/v1/snapshots", body, token=guest)
    assert named.status_code == 201
    return str(named.json()["digest"])


def test_a_guest_gets_the_export_of_its_session(api: Api, guest: str, snapshot: str) -> None:
    """It uploads, names, asks, and sees its job to the end; it downloads every form of the result."""
    asked = api.post("/v1/jobs", wanting(snapshot, session_id="mine"), token=guest)
    listed = [job["job_id"] for job in api.get("/v1/jobs", token=guest).json()["jobs"]]
    work(api)
    shown = api.get("/v1/jobs/job", token=guest).json()
    answers = [api.get(f"/v1/jobs/job/result{end}", token=guest) for end in RESULTS]

    assert (asked.status_code, listed, shown["status"]) == (202, ["job"], "complete")
    assert [answer.status_code for answer in answers] == [200] * len(RESULTS)
    assert "hello" in answers[RESULTS.index(".md")].text
    assert api.knock("/v1/events?job_id=job", token=guest)[0] == 101


def test_to_another_session_there_is_nothing(api: Api, guest: str, snapshot: str) -> None:
    """A token for another session gets 404 for object, snapshot, job and result, as if there were none."""
    assert api.post("/v1/jobs", wanting(snapshot, session_id="mine"), token=guest).status_code == 202
    work(api)
    stranger = token(api, "other")
    none = digest_of(b"none")

    for path in ("/v1/jobs/job", *(f"/v1/jobs/job/result{end}" for end in RESULTS)):
        theirs = api.get(path, token=stranger)
        unknown = api.get(path.replace("/job/", "/xyz/").replace("/jobs/job", "/jobs/xyz"), token=stranger)
        assert (theirs.status_code, unknown.status_code) == (404, 404), path
        assert theirs.text.replace("'job'", "'xyz'") == unknown.text
    seen = api.get(f"/v1/snapshots/{snapshot}", token=stranger)
    unseen = api.get(f"/v1/snapshots/{none}", token=stranger)
    assert (seen.status_code, seen.text.replace(snapshot, none)) == (404, unseen.text)
    assert api.send("HEAD", OBJECT, token=stranger).status_code == 404
    assert api.knock("/v1/events?job_id=job", token=stranger) == api.knock(
        "/v1/events?job_id=xyz", token=stranger
    )
    assert api.get("/v1/jobs", token=stranger).json()["jobs"] == []
    refused = api.post("/v1/jobs", wanting(snapshot, session_id="other") | {"job_id": "new"}, token=stranger)
    assert (refused.status_code, refused.json()["type"]) == (422, "payload-invalid")


@pytest.mark.parametrize(
    ("session", "roots"), [("mine", ["codex"]), (None, ["codex"]), (None, []), ("other", [])]
)
def test_a_guest_exports_nothing_else(
    api: Api, guest: str, snapshot: str, session: str | None, roots: list[str]
) -> None:
    """With a root beside the snapshot, of no session or another one, it is 403, and nothing is stored."""
    before = deeds(api.db)

    answer = api.post("/v1/jobs", wanting(snapshot, *roots, session_id=session), token=guest)

    assert (answer.status_code, answer.json()["type"]) == (403, "not-allowed")
    assert deeds(api.db) == before


def test_a_viewer_of_the_session_sees_and_sends_nothing(api: Api, guest: str, snapshot: str) -> None:
    """Somebody with a viewer's token for the session downloads the result, and may not upload or ask."""
    friend = token(api, "mine", role=Role.VIEWER)
    assert api.post("/v1/jobs", wanting(snapshot, session_id="mine"), token=guest).status_code == 202
    work(api)

    assert api.get("/v1/jobs/job/result.zip", token=friend).status_code == 200
    assert api.get(f"/v1/snapshots/{snapshot}", token=friend).status_code == 200
    again = wanting(snapshot, session_id="mine") | {"job_id": "again"}
    assert api.post("/v1/jobs", again, token=friend).status_code == 403
    assert api.send("PUT", OBJECT, content=DATA, token=friend).status_code == 403


def test_the_audit_has_the_snapshot_and_not_each_file(api: Api, guest: str, snapshot: str) -> None:
    """Naming is one entry with request, session and number of files; naming it again and uploads are none."""
    body = {"session_id": "mine", "members": [{"path": "one.jsonl", "digest": digest_of(DATA)}]}
    assert api.post("/v1/snapshots", body, token=guest).status_code == 200

    mine = [row for row in audit.entries(api.db) if row.actor.startswith("guest ")]

    assert [(row.action, row.target, row.outcome) for row in mine] == [
        ("snapshot", f"snapshot:{snapshot}", "accepted")
    ]
    assert mine[0].data["after"] == {"session_id": "mine", "files": 1}
    assert mine[0].data["request_id"]
