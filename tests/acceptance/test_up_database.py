"""``autocode-jobs up --database-url``: other commands of the home find the ledger that the service has."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs.testing.postgres import PostgresServer
from autocode.jobs.testing.samples import write_samples
from service_command import Service

pytest_plugins = ["fixtures_postgres"]
pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def service(tmp_path: Path, postgres_url: str) -> Iterator[Service]:
    """Give a home whose service is told of a database; its other commands aren't."""
    service = Service(tmp_path / "home", "--database-url", postgres_url.replace("+psycopg", ""))
    yield service
    service.close()


def test_a_service_on_a_database_by_url_has_the_only_ledger(
    service: Service, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    """Without the variable jobs are run and read there; another database is refused, now and afterwards."""
    sessions = tmp_path / "sessions"
    write_samples(sessions, seed=1, sessions=2, megabytes=0.1)
    other = postgres_server.create_database()
    service.start()

    export = service.run("export", str(sessions), "--output", str(tmp_path), "--json")
    job = json.loads(export.stdout.splitlines()[-1])
    listed = service.run("jobs", "list", "--json")
    shown = service.run("jobs", "show", job["job_id"])
    doctor = service.run("doctor")
    elsewhere = Service(service.home, environ={"AUTOCODE_DATABASE_URL": postgres_server.url(other)})
    refused = elsewhere.run("jobs", "list")
    service.signal(signal.SIGTERM)
    ended = service.end()
    afterwards = service.run("jobs", "list")

    assert (export.returncode, job["status"]) == (0, "complete"), export.stderr
    assert [json.loads(line)["job_id"] for line in listed.stdout.splitlines()] == [job["job_id"]]
    assert (shown.returncode, doctor.returncode) == (0, 0), shown.stderr + doctor.stdout
    assert (refused.returncode, afterwards.returncode, ended) == (2, 2, 0)
    assert other in refused.stderr
    assert "***" in refused.stderr
    assert "AUTOCODE_DATABASE_URL" in afterwards.stderr
    assert not (service.home / "ledger.db").exists()
    postgres_server.drop_database(other)
