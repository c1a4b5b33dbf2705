"""``/livez`` and ``/readyz``, and what a request is told while the database is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from api_world import Api, noop, opened
from autocode.jobs import locks
from autocode.jobs.api import health
from autocode.jobs.api.settings import Settings
from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger import queries, schema
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database
from ledger_world import in_threads

pytest_plugins = ["fixtures_api"]


@contextmanager
def silent(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let every transaction hang, as one with a stopped server does, until the event is set."""
    answering = threading.Event()
    read, write = api.db.read, api.db.write

    @contextmanager
    def held(transaction: Any) -> Iterator[sa.Connection]:
        answering.wait()
        with transaction() as tx:
            yield tx

    monkeypatch.setattr(api.db, "read", lambda: held(read))
    monkeypatch.setattr(api.db, "write", lambda: held(write))
    try:
        yield answering
    finally:
        answering.set()


def lead(api: Api, term: int, renewals: int, holder: str = "here:1") -> None:
    """Let a reconciler have renewed its lead."""
    table = schema.leaders
    with api.db.write() as tx:
        tx.execute(sa.delete(table))
        tx.execute(
            sa.insert(table).values(
                role="reconcile", holder=holder, term=term, renewals=renewals, since=api.db.clock.now()
            )
        )


def check(api: Api, name: str) -> str:
    """Return the word for one part."""
    return str(api.get("/readyz", token=None).json()["checks"][name]["status"])


def test_a_process_that_answers_is_alive(api: Api) -> None:
    """``/livez`` needs no token, no ledger and no Prefect."""
    answer = api.get("/livez", token=None)

    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


def test_what_is_not_known_is_said(api: Api) -> None:
    """A process that knows of nothing but its ledger says so; it takes jobs all the same."""
    answer = api.get("/readyz", token=None)

    body = answer.json()
    words = {name: found["status"] for name, found in body["checks"].items()}
    assert (answer.status_code, body["status"]) == (200, "degraded")
    assert words == {
        "ledger": "ok",
        "prefect": "unknown",
        "reconciler": "missing",
        "worker": "unknown",
        "disk": "ok",
    }
    assert all(found["detail"] for found in body["checks"].values())


def test_a_leader_is_judged_by_its_counter(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look can't tell; a counter that moves is a leader that lives, one that stands still is none."""
    monkeypatch.setattr(health, "LEASE_SECONDS", 0.0)
    lead(api, 1, 1)
    words = [check(api, "reconciler")]

    lead(api, 1, 2)
    words.append(check(api, "reconciler"))
    words.append(check(api, "reconciler"))
    lead(api, 2, 1)
    words.append(check(api, "reconciler"))

    assert words == ["unknown", "ok", "missing", "ok"]


def test_who_leads_is_told_to_those_with_a_token_alone(api: Api) -> None:
    """Host, process and id of a leader are nobody's business without a token; that one leads is."""
    told = []
    for renewals in (1, 2):
        lead(api, 1, renewals, holder="db-host:4711:c0ffee")
        told += [
            api.get("/readyz", token=token).json()["checks"]["reconciler"]["detail"]
            for token in (None, "wrong", Role.ADMIN)
        ]

    assert told[0].startswith("A reconciler was the last to lead; ")
    assert {told[1], told[3], told[4]} == {"A reconciler leads (term 1)."}
    assert {told[2], told[5]} == {"db-host:4711:c0ffee leads (term 1)."}


def test_a_lead_that_was_given_up_names_nobody(api: Api) -> None:
    """After the leader ended in order nobody leads, and the words say so instead of an empty name."""
    lead(api, 1, 1, holder="")

    found = api.get("/readyz", token=None).json()["checks"]["reconciler"]

    assert found == {"status": "missing", "detail": "No reconciler leads: the last one ended in order."}


def test_processes_of_this_machine_are_named_to_those_with_a_token_alone(api: Api) -> None:
    """The names of locks hold process ids."""
    with locks.owned(api.home.run / "worker-4711.lock", within=1):
        told = [api.get("/readyz", token=token).json()["checks"]["worker"] for token in (None, Role.ADMIN)]

    assert told == [
        {"status": "ok", "detail": "Running on this machine."},
        {"status": "ok", "detail": "Running on this machine: worker-4711."},
    ]


def test_a_worker_of_this_home_is_known_by_its_lock(api: Api) -> None:
    """A lock that a process holds proves that a worker lives; one that nobody holds proves nothing."""
    path = api.home.run / "worker-1.lock"
    with locks.owned(path, within=1):
        held = check(api, "worker")

    assert (held, check(api, "worker")) == ("ok", "unknown")


def test_a_prefect_that_is_not_there_is_unavailable(sqlite_ledger: Database, tmp_path: Path) -> None:
    """A Prefect that refuses the connection is told so, and jobs are still accepted."""
    settings = Settings(prefect_api="http://127.0.0.1:9/api", prefect_auth="admin:s3cret")
    with opened(sqlite_ledger, tmp_path, settings) as api:
        answer = api.get("/readyz", token=None)
        accepted = api.post("/v1/jobs", noop())

    assert answer.json()["checks"]["prefect"]["status"] == "unavailable"
    assert "s3cret" not in answer.text
    assert (answer.status_code, accepted.status_code) == (200, 202)


def test_a_silent_database_is_a_quick_503(
    sqlite_ledger: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database says nothing, requests are answered in time: 503, and when to ask again."""
    with opened(sqlite_ledger, tmp_path, Settings(ledger_seconds=0.3)) as api, silent(api, monkeypatch):
        began = time.monotonic()
        answers = in_threads(20, lambda number: api.post("/v1/jobs", noop(f"job-{number}")))
        late = api.post("/v1/jobs", noop())
        seconds = time.monotonic() - began
        ready, alive = api.get("/readyz", token=None), api.get("/livez", token=None)

    for answer in (*answers, late):
        assert (answer.status_code, answer.json()["type"]) == (503, "ledger-unavailable")
        assert int(answer.headers["retry-after"]) > 0
    assert seconds < 15
    assert (ready.status_code, ready.json()["status"], alive.status_code) == (503, "unavailable", 200)
    assert ready.json()["checks"]["reconciler"]["status"] == "unknown"


def test_after_an_outage_asking_again_is_safe(
    sqlite_ledger: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was answered with 503 may have been accepted late; the same id is then the same job."""
    with opened(sqlite_ledger, tmp_path, Settings(ledger_seconds=0.3)) as api:
        with silent(api, monkeypatch):
            away = api.post("/v1/jobs", noop())
        deadline = time.monotonic() + 10
        while (again := api.post("/v1/jobs", noop())).status_code == 503:
            assert time.monotonic() < deadline

    assert away.status_code == 503
    assert again.status_code in {200, 202}
    assert queries.get(sqlite_ledger, "job").rev == 1


def test_a_broken_database_is_a_503(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that refuses is told like one that says nothing; its own words stay inside."""

    def refuse() -> None:
        raise LedgerUnavailable("The ledger's database did not answer: no route to 10.1.2.3.")

    monkeypatch.setattr(api.db, "read", refuse)

    answer = api.get("/v1/jobs")

    assert (answer.status_code, answer.json()["type"]) == (503, "ledger-unavailable")
    assert answer.headers["retry-after"]
    assert "10.1.2.3" not in answer.text + api.get("/readyz").text
