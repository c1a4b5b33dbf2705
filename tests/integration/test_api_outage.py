"""The interface while its PostgreSQL is stopped: answers in time, and nothing is lost or done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api_world import Api, noop, opened
from autocode.jobs.ledger import schema
from autocode.jobs.ledger.database import Database
from autocode.jobs.testing.postgres import PostgresServer, running_postgres
from events_world import number, on_port, tell
from ledger_world import in_threads, rows

QUICK = 5.0
"""Seconds within which a request is answered whatever the database does, and 3 more for a busy machine."""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Give a server of the test's own, since it is stopped."""
    with running_postgres(durable=False) as running:
        yield running


@contextmanager
def stopped(server: PostgresServer) -> Iterator[None]:
    """Stop every process of *server*, so that it takes connections and says nothing."""
    table = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = [tuple(map(int, line.split())) for line in table.splitlines()]
    processes = [server.pid or 0, *(pid for pid, parent in pairs if parent == server.pid)]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


def test_a_stopped_database_is_a_quick_503(server: PostgresServer, tmp_path: Path) -> None:
    """Enqueues are refused within seconds while PostgreSQL is stopped; asked again, each is one job."""
    database = Database(server.url(server.create_database()))
    database.migrate()
    with opened(database, tmp_path) as api:
        assert api.post("/v1/jobs", noop("before")).status_code == 202
        with stopped(server):
            answers = in_threads(20, lambda number: _timed(api, f"job-{number}"))
            late = _timed(api, "job-0")

        again = in_threads(20, lambda number: _until_accepted(api, f"job-{number}"))

    assert {status for status, _, _ in (*answers, late)} == {503}
    assert all(retry_after for _, retry_after, _ in (*answers, late))
    assert max(seconds for _, _, seconds in (*answers, late)) < QUICK + 3
    assert set(again) <= {200, 202}
    assert {row.job_id for row in rows(database, schema.jobs)} == {"before", *(f"job-{n}" for n in range(20))}
    assert len(rows(database, schema.events)) == 21
    database.close()


def test_followers_of_events_wait_for_the_database(server: PostgresServer, tmp_path: Path) -> None:
    """While PostgreSQL is stopped a socket stays open and claims no cursor; afterwards nothing is missing."""
    database = Database(server.url(server.create_database()))
    database.migrate()
    with on_port(database, tmp_path) as port, port.socket() as follower:
        tell(database, "before")
        assert follower.event()["subject"] == "before"
        with stopped(server):
            while follower.next()["cursor"] is not None:
                pass
        tell(database, "after")
        after = follower.event()

    assert (after["subject"], number(after["id"])) == ("after", 2)
    database.close()


def _timed(api: Api, job_id: str) -> tuple[int, str | None, float]:
    began = time.monotonic()
    answer = api.post("/v1/jobs", noop(job_id))
    return answer.status_code, answer.headers.get("retry-after"), time.monotonic() - began


def _until_accepted(api: Api, job_id: str) -> int:
    end = time.monotonic() + 30
    while True:
        status = api.post("/v1/jobs", noop(job_id)).status_code
        if status != 503 or time.monotonic() > end:
            return status
        threading.Event().wait(0.1)
