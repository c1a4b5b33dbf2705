"""Uploads and snapshots: verified while they come, kept for who sent them, and exported like a folder."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from api_world import Api, opened
from autocode.jobs import crash
from autocode.jobs.api.settings import Settings
from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.ledger import access, portable, schema, uploads
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database
from autocode.jobs.store import LocalStore
from export_context import Job, StoreContext, job_over, line, run
from ledger_world import contents, rows

pytest_plugins = ["fixtures_api"]

DATA = line("hello") * 3
DIGEST = digest_of(DATA)
OTHER = digest_of(b"other")


@pytest.fixture(autouse=True)
def _disarmed() -> Any:
    yield
    crash.disarm()


def put(api: Api, data: bytes = DATA, digest: str | None = None, **options: Any) -> httpx.Response:
    """Upload *data*."""
    return api.send("PUT", f"/v1/objects/{digest or digest_of(data)}", content=data, **options)


def name(api: Api, files: dict[str, bytes], **options: Any) -> httpx.Response:
    """Name a snapshot of *files*."""
    members = [{"path": path, "digest": digest_of(data)} for path, data in files.items()]
    session = options.pop("session_id", None)
    body = {"members": members} | ({} if session is None else {"session_id": session})
    return api.post("/v1/snapshots", body, **options)


def snapshot(api: Api, files: dict[str, bytes], **options: Any) -> str:
    """Upload *files* and return the digest of their snapshot."""
    token = options.get("token", Role.ADMIN)
    for data in files.values():
        assert put(api, data, token=token).status_code in {200, 201}
    answer = name(api, files, **options)
    assert answer.status_code in {200, 201}, answer.text
    return str(answer.json()["digest"])


def scoped(api: Api, *sessions: str, role: Role = Role.OPERATOR) -> str:
    """Return a token for some sessions."""
    return access.create_token(api.db, name="guest", role=role, sessions=sessions).text


def stored(api: Api) -> list[str]:
    """Return what is in the store, half-written objects included."""
    store = api.system.store
    assert isinstance(store, LocalStore)
    return [*store.list(), *(path.name for path in store.root.rglob("*.tmp"))]


def holders(api: Api) -> list[tuple[str, str]]:
    """Return every reference."""
    return [(row.digest, row.holder.partition(":")[0]) for row in rows(api.db, schema.references)]


async def settled(api: Api) -> None:
    """Wait until the threads have done what was left to them for later."""
    for _ in range(16):
        await api.service.files(lambda: None)


def test_an_upload_is_kept(api: Api) -> None:
    """Bytes that match their digest are in the store, durable, and held by who sent them."""
    first, again = put(api), put(api)

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == {"digest": DIGEST, "size": len(DATA)}
    assert first.headers["location"] == f"/v1/objects/{DIGEST}"
    assert stored(api) == [DIGEST]
    assert holders(api) == [(DIGEST, "upload")]


def test_other_bytes_are_refused(api: Api) -> None:
    """Bytes of another digest are 422, and nothing stays of them."""
    before = contents(api.db)

    answer = put(api, DATA, OTHER)
    api.run(settled(api))

    assert (answer.status_code, answer.json()["type"]) == (422, "digest-mismatch")
    assert answer.json()["digest"] == DIGEST
    assert stored(api) == []
    assert contents(api.db) == before


def test_what_others_have_isnt_told(api: Api) -> None:
    """Who knows a digest alone gets neither the object nor a sign of it; who has the bytes is told 201."""
    put(api)
    guest = scoped(api, "s-1")

    known = api.send("HEAD", f"/v1/objects/{DIGEST}", token=guest)
    unknown = api.send("HEAD", f"/v1/objects/{OTHER}", token=guest)
    refused = [
        name(api, {"a": DATA}, token=guest, session_id="s-1"),
        name(api, {"a": b"other"}, token=guest, session_id="s-1"),
    ]
    lied = put(api, b"", DIGEST, token=guest)
    sent = put(api, token=guest)

    assert (known.status_code, unknown.status_code) == (404, 404)
    assert {answer.status_code for answer in refused} == {422}
    assert refused[0].text == refused[1].text
    assert lied.status_code == 422
    assert sent.status_code == 201
    assert api.send("HEAD", f"/v1/objects/{DIGEST}", token=guest).status_code == 200


@pytest.mark.parametrize("digest", ["nonsense", "sha256:abc", f"sha256:{'A' * 64}", "sha512:" + "0" * 64])
def test_what_is_no_digest(api: Api, digest: str) -> None:
    """An address that is no digest is refused before a byte is read."""
    assert put(api, DATA, digest).status_code == 422
    assert api.send("HEAD", f"/v1/objects/{digest}").status_code == 404


def test_a_viewer_may_not_upload(api: Api) -> None:
    """Uploading and naming need an operator."""
    assert put(api, token=Role.VIEWER).status_code == 403
    assert name(api, {"a": DATA}, token=Role.VIEWER).status_code == 403
    assert put(api, token=None).status_code == 401
    assert stored(api) == []


@pytest.mark.parametrize("told", [True, False])
def test_an_object_beyond_the_limit(sqlite_ledger: Database, tmp_path: Path, told: bool) -> None:
    """More bytes than the service takes are 413, announced or not, and nothing stays of them."""

    async def blocks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * 300

    with opened(sqlite_ledger, tmp_path, Settings(object_limit=1_000)) as api:
        data = b"x" * 1_500
        answer = api.send("PUT", f"/v1/objects/{digest_of(data)}", content=data if told else blocks())
        api.run(settled(api))

        assert (answer.status_code, answer.json()["limit"]) == (413, 1_000)
        assert stored(api) == []


def test_a_part_of_an_object(api: Api) -> None:
    """Content-Range is refused, as RFC 9110 asks: the part would be taken for the whole."""
    assert put(api, headers={"Content-Range": "bytes 0-1/9"}).status_code == 400


@pytest.mark.parametrize("point", ["step.mid-write=full", "step.mid-write=raise"])
def test_a_disk_that_is_full(api: Api, point: str) -> None:
    """A write that fails is a problem and leaves nothing; the same upload succeeds afterwards."""
    crash.arm(point, tokens=None)

    answer = put(api)
    api.run(settled(api))

    assert answer.status_code == (507 if point.endswith("full") else 500)
    assert stored(api) == []
    assert put(api).status_code == 201


def test_no_room_for_what_is_announced(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that would take the room that the ledger needs is refused before it is begun."""

    class Usage:
        free = 8_000_100

    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage)

    assert put(api, b"x" * 200).status_code == 507
    assert put(api, b"x" * 50).status_code == 201


def test_a_process_that_dies_after_the_bytes(api: Api) -> None:
    """Killed between the bytes and the answer, the object is there, held, and the same upload is answered."""
    crash.arm("step.after-object=raise", tokens=None)

    answer = put(api)

    assert answer.status_code == 500
    assert (stored(api), holders(api)) == ([DIGEST], [(DIGEST, "upload")])
    assert put(api).status_code == 200


def test_a_reference_without_bytes(api: Api) -> None:
    """Killed between reference and bytes, nobody takes the object for there: neither a name nor a backup."""
    caller = access.verify(api.db, api.tokens[Role.ADMIN])
    uploads.note_upload(api.db, caller, DIGEST, len(DATA))

    with api.db.read() as tx:
        assert [each.certain for each in portable.needed(tx)] == [False]
    assert api.send("HEAD", f"/v1/objects/{DIGEST}").status_code == 404
    assert name(api, {"a": DATA}).status_code == 422
    assert put(api).status_code == 200
    assert name(api, {"a": DATA}).status_code == 201


def test_two_uploads_at_once(api: Api) -> None:
    """The same bytes sent several times at once are one object, and each sender is answered."""

    async def both() -> list[httpx.Response]:
        return await asyncio.gather(
            *(api.start("PUT", f"/v1/objects/{DIGEST}", content=DATA) for _ in range(6))
        )

    answers = api.run(both())
    api.run(settled(api))

    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
    assert stored(api) == [DIGEST]


def test_an_upload_that_stops(sqlite_ledger: Database, tmp_path: Path) -> None:
    """A sender that falls silent is given up, and its half of the object goes."""

    async def silent() -> AsyncIterator[bytes]:
        yield DATA
        await asyncio.Event().wait()

    with opened(sqlite_ledger, tmp_path, Settings(upload_seconds=0.05)) as api:
        answer = api.send("PUT", f"/v1/objects/{DIGEST}", content=silent())
        api.run(settled(api))

        assert (answer.status_code, answer.json()["type"]) == (408, "request-stalled")
        assert stored(api) == []


def test_too_many_at_once(sqlite_ledger: Database, tmp_path: Path) -> None:
    """More uploads than are allowed are told to come again, and a place is free when one has ended."""
    with opened(sqlite_ledger, tmp_path, Settings(uploads=0)) as api:
        answer = put(api)

        assert (answer.status_code, answer.json()["type"]) == (503, "service-busy")
        assert "retry-after" in answer.headers


def test_a_snapshot_has_the_digest_of_its_files(api: Api) -> None:
    """The same files are the same snapshot in whatever order they are named, and asking again is safe."""
    files = {"b/two.jsonl": b"two", "a.jsonl": b"one"}
    digest = snapshot(api, files)
    again = name(api, dict(reversed(files.items())))
    shown = api.get(f"/v1/snapshots/{digest}").json()

    document = {
        "format": "autocode-snapshot/1",
        "members": [
            {"path": "a.jsonl", "digest": digest_of(b"one"), "size": 3},
            {"path": "b/two.jsonl", "digest": digest_of(b"two"), "size": 3},
        ],
    }
    assert digest == digest_of(canonical_json(document))
    assert (again.status_code, again.json()["digest"]) == (200, digest)
    assert (shown["files"], shown["bytes"], shown["members"]) == (2, 6, document["members"])
    assert sorted(holders(api)) == sorted(
        [(digest, "upload"), (digest, "snapshot")]
        + [(digest_of(data), holder) for data in files.values() for holder in ("object", "upload")]
    )


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../up", "a/../b", "a//b", "a/", "", ".", "C:/x", "a\\b", "a\x00b", "a\nb", "x" * 256],
)
def test_hostile_paths(api: Api, path: str) -> None:
    """A path that is absolute, leads upward or can't be shown is refused, with its place."""
    put(api)

    answer = name(api, {"fine": DATA, path: DATA})

    assert answer.status_code == 422
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/members/1/path"]


@pytest.mark.parametrize("paths", [("a", "A"), ("Straße", "STRASSE"), ("a", "a/b"), ("A/b", "a")])
def test_paths_that_clash(api: Api, paths: tuple[str, str]) -> None:
    """Two paths that would be one file where case doesn't count are refused."""
    put(api)

    answer = name(api, dict.fromkeys(paths, DATA))

    assert (answer.status_code, len(answer.json()["errors"])) == (422, 1)


@pytest.mark.parametrize("path", ["-home-ada/ä b.jsonl", ".hidden", "CON", "a~1", "日本.jsonl"])
def test_paths_that_tools_give(api: Api, path: str) -> None:
    """Any name that a tool gives a file is right."""
    put(api)

    assert name(api, {path: DATA}).status_code == 201


def test_a_snapshot_of_what_was_not_sent(api: Api) -> None:
    """Each object that the caller hasn't sent is named by its place, and nothing is stored."""
    put(api)
    before = contents(api.db)

    answer = name(api, {"a": DATA, "b": b"other"})

    assert (answer.status_code, answer.json()["type"]) == (422, "payload-invalid")
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/members/1/digest"]
    assert contents(api.db) == before


def test_a_snapshot_of_a_session(api: Api) -> None:
    """Those who see a session see its snapshots and their objects; others see that there is none."""
    owner, friend, stranger = scoped(api, "s-1"), scoped(api, "s-1"), scoped(api, "s-2")
    digest = snapshot(api, {"a": DATA}, token=owner, session_id="s-1")
    path = f"/v1/snapshots/{digest}"

    assert name(api, {"a": DATA}, token=owner).status_code == 403
    assert api.get(path, token=friend).json()["session_id"] == "s-1"
    assert api.send("HEAD", f"/v1/objects/{DIGEST}", token=friend).status_code == 200
    refused = api.get(path, token=stranger)
    assert (refused.status_code, refused.json()["type"]) == (404, "snapshot-not-found")
    assert refused.text.replace(digest, OTHER) == api.get(f"/v1/snapshots/{OTHER}", token=stranger).text
    assert api.send("HEAD", f"/v1/objects/{DIGEST}", token=stranger).status_code == 404


def enqueue(api: Api, digest: str, job_id: str = "job", **options: Any) -> httpx.Response:
    """Ask for an export of a snapshot."""
    session = options.pop("session_id", None)
    body = {"kind": "export", "job_id": job_id, "payload": {"sources": [{"snapshot": digest}]}}
    return api.post("/v1/jobs", body | ({} if session is None else {"session_id": session}), **options)


def test_a_job_holds_its_snapshot(api: Api) -> None:
    """An accepted job refers to the snapshot that it names; asking again is the same job."""
    digest = snapshot(api, {"a": DATA})

    first, again = enqueue(api, digest), enqueue(api, digest)

    assert (first.status_code, again.status_code) == (202, 200)
    assert (digest, "job") in holders(api)


@pytest.mark.parametrize("case", ["unknown", "of a stranger", "of another session", "of a session, for none"])
def test_a_snapshot_that_isnt_for_the_job(api: Api, case: str) -> None:
    """What doesn't exist, isn't the caller's or is another session's is refused in the same words."""
    both = scoped(api, "s-1", "s-2")
    digest = OTHER if case == "unknown" else snapshot(api, {"a": DATA}, token=both, session_id="s-1")
    token: Any = scoped(api, "s-2") if case == "of a stranger" else both
    session: str | None = "s-2"
    if case == "of a session, for none":
        token, session = Role.ADMIN, None
    before = contents(api.db)

    answer = enqueue(api, digest, token=token, session_id=session)

    assert (answer.status_code, answer.json()["type"]) == (422, "payload-invalid")
    (field,) = answer.json()["errors"]
    assert field == {"pointer": "/payload/sources", "detail": f"There is no snapshot {digest} for this job."}
    assert contents(api.db) == before


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"snapshot": "x"}, "snapshot"),
        ({"snapshot": OTHER, "root": "codex"}, "root"),
        ({"snapshot": OTHER, "select": ["a"]}, "select"),
        ({}, "root"),
        ({"root": ""}, "root"),
    ],
)
def test_a_source_is_one_of_two(api: Api, source: dict[str, Any], place: str) -> None:
    """A source names a root or a snapshot, and what is off is pointed at."""
    answer = api.post("/v1/jobs", {"kind": "export", "payload": {"sources": [source]}})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == f"/payload/sources/0/{place}"


def test_uploads_expire(api: Api) -> None:
    """What no snapshot names is let go after a week; what one names stays, and so does what came again."""
    digest = snapshot(api, {"a": DATA})
    put(api, b"other")
    with api.db.write() as tx:
        old = api.db.clock.now() - uploads.UPLOAD_LIFETIME - timedelta(minutes=1)
        tx.execute(schema.references.update().values(at=old))
    assert put(api).status_code == 200

    assert uploads.release_uploads(api.db) == 0
    assert sorted(holders(api)) == sorted([(digest, "snapshot"), (DIGEST, "object"), (DIGEST, "upload")])


SESSIONS = {
    "-home-ada/one.jsonl": line("one", sessionId="s-1") + line("two", sessionId="s-1"),
    "-home-ada/sub/two.jsonl": line("AKIA" + "IOSFODNN7EXAMPL3", sessionId="s-2"),
    "notes.txt": b"no session\n",
    "empty.jsonl": b"",
    "copy.jsonl": line("one", sessionId="s-1") + line("two", sessionId="s-1"),
}


def over(api: Api, digest: str, *, redact: bool = True) -> Job:
    """Return a job over a snapshot, in the service's store."""
    store = api.system.store
    assert isinstance(store, LocalStore)
    job = job_over(api.home.path / "nowhere", api.home.path, redact=redact)
    sources = job.payload.model_copy(update={"sources": ()}).model_dump() | {
        "sources": [{"snapshot": digest}]
    }
    return Job(StoreContext(api.home.path / "nowhere", store), type(job.payload).model_validate(sources))


@pytest.mark.parametrize("redact", [True, False])
def test_a_snapshot_is_exported_like_a_folder(
    api: Api, tmp_path: Path, redact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder and a snapshot of the same files make the same artifact, of sessions in parts, too."""
    monkeypatch.setattr("autocode.jobs.sessions.parts.Cutter.__init__.__defaults__", (1,))
    folder = tmp_path / "folder"
    for path, data in SESSIONS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)

    from_folder = run(job_over(folder, tmp_path / "other", redact=redact))
    job = over(api, snapshot(api, SESSIONS), redact=redact)

    assert run(job) == from_folder
    assert job.ran.count("read") > 2


def test_a_snapshot_with_a_damaged_object(api: Api) -> None:
    """An object that was damaged since is found by the scan, which says so."""
    digest = snapshot(api, SESSIONS)
    store = api.system.store
    assert isinstance(store, LocalStore)
    path = store.path_of(digest_of(SESSIONS["notes.txt"]))
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-40] + b"!" * 40)

    with pytest.raises(Exception, match="damaged"):
        run(over(api, digest))
    assert put(api, SESSIONS["notes.txt"]).status_code == 200
    assert run(over(api, digest)).startswith("sha256:")


def test_every_answer_is_documented(api: Api) -> None:
    """The description of the interface names every status of the routes of uploads."""
    paths = api.get("/openapi.json").json()["paths"]

    upload = paths["/v1/objects/{digest}"]
    assert upload["put"]["responses"].keys() >= {
        "200",
        "201",
        "400",
        "401",
        "403",
        "408",
        "413",
        "422",
        "503",
        "507",
    }
    assert upload["head"]["responses"].keys() >= {"200", "401", "403", "404", "503"}
    assert paths["/v1/snapshots"]["post"]["responses"].keys() >= {"200", "201", "400", "403", "413", "422"}
    assert paths["/v1/snapshots/{digest}"]["get"]["responses"].keys() >= {"200", "401", "404", "503"}
