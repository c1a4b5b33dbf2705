"""What runs are called in Prefect, and that their pages never stand in a job's way."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings

from autocode.jobs.engine.context import AttemptContext
from autocode.jobs.engine.lease import LeaseKeeper
from autocode.jobs.engine.naming import adopted_name, artifact_key
from autocode.jobs.engine.report_text import report_text
from autocode.jobs.engine.rescue import SeenRun
from autocode.jobs.engine.run_page import RunPage
from autocode.jobs.engine.run_reports import Reports
from autocode.jobs.ledger import attempts
from autocode.jobs.ledger.reports import attempt_report
from autocode.jobs.projection import Outcome, RunState
from ledger_world import commit
from reconcile_world import World, template, world

__all__ = ["template", "world"]


@pytest.fixture
def hanging_prefect() -> Iterator[str]:
    """Give the address of a server that accepts connections and never answers."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/api"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("brave-fox", "export brave-fox · attempt 1"),
        ("export brave-fox · attempt 3", "export brave-fox · attempt 1"),
        ("exports · weekly", "export exports · weekly · attempt 1"),
    ],
)
def test_an_adopted_run_keeps_its_name_within_ours(given: str, expected: str) -> None:
    """The given name stands in the new one, once, however often it is made."""
    assert adopted_name("export", given, 1) == expected


def test_keys_of_artifacts_are_safe_and_tell_ids_apart() -> None:
    """Any id gives lowercase letters, digits and dashes; ids that differ at all have different keys."""
    ids = ["a.b", "a-b", "A-b", "a:b", "a_b", "x" * 128, "x" * 127, "prefect:0a-1", "0"]

    keys = [artifact_key(each, "report") for each in ids]

    assert len(set(keys)) == len(ids)
    for key in keys:
        assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", key)
        assert len(key) < 100


def test_a_label_can_not_change_the_page(world: World) -> None:
    """Whatever a step is called stands in one cell of the table, as text."""
    attempt = world.begin()
    commit(world.system.db, attempt, "a", label="<img src=x> | `b`\n# c")
    attempts.end(world.system.db, "job", 1, Outcome.PERMANENT, token=attempt.token)

    text = report_text(attempt_report(world.system.db, "job", 1), {"a|b": 1000})

    assert "| 1 | \\<img src=x\\> \\| \\`b\\` \\# c |" in text
    assert "| a\\|b | 1,000 |" in text
    assert "autocode-jobs jobs retry job" in text


def test_a_prefect_that_hangs_costs_a_run_two_seconds_and_nothing_else(
    world: World, hanging_prefect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt whose page can't be shown goes on, and its end waits for two seconds at most."""
    monkeypatch.setenv("AUTOCODE_RECONCILED", "1")
    attempt = world.begin()
    context = AttemptContext(world.system, attempt, LeaseKeeper(world.system.db, attempt))
    run = FlowRun(flow_id=uuid4(), name="r", idempotency_key="job:job:1")

    async def work() -> float:
        page = RunPage(context, "noop", run)
        with page.followed():
            await asyncio.to_thread(context.progress, 1, 2, "parts")
            await asyncio.sleep(0.7)
        began = time.monotonic()
        await page.finish()
        return time.monotonic() - began

    with temporary_settings({PREFECT_API_URL: hanging_prefect}):
        took = asyncio.run(work())

    assert took < 4.0


def test_a_report_that_can_not_be_written_settles_all_the_same(world: World) -> None:
    """The reconciler waits for no report, and one that fails doesn't keep the attempt's run open."""
    attempt = world.begin()
    attempts.end(world.system.db, "job", 1, Outcome.CRASHED, token=attempt.token)
    row = world.rows()[0]
    asked: list[str] = []
    asked_twice = asyncio.Event()

    async def read_artifacts(**_: Any) -> list[Any]:
        asked.append("read")
        await asked_twice.wait()
        raise OSError("nobody there")

    async def settle() -> list[bool]:
        client = cast("PrefectClient", SimpleNamespace(read_artifacts=read_artifacts))
        reports = Reports(world.system, client)
        seen = SeenRun(RunState("CRASHED"))
        answers = [await reports.settled(row, seen), await reports.settled(row, seen)]
        asked_twice.set()
        while not answers[-1]:
            await asyncio.sleep(0)
            answers.append(await reports.settled(row, seen))
        answers.append(await Reports(world.system, client).settled(row, SeenRun(RunState("GONE"))))
        return answers

    answers = asyncio.run(asyncio.wait_for(settle(), 20.0))

    assert (answers[:2], answers[-2:]) == ([False, False], [True, True])
    assert asked == ["read"]
