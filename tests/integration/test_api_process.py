"""The API as a process: a real port, real signals, and what its log may hold."""

from __future__ import annotations

import json
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api_served import Serving, served, until
from autocode.jobs.api.process import serve
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.errors import UsageError
from autocode.jobs.locks import is_held
from autocode.jobs.settings import Home
from certificates import certificate

NOOP = "scenario-noop"
PAYLOAD = {"witness": "w"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Give one process for the tests that leave it as it is."""
    with served(tmp_path_factory.mktemp("shared")) as serving:
        serving.facts()
        yield serving


def test_a_command_finds_the_service(shared: Serving) -> None:
    """The files of the home lead to the service, with a token that only its owner can read."""
    with shared.client() as client:
        accepted = client.enqueue(NOOP, PAYLOAD, job_id="found")

        assert accepted.created
        assert [job.job_id for job in client.list_jobs(q="found")] == ["found"]
    for name in ("token", "api.json", "api.lock"):
        assert stat.S_IMODE((shared.home.run / name).stat().st_mode) == 0o600, name


def test_a_second_process_is_told_of_the_first(shared: Serving, tmp_path: Path) -> None:
    """A home is served once; the second says which process does."""
    second = Serving(shared.home, tmp_path / "second.log")
    told, _ = second.process.communicate(timeout=60)

    assert second.process.returncode == 2
    assert f"process {shared.process.pid}" in told


def test_a_foreign_name_and_page_get_nothing(shared: Serving) -> None:
    """Over a real connection, too, a rebound name and another origin's page are refused."""
    url = shared.facts()["url"]
    token = (shared.home.run / "token").read_text().strip()
    body = {"kind": NOOP, "payload": PAYLOAD, "job_id": "attack"}
    attacks = [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "same-site"}]

    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as http:
        answers = [http.post("/v1/jobs", json=body, headers=attack).status_code for attack in attacks]
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        key = {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Origin": "https://evil.example"}
        socket_answer = http.get("/v1/events", headers=upgrade | key).status_code
        found = http.get("/v1/jobs/attack").status_code

    assert (answers, socket_answer, found) == ([403, 403, 403], 403, 404)


def test_no_secret_reaches_the_log(shared: Serving) -> None:
    """Whatever clients send, the log of the process has neither the token nor a login's code."""
    url = shared.facts()["url"]
    token = (shared.home.run / "token").read_text().strip()
    with shared.client() as client:
        code = client.login_link().partition("=")[2]
    with httpx.Client(base_url=url, trust_env=False) as http:
        http.get(f"/login?code={code}")
        http.post("/login", data={"code": code}, headers={"Origin": url})
        http.get(f"/v1/jobs/{token}?token={token}", headers={"Authorization": f"Bearer {token}"})
        http.get(f"/{token}", headers={"Authorization": f"Token {token}", "Cookie": f"a={token}"})
        with socket.create_connection((http.base_url.host, http.base_url.port or 0)) as raw:
            raw.sendall(f"GET /{token} nonsense {token}\r\n\r\n".encode())
            raw.recv(100)

    until(lambda: "/login" in shared.log.read_text("utf-8"))
    log = shared.log.read_text("utf-8")
    assert token.rpartition("_")[2] not in log
    assert code not in log


def test_told_to_end_it_answers_what_was_begun(tmp_path: Path) -> None:
    """SIGTERM lets a held request go with an answer; then the process ends with 0, and its lock is free."""
    answers: list[int] = []
    with served(tmp_path) as serving, serving.client() as client:
        client.enqueue(NOOP, PAYLOAD, job_id="job")
        token = (serving.home.run / "token").read_text().strip()
        http = httpx.Client(base_url=client.url, timeout=60.0, trust_env=False)

        def hold() -> None:
            headers = {"Authorization": f"Bearer {token}", "Prefer": "wait=30"}
            answers.append(http.get("/v1/jobs/job", headers=headers).status_code)

        holding = threading.Thread(target=hold)
        holding.start()
        until(lambda: '"held: job"' in serving.log.read_text("utf-8"))
        began = time.monotonic()
        status = serving.end()
        seconds = time.monotonic() - began
        holding.join()
        http.close()

    assert (status, answers) == (0, [200])
    assert seconds < 20
    assert not is_held(serving.home.run / "api.lock")


def test_it_comes_back_at_the_same_address(tmp_path: Path) -> None:
    """After SIGKILL the next process has the same port, the same token and every job that was accepted."""
    with served(tmp_path) as first, first.client() as client:
        client.enqueue(NOOP, PAYLOAD, job_id="job")
        url, token = first.facts()["url"], (first.home.run / "token").read_text()
        first.end(signal.SIGKILL)

        with served(tmp_path) as second:
            assert second.facts()["url"] == url
            assert (second.home.run / "token").read_text() == token
            assert client.get("job").status == "queued"
            assert second.end(signal.SIGINT) == 0


def test_it_speaks_tls(tmp_path: Path) -> None:
    """With a certificate the service answers over TLS alone, and commands of the home trust that very one."""
    files = certificate(tmp_path)
    with served(tmp_path, host="0.0.0.0", tls=[str(file) for file in files]) as serving:  # noqa: S104 - with TLS
        facts = serving.facts()
        with serving.client() as client:
            accepted = client.enqueue(NOOP, PAYLOAD, job_id="job")

        assert facts["url"].startswith("https://127.0.0.1:")
        assert accepted.created
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{facts['url']}/livez", trust_env=False)
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http{facts['url'].removeprefix('https')}/livez", trust_env=False)
        assert serving.end() == 0


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """Give a home that nobody serves."""
    with open_system(Home(tmp_path / "home")) as opened:
        yield opened


def test_a_taken_port_is_told(system: System) -> None:
    """A port that was asked for and is taken is an error that names it, and the home stays free."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        with pytest.raises(UsageError, match=f"Port {port} "):
            serve(system, None, port=port)

    assert not is_held(system.home.run / "api.lock")


def test_the_last_port_is_passed_by_where_it_is_taken(tmp_path: Path) -> None:
    """Where somebody else has the home's last port, the service gets another."""
    home = Home(tmp_path / "home")
    home.prepare()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        (home.run / "api.json").write_text(json.dumps({"pid": 1, "url": url, "at": ""}))
        with served(tmp_path) as serving:
            assert serving.facts()["url"] != url


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "jobs.example"])  # noqa: S104 - refused
def test_other_machines_are_kept_out(system: System, host: str) -> None:
    """An address that other machines reach is refused without TLS or a proxy that has it."""
    with pytest.raises(UsageError, match="other machines"):
        serve(system, None, host=host)
