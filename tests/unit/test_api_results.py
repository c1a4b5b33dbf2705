"""Results over HTTP: their bytes, files and views, and to whom they are shown."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from api_world import Api, noop, opened
from autocode.jobs.api import content
from autocode.jobs.api.settings import Settings
from autocode.jobs.ledger import access, schema
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database
from autocode.jobs.request_errors import ResultDamaged
from autocode.jobs.store import LocalStore
from ledger_world import look
from results_world import exported, with_bytes

pytest_plugins = ["fixtures_api"]

DATA = bytes(range(256)) * 40
URL = "/v1/jobs/job/result"


def file_of(api: Api, digest: str) -> Path:
    """Return where an object lies."""
    store = api.system.store
    assert isinstance(store, LocalStore)
    return store.path_of(digest)


def damage(path: Path) -> None:
    """Change a byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.chmod(0o600)
    path.write_bytes(data)


def test_the_bytes_of_a_result(api: Api) -> None:
    """A result comes with its type, its length, a tag that is its digest, and as a file to be saved."""
    digest = with_bytes(api.system, DATA, "text/html")

    answer = api.get(URL)

    assert (answer.status_code, answer.content) == (200, DATA)
    assert answer.headers["etag"] == f'"{digest}"'
    assert answer.headers["content-type"] == "text/html"
    assert answer.headers["content-length"] == str(len(DATA))
    assert answer.headers["content-disposition"] == 'attachment; filename="job.html"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    sha256 = base64.b64encode(hashlib.sha256(DATA).digest()).decode()
    assert answer.headers["repr-digest"] == f"sha-256=:{sha256}:"
    assert api.get("/v1/jobs/job").json()["result"]["href"] == URL


def test_head_is_get_without_the_bytes(api: Api) -> None:
    """HEAD has the headers of GET."""
    with_bytes(api.system, DATA)

    head, get = api.send("HEAD", URL), api.get(URL)

    assert (head.status_code, head.content) == (200, b"")
    ids = [answer.headers.pop("x-request-id") for answer in (head, get)]
    assert dict(head.headers) == dict(get.headers)
    assert len(set(ids)) == 2


@pytest.mark.parametrize(("text", "start", "end"), [("bytes=5-9", 5, 10), ("bytes=-7", len(DATA) - 7, None)])
def test_a_range(api: Api, text: str, start: int, end: int | None) -> None:
    """A range is 206 with exactly these bytes, and says where they lie."""
    with_bytes(api.system, DATA)

    answer = api.get(URL, headers={"Range": text})

    assert (answer.status_code, answer.content) == (206, DATA[start:end])
    last = len(DATA) if end is None else end
    assert answer.headers["content-range"] == f"bytes {start}-{last - 1}/{len(DATA)}"


def test_a_range_of_a_large_result(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range in the middle of a result that is streamed is right to the byte."""
    monkeypatch.setattr(content, "_SMALL", 0)
    data = b"".join(hashlib.sha256(number.to_bytes(4)).digest() for number in range(40_000))
    with_bytes(api.system, data)

    answer = api.get(URL, headers={"Range": "bytes=300000-900000"})

    assert answer.content == data[300_000:900_001]
    assert api.get(URL).content == data


def test_a_range_behind_the_end(api: Api) -> None:
    """A range that begins behind the end is 416, with the size."""
    with_bytes(api.system, DATA)

    answer = api.get(URL, headers={"Range": f"bytes={len(DATA)}-"})

    assert (answer.status_code, answer.json()["type"]) == (416, "range-unsatisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(DATA)}"


def test_what_is_known_isnt_sent_again(api: Api) -> None:
    """If-None-Match with the tag is 304 without bytes; If-Range with another tag is all of it."""
    digest = with_bytes(api.system, DATA)

    same = api.get(URL, headers={"If-None-Match": f'"{digest}"'})
    other = api.get(URL, headers={"Range": "bytes=0-0", "If-Range": '"other"'})

    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", f'"{digest}"')
    assert (other.status_code, other.content) == (200, DATA)


def test_an_empty_result(api: Api) -> None:
    """A result of no bytes is 200 and empty."""
    with_bytes(api.system, b"")

    answer = api.get(URL)

    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")


@pytest.mark.parametrize("media_type", ["text/html\r\nX-Bad: 1", "nonsense", "text/plain; charset=utf-7"])
def test_an_odd_media_type(api: Api, media_type: str) -> None:
    """What a kind calls its result never gets into a header unless it is a plain media type."""
    with_bytes(api.system, DATA, media_type)

    answer = api.get(URL)

    assert answer.headers["content-type"] == "application/octet-stream"
    assert "x-bad" not in answer.headers


def test_before_it_is_complete(api: Api) -> None:
    """Before the end there is no result: 409 with a hint, and when to look again."""
    api.post("/v1/jobs", noop())

    answer = api.get(URL)

    assert (answer.status_code, answer.json()["type"]) == (409, "result-not-ready")
    assert (answer.json()["job_status"], answer.headers["retry-after"]) == ("queued", "2")
    assert "wait" in answer.json()["hint"]


def test_of_a_dead_job(api: Api) -> None:
    """A dead job has no result, and looking again makes none."""
    api.post("/v1/jobs", noop())
    api.post("/v1/jobs/job/cancel", {"reason": "no"})
    look(api.db)

    answer = api.get(URL)

    assert (answer.status_code, answer.json()["job_status"]) == (409, "dead")
    assert "retry-after" not in answer.headers


def test_after_retention(api: Api) -> None:
    """A result that was removed is 410, and says when."""
    with_bytes(api.system, DATA)
    with api.db.write() as tx:
        tx.execute(sa.update(schema.jobs).values(result_expired_at=api.db.clock.now()))

    answer = api.get(URL)

    assert (answer.status_code, answer.json()["type"]) == (410, "result-expired")
    assert answer.json()["expired_at"] == api.get("/v1/jobs/job").json()["result"]["expired_at"]


@pytest.mark.parametrize("end", ["", ".zip", ".html", ".md", "/html/index.html", "/manifest.json"])
def test_a_result_of_others_does_not_exist(api: Api, tmp_path: Path, end: str) -> None:
    """A token for other sessions can't tell a result from one that doesn't exist."""
    exported(api.system, tmp_path)
    scoped = access.create_token(api.db, name="guest", role=Role.VIEWER, sessions=["s-2"]).text

    theirs, none = (api.get(f"/v1/jobs/{job_id}/result{end}", token=scoped) for job_id in ("job", "none"))

    assert (theirs.status_code, theirs.json()["type"]) == (404, "job-not-found")
    assert theirs.text.replace("'job'", "'none'") == none.text
    assert api.get(f"{URL}{end}", token=None).status_code == 401


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_damaged_result(api: Api, how: str) -> None:
    """Bytes that are damaged or gone are a problem, before the first of them was sent."""
    path = file_of(api, with_bytes(api.system, DATA))
    damage(path) if how == "damaged" else path.unlink()

    answer = api.get(URL)

    assert (answer.status_code, answer.json()["type"]) == (503, "result-damaged")
    assert "new id" in answer.json()["hint"]
    assert "retry-after" not in answer.headers


def test_a_forged_large_result(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sound object under the name of a large one breaks off: not all of it ever arrives."""
    monkeypatch.setattr(content, "_SMALL", 0)
    data = b"".join(hashlib.sha256(number.to_bytes(4)).digest() for number in range(40_000))
    path = file_of(api, with_bytes(api.system, data))
    other = file_of(api, with_bytes(api.system, data[:-1] + b"!", job_id="other"))
    path.unlink()
    path.hardlink_to(other)

    try:
        received = api.get(URL).content
    except (ResultDamaged, httpx.HTTPError):
        received = b""

    assert len(received) < len(data)


def test_the_files_of_an_export(api: Api, tmp_path: Path) -> None:
    """Every file of the bundle is there by its path, with the bytes that the checksums name."""
    digest = exported(api.system, tmp_path, sessions=2)

    manifest = api.get(f"{URL}/manifest.json")
    lines = api.get(f"{URL}/manifest-sha256.txt").text.splitlines()
    sums = {path: sha256 for sha256, path in (each.split("  ") for each in lines)}

    assert manifest.content == api.get(URL).content
    assert manifest.headers["etag"] == f'"{digest}"'
    assert len(sums) == len(manifest.json()["members"]) == 4
    for path, sha256 in sums.items():
        answer = api.get(f"{URL}/{path}")
        assert hashlib.sha256(answer.content).hexdigest() == sha256
        assert answer.headers["content-disposition"].startswith("attachment; filename=")
        assert "json" in answer.headers["content-type"]


@pytest.mark.parametrize(
    "path",
    [
        "no",
        "data/..%2Fmanifest.json",
        "..%2Fledger.db",
        "%2Fetc%2Fpasswd",
        "html/..%2F..%2Fready.json",
        "html/..%2F..%2F..%2F..%2F..%2Fledger.db",
        "html/%2Fetc%2Fpasswd",
        "html/sessions",
        "html/a%00b",
        "html/..%5C..%5Cready.json",
        "markdown/index.html",
    ],
)
def test_no_other_file_is_reached(api: Api, tmp_path: Path, path: str) -> None:
    """A path that leads elsewhere, or nowhere, is 404."""
    exported(api.system, tmp_path)

    answer = api.get(f"{URL}/{path}")

    assert (answer.status_code, answer.json()["type"]) == (404, "member-not-found")


def test_a_result_that_is_no_export_has_no_views(api: Api) -> None:
    """Of another kind's result there are neither files nor views."""
    with_bytes(api.system, DATA)

    answers = [api.get(f"{URL}{end}") for end in (".zip", ".html", ".md", "/manifest.json")]

    assert [answer.status_code for answer in answers] == [404] * 4
    assert {answer.json()["type"] for answer in answers} == {"member-not-found"}


def test_the_zip_file(api: Api, tmp_path: Path) -> None:
    """The zip file holds the bundle, can be had in ranges, and is made once."""
    exported(api.system, tmp_path)

    whole = api.get(f"{URL}.zip")
    tag = whole.headers["etag"]
    rest = api.get(f"{URL}.zip", headers={"Range": "bytes=10-", "If-Range": tag})

    with zipfile.ZipFile(io.BytesIO(whole.content)) as archive:
        assert archive.testzip() is None
        assert any(name.endswith("/manifest.json") for name in archive.namelist())
    assert (rest.status_code, whole.content[10:]) == (206, rest.content)
    assert whole.headers["content-disposition"].endswith('.zip"')
    assert api.get(f"{URL}.zip", headers={"If-None-Match": tag}).status_code == 304
    assert len(list((api.home.cache / "views").iterdir())) == 1


def links(page: str) -> list[str]:
    """Return the relative links of a page."""
    return [link for link in re.findall(r'href="([^"#]+)"', page) if ":" not in link]


def test_the_page_of_an_only_session(api: Api, tmp_path: Path) -> None:
    """One session is one page, whose scripts its policy names, and whose link to the index works."""
    exported(api.system, tmp_path)

    page = api.get(f"{URL}.html")
    index = api.get(f"/v1/jobs/job/{links(page.text)[0]}")
    again = api.get(f"/v1/jobs/job/result/html/{links(index.text)[0]}")

    policy = page.headers["content-security-policy"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in policy
    assert "sandbox" in policy
    assert "unsafe" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    digests = {
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts if script
    }
    assert digests
    assert [digest for digest in digests if f"'sha256-{digest}'" not in policy] == []
    assert "<script>alert" not in page.text
    assert [answer.status_code for answer in (page, index, again)] == [200] * 3
    assert index.headers["content-security-policy"] == policy
    assert again.text.count("</html>") == 1


def test_the_index_of_several_sessions(api: Api, tmp_path: Path) -> None:
    """Several sessions begin with an index; its links lead to pages, whose links lead back."""
    exported(api.system, tmp_path, sessions=3)

    index = api.get(f"{URL}.html")
    pages = [f"/v1/jobs/job/{link}" for link in links(index.text)]
    answers = [api.get(page) for page in pages]
    back = [
        api.get(str(httpx.URL(f"http://h{page}").join(links(answer.text)[0]).path))
        for page, answer in zip(pages, answers, strict=True)
    ]

    assert len(pages) == 3
    assert {answer.status_code for answer in [*answers, *back]} == {200}
    assert len({answer.headers["etag"] for answer in [index, *answers]}) == 4
    assert api.get(pages[0], headers={"Range": "bytes=0-14"}).text == "<!doctype html>"


def test_the_markdown_files(api: Api, tmp_path: Path) -> None:
    """Markdown is served as text: an only session at once, several by an index whose links work."""
    exported(api.system, tmp_path, job_id="job")
    exported(api.system, tmp_path, sessions=2, job_id="two")

    one, two = api.get(f"{URL}.md"), api.get("/v1/jobs/two/result.md")
    found = re.findall(r"\]\((result/markdown/[^)]+)\)", two.text)

    assert one.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "session_id: s-0" in one.text.replace('"', "")
    assert one.headers["content-disposition"].startswith("attachment")
    assert len(found) == 2
    assert {api.get(f"/v1/jobs/two/{link}").status_code for link in found} == {200}


def test_a_view_takes_its_time(sqlite_ledger: Database, tmp_path: Path) -> None:
    """A view that isn't ready in time is 503 with when to come again, and goes on being made."""
    with opened(sqlite_ledger, tmp_path, Settings(view_seconds=0.0)) as api:
        exported(api.system, tmp_path)
        first = api.get(f"{URL}.html")
        last = first
        for _ in range(2_000):
            if last.status_code == 200:
                break
            last = api.get(f"{URL}.html")

    assert (first.status_code, first.json()["type"]) == (503, "view-not-ready")
    assert first.headers["retry-after"] == "5"
    assert last.status_code == 200


def test_a_view_of_a_damaged_export(api: Api, tmp_path: Path) -> None:
    """A damaged member is a problem, and nothing of the view is kept; mended, the view is made."""
    exported(api.system, tmp_path)
    member = next(m for m in api.get(URL).json()["members"] if m["path"].endswith(".jsonl"))
    path = file_of(api, member["sha256"])
    sound = path.read_bytes()
    damage(path)

    answer = api.get(f"{URL}.zip")
    path.write_bytes(sound)
    again = api.get(f"{URL}.zip")

    assert (answer.status_code, answer.json()["type"]) == (503, "result-damaged")
    assert again.status_code == 200


def test_views_beyond_their_room(sqlite_ledger: Database, tmp_path: Path) -> None:
    """Where there is no room for all views the one that was asked for long ago goes, and is made anew."""
    with opened(sqlite_ledger, tmp_path, Settings(view_bytes=1)) as api:
        exported(api.system, tmp_path)
        exported(api.system, tmp_path, sessions=2, job_id="two")
        before = api.get(f"{URL}.zip").content
        (old,) = (api.home.cache / "views").iterdir()
        os.utime(old, (0, 0))
        api.get("/v1/jobs/two/result.zip")

        assert not old.exists()
        assert len(list((api.home.cache / "views").iterdir())) == 1
        assert api.get(f"{URL}.zip").content == before


def test_every_answer_is_documented(api: Api) -> None:
    """The description of the interface names every status of each route of a result."""
    paths: dict[str, Any] = api.get("/openapi.json").json()["paths"]
    ours = {path: item for path, item in paths.items() if "/result" in path}

    assert len(ours) == 7
    for item in ours.values():
        for method in ("get", "head"):
            assert {"200", "206", "304", "401", "403", "404", "409", "410", "416", "503", "507"} <= item[
                method
            ]["responses"].keys()


def test_the_same_view_for_many(api: Api, tmp_path: Path) -> None:
    """Of many who ask at once for a view that isn't there all get the same bytes."""
    exported(api.system, tmp_path, sessions=3)

    async def all_at_once() -> list[httpx.Response]:
        return await asyncio.gather(*(api.start("GET", f"{URL}.zip") for _ in range(8)))

    answers = api.run(all_at_once())

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
