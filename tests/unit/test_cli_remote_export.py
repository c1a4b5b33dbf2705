"""``export`` with a service elsewhere: what it sends, what it fetches, and what it says."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api_world import Api
from autocode.jobs.cli import main as command
from autocode.jobs.cli import remote_export
from autocode.jobs.client import Client
from autocode.jobs.client.client import Accepted
from autocode.jobs.ledger import jobs
from autocode.jobs.ledger.access import Role
from autocode.jobs.request_errors import ServiceUnavailable
from export_context import line
from results_world import exported

pytest_plugins = ["fixtures_api"]


@pytest.fixture
def service(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Give a service in this process, to which the commands are pointed."""
    monkeypatch.setenv("AUTOCODE_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("AUTOCODE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AUTOCODE_TOKEN", "ajt_x_y")

    @contextmanager
    def remote() -> Iterator[Client]:
        with api.client(Role.OPERATOR) as client:
            yield client

    monkeypatch.setattr(remote_export, "remote", remote)
    return api


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """Return a folder with two sessions."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.jsonl").write_bytes(line("hello", sessionId=f"s-{number}"))
    return folder


def test_a_folder_is_uploaded_and_asked_for(
    service: Api, sessions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder becomes a snapshot that the job names; the same again sends nothing."""
    statuses = [command.run(["export", str(sessions), "--no-wait"]) for _ in range(2)]

    told = capsys.readouterr().err.splitlines()
    assert statuses == [0, 0]
    (first, second) = service.get("/v1/jobs").json()["jobs"]
    payloads = [jobs.payload_of(service.db, job["job_id"])[1] for job in (first, second)]
    (source,) = payloads[0]["sources"]
    assert payloads[0] == payloads[1]
    assert service.get(f"/v1/snapshots/{source['snapshot']}").json()["files"] == 2
    uploaded = [text for text in told if text.startswith("Uploaded 2 files")]
    assert len(uploaded) == 2
    assert "sent nothing" in uploaded[1]


def test_the_bundle_is_fetched(
    service: Api,
    sessions: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The bundle of the complete job comes as a zip file, into a folder that is made if it is missing."""
    digest = _done(service, tmp_path, monkeypatch)

    status = command.run(["export", str(sessions), "-o", str(tmp_path / "new" / "out")])

    (made,) = (tmp_path / "new" / "out").iterdir()
    assert status == 0
    assert digest in capsys.readouterr().out
    with zipfile.ZipFile(made) as archive:
        assert archive.testzip() is None


def test_a_bundle_that_does_not_come(
    service: Api,
    sessions: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The job is complete all the same: it is printed, the hint says how to go on, and no folder is left."""
    digest = _done(service, tmp_path, monkeypatch)

    def download(*_args: object, **_options: object) -> Path:
        raise ServiceUnavailable("It broke off.")

    monkeypatch.setattr(Client, "download", download)

    status = command.run(["export", str(sessions), "-o", str(tmp_path / "new" / "out"), "--json"])

    told = capsys.readouterr()
    assert status == 1
    assert json.loads(told.out.splitlines()[-1])["result"]["digest"] == digest
    assert "/v1/jobs/done/result.zip" in "".join(told.err.split())
    assert not (tmp_path / "new").exists()


def _done(service: Api, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let what is submitted be a job that has exported already, and return its result's digest."""
    digest = exported(service.system, folder, job_id="done")
    accept = Client.enqueue

    def enqueue(client: Client, kind: str, payload: dict[str, object]) -> Accepted:
        accept(client, kind, payload)
        return Accepted(client.get("done"), created=True)

    monkeypatch.setattr(Client, "enqueue", enqueue)
    return digest


def test_an_upload_that_is_interrupted(
    service: Api, sessions: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while uploading says how to go on, and asks for no job; the next command sends the rest."""
    upload = Client.upload

    def interrupted(client: Client, source: dict[str, Path], **_options: object) -> object:
        first = next(iter(source))
        upload(client, {first: source[first]})
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "upload", interrupted)
    status = command.run(["export", str(sessions), "--no-wait"])
    monkeypatch.setattr(Client, "upload", upload)
    sent = command.run(["export", str(sessions), "--no-wait"])

    told = capsys.readouterr().err
    assert (status, sent) == (command.INTERRUPTED, 0)
    assert "the same command goes on" in " ".join(told.split())
    assert len(service.get("/v1/jobs").json()["jobs"]) == 1
