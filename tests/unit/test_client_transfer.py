"""The client's files: sent once and named, fetched whole or not at all, over connections that break."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api_world import BASE, Api
from autocode.jobs.canonical import digest_of
from autocode.jobs.client import Client
from autocode.jobs.client import upload as uploading
from autocode.jobs.errors import SourceChanged, SourceUnreadable, UsageError
from autocode.jobs.ledger.access import Role
from autocode.jobs.request_errors import (
    MemberNotFound,
    NotAllowed,
    ResultDamaged,
    ResultNotReady,
    ServiceUnavailable,
)
from results_world import exported, with_bytes

pytest_plugins = ["fixtures_api"]

DATA = bytes(range(256)) * 8_000


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    """Give an operator's client."""
    with api.client(Role.OPERATOR) as opened:
        yield opened


def files_of(folder: Path) -> list[str]:
    """Return what lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


class Breaking(httpx.BaseTransport):
    """Answers with *data*, and breaks each connection off after *bite* bytes.

    Args:
        data: the bytes.
        bite: bytes that one connection gives.
        ranges: know ranges.
    """

    def __init__(self, data: bytes, bite: int, *, ranges: bool = True) -> None:
        self.data = data
        self.bite = bite
        self.ranges = ranges
        self.asked: list[str | None] = []
        self.tag = '"one"'

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Give the next bytes, and break off."""
        if not request.url.path.endswith(".zip"):
            return httpx.Response(404)
        asked = request.headers.get("range")
        self.asked.append(asked)
        start = 0
        if asked is not None and self.ranges and request.headers.get("if-range") == self.tag:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        digest = base64.b64encode(hashlib.sha256(self.data).digest()).decode()
        size = len(self.data)
        headers = {
            "Content-Length": str(size - start),
            "ETag": self.tag,
            "Repr-Digest": f"sha-256=:{digest}:",
        }
        if start:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        return httpx.Response(206 if start else 200, headers=headers, stream=self._stream(start))

    def _stream(self, start: int) -> httpx.SyncByteStream:
        rest = self.data[start:]

        class Stream(httpx.SyncByteStream):
            def __iter__(stream) -> Iterator[bytes]:  # noqa: N805 - the outer self is wanted
                yield rest[: self.bite]
                if len(rest) > self.bite:
                    raise httpx.ReadError("broke")

        return Stream()


def broken(transport: Breaking, **options: Any) -> Client:
    """Return a client of *transport* that doesn't pause."""
    moments = iter(range(10_000))
    return Client(
        BASE, "t", transport=transport, sleep=lambda _: None, monotonic=lambda: next(moments), **options
    )


def test_a_result_becomes_a_file(api: Api, client: Client, tmp_path: Path) -> None:
    """The result of a job is fetched, proven and there; a file that was there is replaced."""
    with_bytes(api.system, DATA)
    target = tmp_path / "out" / "result.bin"
    target.parent.mkdir()
    target.write_bytes(b"old")
    told: list[tuple[int, int]] = []

    made = client.download("job", target, progress=lambda done, total: told.append((done, total)))

    assert made.read_bytes() == DATA
    assert files_of(target.parent) == ["result.bin"]
    assert told[-1] == (len(DATA), len(DATA))


@pytest.mark.parametrize(("view", "begin"), [("zip", b"PK"), ("html", b"<!doc"), ("markdown", b"---")])
def test_a_view_becomes_a_file(api: Api, client: Client, tmp_path: Path, view: str, begin: bytes) -> None:
    """A view of an export is fetched as one file."""
    exported(api.system, tmp_path)

    assert client.download("job", tmp_path / "view", view=view).read_bytes().startswith(begin)


def test_what_cant_be_fetched(api: Api, client: Client, tmp_path: Path) -> None:
    """What the service refuses is raised as what it is, and leaves no file."""
    with_bytes(api.system, DATA)
    client.enqueue("scenario-noop", {"witness": "w"}, job_id="later")

    with pytest.raises(MemberNotFound):
        client.download("job", tmp_path / "x", view="zip")
    with pytest.raises(ResultNotReady):
        client.download("later", tmp_path / "x")
    with pytest.raises(UsageError, match="no view"):
        client.download("job", tmp_path / "x", view="pdf")
    with pytest.raises(UsageError, match="can't be written"):
        client.download("job", tmp_path / "nowhere" / "x")

    assert not (tmp_path / "x").exists()
    assert [name for name in files_of(tmp_path) if "partial" in name] == []


def test_a_connection_that_breaks_is_taken_up(tmp_path: Path) -> None:
    """Each further connection asks for the rest alone, and the file is whole."""
    transport = Breaking(DATA, 700_000)

    with broken(transport) as client:
        made = client.download("job", tmp_path / "x.zip", view="zip")

    assert made.read_bytes() == DATA
    assert transport.asked == [None, "bytes=700000-", "bytes=1400000-"]


def test_a_result_that_changed_meanwhile_is_begun_anew(tmp_path: Path) -> None:
    """Where the rest is of another version, all of it is fetched."""
    transport = Breaking(DATA, 1_100_000)

    def change(done: int, _total: int) -> None:
        if done and transport.tag == '"one"':
            transport.tag, transport.data, transport.bite = '"two"', DATA[::-1], len(DATA)

    with broken(transport) as client:
        made = client.download("job", tmp_path / "x.zip", view="zip", progress=change)

    assert made.read_bytes() == DATA[::-1]


def test_a_service_that_stays_away(tmp_path: Path) -> None:
    """Without any progress it is given up after a while, and nothing is left."""
    with broken(Breaking(DATA, 0), patience=50.0) as client, pytest.raises(ServiceUnavailable):
        client.download("job", tmp_path / "x.zip", view="zip")

    assert files_of(tmp_path) == []


def test_other_bytes_than_promised(tmp_path: Path) -> None:
    """Bytes with another digest are refused, and nothing is left."""

    class Lying(Breaking):
        def _stream(self, start: int) -> httpx.SyncByteStream:
            return httpx.ByteStream(self.data[:-1] + b"?")

    with broken(Lying(DATA, 0)) as client, pytest.raises(ResultDamaged):
        client.download("job", tmp_path / "x.zip", view="zip")

    assert files_of(tmp_path) == []


def folder(tmp_path: Path, files: dict[str, bytes]) -> Path:
    """Make a folder of files."""
    for name, data in files.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "folder"


def requests_of(client: Client) -> list[str]:
    """Return the methods of the requests so far."""
    return [request.method for request in client._transport._http._transport.sent]  # type: ignore[attr-defined]


def test_a_folder_becomes_a_snapshot(api: Api, client: Client, tmp_path: Path) -> None:
    """Every file of a folder is sent once, also with the same bytes, and named by its path."""
    source = folder(tmp_path, {"-a/one.jsonl": b"one", "two.jsonl": b"two" * 500_000, "copy": b"one"})
    told: list[tuple[int, int]] = []

    made = client.upload(source, progress=lambda done, total: told.append((done, total)))
    shown = api.get(f"/v1/snapshots/{made.snapshots[0]}").json()

    assert [each["path"] for each in shown["members"]] == ["-a/one.jsonl", "copy", "two.jsonl"]
    assert (made.files, made.bytes, made.sent) == (3, 1_500_006, 1_500_003)
    assert told[-1] == (1_500_006, 1_500_006)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_was_sent_isnt_sent_again(client: Client, tmp_path: Path) -> None:
    """The same call again sends no bytes, and gives the same snapshot."""
    source = folder(tmp_path, {"a": b"one", "b": b"two"})
    first = client.upload(source)
    before = requests_of(client).count("PUT")

    again = client.upload(source)

    assert (again.snapshots, again.sent) == (first.snapshots, 0)
    assert requests_of(client).count("PUT") == before == 2


def test_names_that_a_snapshot_doesnt_take(api: Api, client: Client, tmp_path: Path) -> None:
    """Names that clash where case doesn't count, or that are no text, get others, the same each time."""
    source = folder(tmp_path, {"a": b"1", "A": b"2", "b\\c": b"3", "x\ny": b"4", "A.d/e": b"5"})

    made = client.upload(source)
    paths = [each["path"] for each in api.get(f"/v1/snapshots/{made.snapshots[0]}").json()["members"]]

    assert len(paths) == 5
    assert "b%5C%5Cc" in paths
    assert sum(path.startswith("renamed/") for path in paths) == 1
    assert client.upload(source).snapshots == made.snapshots


def test_very_many_files(api: Api, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More files than one snapshot takes become several."""
    monkeypatch.setattr(uploading, "MOST_MEMBERS", 2)

    made = client.upload(folder(tmp_path, {name: name.encode() for name in "abcde"}))

    assert len(made.snapshots) == 3
    assert sum(api.get(f"/v1/snapshots/{each}").json()["files"] for each in made.snapshots) == 5


def test_a_file_that_grows(client: Client, tmp_path: Path) -> None:
    """What is appended while a file is sent isn't sent: the snapshot has it as it was read."""
    source = folder(tmp_path, {"a": DATA})
    grown: list[int] = []

    def grow(_done: int, _total: int) -> None:
        if not grown:
            with (source / "a").open("ab") as file:
                grown.append(file.write(b"more"))

    made = client.upload(source, progress=grow)

    assert made.bytes == len(DATA)
    assert client._transport.send("HEAD", f"/v1/objects/{digest_of(DATA)}", again=False).status_code == 200


@pytest.mark.parametrize("how", ["shorter", "other"])
def test_a_file_that_never_holds_still(client: Client, tmp_path: Path, how: str) -> None:
    """A file that is another each time it is sent is given up with a sentence, and nothing is named."""
    source = folder(tmp_path, {"a": DATA})
    times: list[int] = []

    def change(_done: int, _total: int) -> None:
        times.append(len(times))
        size = len(DATA) - len(times) if how == "shorter" else len(DATA)
        (source / "a").write_bytes(bytes([len(times) % 256]) * size)

    with pytest.raises(SourceChanged, match="faster"):
        client.upload(source, progress=change)

    assert "POST" not in requests_of(client)


def test_what_cant_be_sent(api: Api, tmp_path: Path) -> None:
    """No file, a file that isn't there and a token that may not are told as what they are."""
    source = folder(tmp_path, {"a": b"one"})
    (tmp_path / "empty").mkdir()

    with api.client(Role.OPERATOR) as client:
        with pytest.raises(UsageError, match="no file"):
            client.upload(tmp_path / "empty")
        with pytest.raises(SourceUnreadable):
            client.upload({"gone": tmp_path / "gone"})
    with api.client(Role.VIEWER) as client, pytest.raises(NotAllowed):
        client.upload(source)
