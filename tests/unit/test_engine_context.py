"""What an attempt may read, how its run is identified and continued, and what Prefect is told of us."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun

from autocode.jobs.engine import submit
from autocode.jobs.engine.context import folder_of
from autocode.jobs.engine.environment import child_environment, configure_client
from autocode.jobs.engine.runs import _final_state
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import attempts, glances, jobs
from autocode.jobs.ledger.database import Database, sqlite_url
from autocode.jobs.projection import Outcome
from autocode.jobs.settings import Home
from ledger_world import new_job, problem


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Give an empty home."""
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def test_a_tools_usual_folder_is_known_by_its_name(home: Home, tmp_path: Path) -> None:
    """A root that nobody added is looked for where the tools keep their sessions."""
    usual = tmp_path / "user" / ".claude" / "projects"
    usual.mkdir(parents=True)

    folder = folder_of(home, "claude-code", {}, tmp_path / "user")

    assert folder == usual


def test_a_root_that_was_added_is_known_by_its_name(home: Home, tmp_path: Path) -> None:
    """A folder that was exported from before keeps its name."""
    name = home.add_root(tmp_path)

    folder = folder_of(home, name, {}, tmp_path / "nobody")

    assert folder == tmp_path


def test_a_root_that_was_added_comes_before_the_usual_one(home: Home, tmp_path: Path) -> None:
    """Where both have the name, what somebody wrote down wins."""
    (tmp_path / "user" / ".claude" / "projects").mkdir(parents=True)
    (home.path / "roots.json").write_text(f'{{"claude-code": "{tmp_path}"}}')

    folder = folder_of(home, "claude-code", {}, tmp_path / "user")

    assert folder == tmp_path


def test_an_unknown_root_is_refused_with_the_names_that_are_known(home: Home, tmp_path: Path) -> None:
    """The error says which roots there are, the added and the usual ones."""
    name = home.add_root(tmp_path)
    (tmp_path / "user" / ".codex" / "sessions").mkdir(parents=True)

    with pytest.raises(UsageError) as caught:
        folder_of(home, "nowhere", {}, tmp_path / "user")

    assert "'nowhere'" in caught.value.detail
    assert caught.value.hint == f"Known roots: codex, {name}."


@dataclass
class FakeClient:
    """Prefect with one run, of a deployment or not; keeps what it was asked to create."""

    run: FlowRun
    created: list[dict[str, Any]] = field(default_factory=list)

    async def read_flow_run(self, run_id: UUID) -> FlowRun:
        """Return the run."""
        assert run_id == self.run.id
        return self.run

    async def create_flow_run_from_deployment(self, deployment_id: UUID, **asked: Any) -> FlowRun:
        """Note the request and return a new run."""
        self.created.append({"deployment_id": deployment_id, **asked})
        return FlowRun(id=uuid4(), flow_id=self.run.flow_id)


@pytest.mark.parametrize("deployed", [True, False])
def test_the_next_attempt_of_an_adopted_job_is_a_run_of_its_deployment(home: Home, deployed: bool) -> None:
    """After a failure, a worker finds the next run of the same deployment, due after the backoff, once."""
    db = Database(sqlite_url(home.ledger))
    db.migrate()
    deployment = uuid4() if deployed else None
    run = FlowRun(id=uuid4(), flow_id=uuid4(), deployment_id=deployment, work_queue_name="default")
    job_id, n = submit.identify(run)
    jobs.enqueue(db, new_job(job_id, origin="prefect"))
    jobs.enqueue(db, new_job("not-adopted"))
    attempt = attempts.begin(db, job_id, 1, flow_run_id=str(run.id), holder="worker")
    attempts.end(db, job_id, 1, Outcome.FAILED, error=problem(), token=attempt.token)
    [due] = [due for each, _, due in attempts.wants_run(db) if each == job_id]
    client: Any = FakeClient(run)
    system: Any = SimpleNamespace(db=db)

    asyncio.run(submit.submit_adopted(system, client))
    asyncio.run(submit.submit_adopted(system, client))
    left = [each for each, _, _ in attempts.wants_run(db)]
    epoch = glances.epoch(db)
    db.close()

    assert n is None
    if not deployed:
        assert client.created == []
        assert sorted(left) == ["not-adopted", job_id]
        return
    [asked] = client.created
    assert asked["deployment_id"] == deployment
    assert asked["idempotency_key"] == f"job:{epoch}:{job_id}:2"
    assert asked["parameters"] == {"size": 1}
    assert asked["state"].state_details.scheduled_time == due
    assert due > datetime(2025, 1, 1, tzinfo=UTC)
    assert left == ["not-adopted"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("job:0123456789ab:a:12", ("a", 12)),
        ("job:0123456789ab:a:b:12", ("a:b", 12)),
        ("job:0123456789ab:0123456789ab:a:12", ("0123456789ab:a", 12)),
        ("job:0123456789ab:12", ("0123456789ab", 12)),
        ("job:a:b:12", ("a:b", 12)),
        ("job:a:1", ("a", 1)),
        ("job:a:", None),
        ("job::1", None),
        ("scheduled 1 2 3", None),
        (None, None),
    ],
)
def test_a_run_says_by_its_key_which_attempt_it_is(key: str | None, expected: tuple[str, int] | None) -> None:
    """Keys of our own name job and attempt; any other run is Prefect's own."""
    run = FlowRun(id=uuid4(), flow_id=uuid4(), idempotency_key=key)

    identified = submit.identify(run)

    assert identified == (expected or (f"prefect:{run.id}", None))


def test_an_id_that_looks_like_an_epoch_is_known_by_the_tags_of_its_run() -> None:
    """A run of an earlier version, without an epoch, keeps its job also where the id begins like one."""
    key, tags = "job:0123456789ab:a:12", ["autocode-jobs", "job:0123456789ab:a"]
    run = FlowRun(id=uuid4(), flow_id=uuid4(), idempotency_key=key, tags=tags)

    identified = submit.identify(run)

    assert identified == ("0123456789ab:a", 12)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_is_being_cancelled_may_only_become_cancelled(outcome: Outcome) -> None:
    """Prefect refuses any other end for a run in CANCELLING; each outcome has an ending with a message."""
    cancelling = _final_state(outcome, "why", "CANCELLING")
    running = _final_state(outcome, "why", "RUNNING")

    assert cancelling.type.value == "CANCELLED"
    assert running.is_final()
    assert running.message == "why"


def test_foreign_settings_of_prefect_reach_neither_client_nor_server(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PREFECT_API_URL or a logging level of the user's own doesn't leak into the private server."""
    monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
    monkeypatch.setenv("PREFECT_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setattr(os, "environ", dict(os.environ))

    child = child_environment(home)
    configure_client(home)

    assert "PREFECT_API_URL" not in child
    assert child["PREFECT_LOGGING_LEVEL"] == "WARNING"
    assert "PREFECT_API_URL" not in os.environ
    assert os.environ["PREFECT_LOGGING_LEVEL"] == "CRITICAL"
    assert not logging.getLogger("EventsWorker").isEnabledFor(logging.ERROR)
    assert child["PREFECT_HOME"] == os.environ["PREFECT_HOME"] == str(home.prefect)
