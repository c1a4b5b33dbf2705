"""The client: typed answers, the errors of the tree, and what it repeats while the service is away."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api_world import BASE, NOOP, Api, complete, kill
from autocode.jobs import locks
from autocode.jobs.client import Client, discover
from autocode.jobs.errors import (
    JobConflict,
    JobFinished,
    JobNotFound,
    JobsError,
    KindUnknown,
    PayloadInvalid,
    RevisionMoved,
    UsageError,
)
from autocode.jobs.ledger.access import Role
from autocode.jobs.request_errors import NotAllowed, ServiceUnavailable, TokenInvalid, TooManyRequests
from autocode.jobs.settings import Home
from ledger_world import begin, look

pytest_plugins = ["fixtures_api"]

PAYLOAD = {"witness": "w"}


class Played(httpx.BaseTransport):
    """A service that gives the answers of a script, the last one from then on.

    Args:
        script: statuses, errors to raise, or functions of the request.
    """

    def __init__(self, *script: int | Exception | Callable[[httpx.Request], httpx.Response]) -> None:
        self.script = list(script)
        self.sent: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Give the next answer."""
        self.sent.append(request)
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, Exception):
            raise step
        if not isinstance(step, int):
            return step(request)
        body = {"type": "ledger-unavailable", "detail": "It is away.", "hint": "Wait.", "status": step}
        return httpx.Response(step, json=body, headers={"Retry-After": "1"} if step == 503 else {})


class Pauses:
    """A clock that moves by the pauses that are made."""

    def __init__(self) -> None:
        self.made: list[float] = []

    def sleep(self, seconds: float) -> None:
        """Note the pause."""
        self.made.append(seconds)

    def monotonic(self) -> float:
        """Return how long all pauses were."""
        return sum(self.made)


def played(transport: httpx.BaseTransport, pauses: Pauses, **options: Any) -> Client:
    """Return a client of a played service."""
    clocks: dict[str, Any] = {"sleep": pauses.sleep, "monotonic": pauses.monotonic}
    return Client(BASE, "secret", transport=transport, **clocks, **options)


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    """Give an admin's client of an empty service."""
    with api.client() as opened:
        yield opened


def test_a_job_is_submitted_once(client: Client) -> None:
    """The same request by id is the same job, and the answer says whether it is new."""
    first, again = (client.enqueue(NOOP, PAYLOAD, job_id="job", session_id="s-1") for _ in range(2))

    assert (first.created, again.created, first.job) == (True, False, again.job)
    assert client.get("job") == first.job


def test_a_request_without_an_id_has_a_key(client: Client) -> None:
    """Each call without id and key is a job of its own; a key of the caller's is kept to."""
    ids = [client.enqueue(NOOP, PAYLOAD, key=key).job.job_id for key in (None, None, "k", "k")]

    assert len(set(ids)) == 3
    assert ids[2] == ids[3]


def test_errors_are_those_of_the_tree(client: Client, api: Api) -> None:
    """Each refusal is the class that the service raised, with what it points at."""
    client.enqueue(NOOP, PAYLOAD, job_id="job")

    with pytest.raises(JobConflict) as conflict:
        client.enqueue(NOOP, {"witness": "other"}, job_id="job")
    with pytest.raises(PayloadInvalid) as payload:
        client.enqueue(NOOP, {})
    with pytest.raises(KindUnknown):
        client.enqueue("none", {})
    with pytest.raises(JobNotFound):
        client.get("../none")
    with pytest.raises(UsageError):
        list(client.list_jobs(status=["done"]))
    with pytest.raises(TokenInvalid):
        Client(BASE, "wrong", transport=api.client()._transport._http._transport).get("job")
    with api.client(Role.VIEWER) as viewer, pytest.raises(NotAllowed):
        viewer.cancel("job", reason="no more")
    assert conflict.value.data["differs"] == ["payload.witness"]
    assert payload.value.data["fields"][0]["pointer"] == "/payload/witness"


def test_following_ends_with_the_job(client: Client, api: Api) -> None:
    """Each state that is seen is yielded, and the last one is the end."""
    client.enqueue(NOOP, PAYLOAD, job_id="job")
    seen, begun = [], []

    for job in client.follow("job", timeout=60):
        seen.append(str(job.status))
        if job.status == "queued":
            begun.append(begin(api.db))
            look(api.db)
        elif job.status == "running":
            complete(api.db, begun[0])

    assert seen == ["queued", "running", "complete"]
    assert client.wait("job").result is not None


def test_waiting_gives_up(client: Client) -> None:
    """A job that doesn't end in time is a TimeoutError that says how it stands."""
    client.enqueue(NOOP, PAYLOAD, job_id="job")

    with pytest.raises(TimeoutError, match="queued"):
        client.wait("job", timeout=0.5)


def test_lists_go_over_pages(client: Client) -> None:
    """A list yields every job, however small its pages, and the counts agree."""
    for number in range(5):
        client.enqueue(NOOP, PAYLOAD, job_id=f"job-{number}")

    listed = list(client.list_jobs(page_size=2, status=["queued"]))

    assert sorted(job.job_id for job in listed) == [f"job-{number}" for number in range(5)]
    assert client.counts(kind=NOOP).queued == 5
    assert client.counts(status=["dead"]).queued == 0


def test_a_dead_job_is_retried(client: Client, api: Api) -> None:
    """A preview, the retry on its revision, and the second who decided on the same."""
    client.enqueue(NOOP, PAYLOAD, job_id="job")
    kill(api.db)
    preview = client.retry_preview("job")

    client.retry("job", reason="again", rev=preview.rev, start="start", attempts=2)

    assert preview.dead
    with pytest.raises(RevisionMoved):
        client.retry("job", reason="again", rev=preview.rev)


def test_a_job_is_called_off(client: Client, api: Api) -> None:
    """A cancel is accepted until the job is over."""
    client.enqueue(NOOP, PAYLOAD, job_id="job")
    client.enqueue(NOOP, PAYLOAD, job_id="done")
    complete(api.db, begin(api.db, "done"))

    client.cancel("job", reason="no more")

    with pytest.raises(JobFinished):
        client.cancel("done", reason="no more")


def test_health_and_logins(client: Client) -> None:
    """The parts are told by name, and an admin gets a link for a browser."""
    assert client.health()["checks"]["ledger"]["status"] == "ok"
    assert client.login_link().startswith(f"{BASE}/login?code=")


def test_health_is_told_while_the_ledger_is_away() -> None:
    """A 503 of ``/readyz`` is an answer like another."""
    away = Played(lambda request: httpx.Response(503, json={"status": "unavailable"}, request=request))

    assert played(away, Pauses()).health() == {"status": "unavailable"}


def test_an_enqueue_is_sent_again_with_the_same_key() -> None:
    """While the service is away the same request is sent again, as long as the service asks, with one key."""
    job = json.dumps({"detail": "x", "hint": "y", "type": "usage"})
    service = Played(
        httpx.ConnectError("refused"),
        503,
        httpx.ReadTimeout("late"),
        lambda request: httpx.Response(422, content=job, request=request),
    )
    pauses = Pauses()

    with pytest.raises(UsageError):
        played(service, pauses).enqueue(NOOP, PAYLOAD)

    assert len({request.headers["idempotency-key"] for request in service.sent}) == 1
    assert [request.read() for request in service.sent] == [service.sent[0].read()] * 4
    assert pauses.made[1] == 1.0


def limit(seconds: int) -> Callable[[httpx.Request], httpx.Response]:
    """Return a service that says to come back in *seconds*."""
    body = {"type": "too-many-requests", "detail": "Too many.", "hint": "Wait.", "status": 429}
    return lambda _: httpx.Response(429, json=body, headers={"Retry-After": str(seconds)})


def test_a_limit_is_kept_to() -> None:
    """After a 429 what may be sent again is, as late as the service says and not sooner."""
    pauses = Pauses()
    transport = Played(limit(7), lambda _: httpx.Response(200, json={"status": "ready"}), 200)
    with played(transport, pauses) as client:
        answer = client._transport.send("GET", "/readyz", again=True)

    assert (answer.status_code, pauses.made) == (200, [7])


def test_a_limit_is_told_where_waiting_is_no_use() -> None:
    """A request that is sent once, or a limit longer than the client's patience, is an error at once."""
    pauses = Pauses()
    with played(Played(limit(7)), pauses) as client, pytest.raises(TooManyRequests):
        client.retry("job", reason="x", rev=1)
    with played(Played(limit(3600)), pauses, patience=30.0) as client, pytest.raises(TooManyRequests):
        client.get("job")

    assert pauses.made == []


def test_patience_ends() -> None:
    """A service that stays away is given up after the client's patience, with the error that it is."""
    pauses = Pauses()
    service = Played(503)

    with pytest.raises(JobsError, match="away"):
        played(service, pauses, patience=10.0).get("job")
    with pytest.raises(ServiceUnavailable):
        played(Played(httpx.ConnectError("refused")), Pauses(), patience=3.0).get("job")

    assert sum(pauses.made) <= 10.0
    assert len(service.sent) > 3


@pytest.mark.parametrize("step", [httpx.ReadTimeout("late"), 503])
def test_a_retry_is_sent_once(step: int | Exception) -> None:
    """A retry isn't idempotent: the client doesn't send it twice."""
    service = Played(step)

    with pytest.raises(JobsError):
        played(service, Pauses()).retry("job", reason="again", rev=1)

    assert len(service.sent) == 1


def test_something_else_in_its_place_is_told() -> None:
    """An answer that is no problem, as of a proxy, is called what it is."""
    service = Played(lambda request: httpx.Response(502, html="<h1>Bad gateway</h1>", request=request))

    with pytest.raises(ServiceUnavailable, match="502"):
        played(service, Pauses()).get("job")


def test_the_token_is_shown_nowhere(api: Api) -> None:
    """Neither the client's text nor an error's has the token."""
    service = Played(httpx.ConnectError("refused"))

    with pytest.raises(ServiceUnavailable) as caught:
        played(service, Pauses(), patience=0.0).get("job")

    assert "secret" not in repr(played(service, Pauses())) + str(caught.value) + caught.value.hint


@pytest.mark.parametrize("url", ["", "127.0.0.1:4280", "ftp://127.0.0.1", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """What isn't an HTTP address is a usage error."""
    with pytest.raises(UsageError):
        Client(url, "token")


def test_the_environment_names_a_service(tmp_path: Path) -> None:
    """An address in the environment wins, and needs its token."""
    home = Home(tmp_path)
    environ = {"AUTOCODE_URL": "http://jobs.example:1/", "AUTOCODE_TOKEN": "t"}

    found = discover(home, environ)

    assert found is not None
    assert found.url == "http://jobs.example:1"
    with pytest.raises(UsageError, match="AUTOCODE_TOKEN"):
        discover(home, {"AUTOCODE_URL": "http://jobs.example:1/"})


def test_a_service_of_the_home_is_found_while_it_lives(tmp_path: Path) -> None:
    """Files that a service left behind are no service; a lock that is held is one."""
    home = Home(tmp_path)
    home.prepare()
    facts = {"pid": os.getpid(), "url": BASE, "at": "2026-01-05T10:15:00.000Z"}
    (home.run / "api.json").write_text(json.dumps(facts))
    (home.run / "token").write_text("t\n")
    with locks.owned(home.run / "api.lock", within=1):
        found = discover(home, {})

    assert found is not None
    assert found.url == BASE
    assert discover(home, {}) is None
