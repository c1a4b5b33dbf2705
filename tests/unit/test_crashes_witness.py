"""The witness of the kill matrix: what it counts, what it refuses, and when it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from autocode.jobs.errors import UnexpectedError, UsageError
from autocode.jobs.testing.crashes.witness import Effect, Witness
from autocode.jobs.testing.crashes.witness_process import MAX_BODY
from engine_world import SOURCES, until
from worker_world import gone

CASE = "export step.before:2 kill worker"

PARENT = """
import time
from autocode.jobs.testing.crashes.witness import Witness

witness = Witness()
witness.start()
print(witness.pid, witness.url, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def _serving() -> Iterator[Witness]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCES))
        with Witness() as witness:
            yield witness


@pytest.fixture
def witness(_serving: Witness) -> Witness:
    """Give a witness that has counted nothing."""
    _serving.forget(CASE)
    return _serving


def post(witness: Witness, path: str, body: str = "", key: str | None = None) -> httpx.Response:
    """Ask for an effect."""
    headers = {} if key is None else {"Idempotency-Key": key}
    return httpx.post(f"{witness.url_of(CASE)}/{path}", content=body, headers=headers, trust_env=False)


def raw(witness: Witness, request: bytes) -> bytes:
    """Send bytes and nothing more, and return the first line of the answer."""
    port = int(witness.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10.0) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as answer:
            return answer.readline()


def test_the_same_key_is_applied_once(witness: Witness) -> None:
    """A second delivery is answered as the first, counted, and not applied, even with another body."""
    first, second = post(witness, "charge", "10 EUR", "k-1"), post(witness, "charge", "11 EUR", "k-1")

    assert first.json() == second.json()
    assert first.status_code == second.status_code == 200
    assert witness.effects(CASE) == [Effect("charge", "10 EUR", "k-1", applied=1, deliveries=2)]


def test_the_address_of_a_case_is_a_place_too(witness: Witness) -> None:
    """Who is told nothing but the address sends there, with a slash behind it or without."""
    answers = [httpx.post(f"{witness.url_of(CASE)}{end}", content="hello", timeout=10) for end in ("", "/")]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert witness.effects(CASE) == [Effect("", "hello", None, applied=2, deliveries=2)]


def test_a_key_counts_for_its_path_alone(witness: Witness) -> None:
    """Two paths with one key are two effects."""
    assert post(witness, "charge", key="k-1").json() != post(witness, "ship", key="k-1").json()

    assert [(each.path, each.applied) for each in witness.effects(CASE)] == [("charge", 1), ("ship", 1)]


def test_without_a_key_each_request_is_applied(witness: Witness) -> None:
    """What is sent three times happened three times."""
    for _ in range(3):
        post(witness, "mail/7?to=ada", "hello")

    assert witness.effects(CASE) == [Effect("mail/7?to=ada", "hello", None, applied=3, deliveries=3)]


def test_cases_are_counted_apart(witness: Witness) -> None:
    """One case's effects are neither shown nor forgotten with another's."""
    post(witness, "charge", key="k-1")

    assert witness.effects("another") == []
    witness.forget("another")
    assert len(witness.effects(CASE)) == 1
    witness.forget(CASE)
    assert witness.effects(CASE) == []


def test_requests_that_come_together_are_all_counted(witness: Witness) -> None:
    """Of many deliveries at once under one key one is applied; without a key all are."""
    url = f"{witness.url_of(CASE)}/e"
    with httpx.Client(trust_env=False) as http, ThreadPoolExecutor(8) as pool:
        kinds: list[dict[str, str]] = [{"Idempotency-Key": "k"}, {}] * 30
        answers = list(pool.map(lambda headers: http.post(url, headers=headers).status_code, kinds))

    assert answers == [200] * 60
    assert {(each.key, each.applied, each.deliveries) for each in witness.effects(CASE)} == {
        ("k", 1, 30),
        (None, 30, 30),
    }


@pytest.mark.parametrize(
    ("request_line", "headers", "body", "status"),
    [
        ("POST /", "Content-Length: 0\r\n", b"", b"404"),
        ("POST /case//", "Content-Length: 0\r\n", b"", b"404"),
        ("POST /_/effects/case", "Content-Length: 0\r\n", b"", b"405"),
        ("POST /case/x", "", b"", b"411"),
        ("POST /case/x", "Transfer-Encoding: chunked\r\n", b"0\r\n\r\n", b"411"),
        ("POST /case/x", "Content-Length: -1\r\n", b"", b"400"),
        ("POST /case/x", "Content-Length: 1\r\nContent-Length: 2\r\n", b"aa", b"400"),
        ("POST /case/x", "Content-Length: 5\r\n", b"four", b"400"),
        ("POST /case/x", "Content-Length: 0\r\nIdempotency-Key: \r\n", b"", b"400"),
        ("POST /case/x", "Content-Length: 0\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\n", b"", b"400"),
        ("POST /case/x", f"Content-Length: 0\r\nIdempotency-Key: {'k' * 1025}\r\n", b"", b"400"),
        ("POST /case/x", f"Content-Length: {MAX_BODY + 1}\r\n", b"x" * (MAX_BODY + 1), b"413"),
        ("PUT /case/x", "Content-Length: 0\r\n", b"", b"405"),
        ("GET /case/x", "", b"", b"405"),
        ("GET /_/nothing/case", "", b"", b"404"),
        ("far too many words", "", b"", b"400"),
    ],
)
def test_what_is_bad_is_refused_and_not_counted(
    witness: Witness, request_line: str, headers: str, body: bytes, status: bytes
) -> None:
    """The answer is a 4xx, and nothing was applied."""
    answer = raw(witness, f"{request_line} HTTP/1.0\r\n{headers}\r\n".encode() + body)

    assert status in answer, answer
    assert witness.effects("case") == []


def test_a_body_of_the_greatest_length_is_taken(witness: Witness) -> None:
    """The limit is the last length that is fine."""
    assert post(witness, "long", "x" * MAX_BODY).status_code == 200
    assert len(witness.effects(CASE)[0].body) == MAX_BODY


def test_it_ends_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for its end, may be repeated, and afterwards nothing of it can be asked."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    with Witness() as witness:
        pid = witness.pid
    witness.close()

    assert gone(pid)
    with pytest.raises(UsageError, match="isn't started"):
        witness.effects(CASE)


def test_a_witness_that_is_gone_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that nobody has any more aren't taken for none."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    with Witness() as witness:
        os.kill(witness.pid, signal.SIGKILL)
        with pytest.raises(UnexpectedError, match="doesn't answer"):
            witness.effects(CASE)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_parent(number: int) -> None:
    """However its parent ends, no process stays; a signal to the parent's group doesn't reach it before."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCES)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=environ, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        pid, url = parent.stdout.readline().split()
        assert os.getsid(int(pid)) == int(pid) != os.getsid(parent.pid)
        assert httpx.get(f"{url}/_/effects/x", trust_env=False).json() == {"effects": []}

        os.killpg(parent.pid, number)

    until(lambda: gone(int(pid)), within=10, told=lambda: f"process {pid} lives on")
