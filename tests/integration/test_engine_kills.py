"""Processes that are killed, stopped, interrupted or doubled while they run a job."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import time
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.states import Cancelled

from autocode.jobs.canonical import digest_of
from autocode.jobs.engine.runs import PrefectRuns
from autocode.jobs.engine.server import Address, private_server
from autocode.jobs.ledger import attempts, checkpoints, queries, results
from autocode.jobs.ledger.checkpoints import Produced
from autocode.jobs.model import JobStatus
from autocode.jobs.testing import scenarios
from autocode.jobs.testing.scenarios import witnessed
from engine_world import Engine, prefect_client, runs_of, until

pytest_plugins = ["fixtures_engine"]
# Prefect leaves the socket of its event client to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

Served = tuple[Engine, Address]


def run_states(address: Address, engine: Engine, job_id: str) -> list[tuple[str, str]]:
    """Return type and message of the run of each attempt, in order of the attempts."""
    ids = [row.flow_run_id for row in engine.attempts(job_id)]
    runs, _ = asyncio.run(runs_of(address, [each for each in ids if each is not None]))
    by_id = {str(run.id): run.state for run in runs}
    states = [by_id[each] for each in ids if each is not None]
    return [(state.type.value, state.message or "") for state in states if state is not None]


def last(looks: list[dict[str, Any]]) -> tuple[str, int]:
    """Return the status and the number of attempts at the last look."""
    return looks[-1]["status"], looks[-1]["attempts"]


def stop_between_transactions(pid: int, engine: Engine) -> None:
    """Stop a process at a moment when it doesn't hold the ledger's write lock.

    One that does keeps every other process of its home waiting until it is woken or killed: SQLite has no
    lease. That is a limit of the home's file, and not what a test of leases is about.
    """

    def stopped_outside() -> bool:
        os.kill(pid, signal.SIGSTOP)
        with closing(sqlite3.connect(engine.home.ledger, timeout=0.5, isolation_level=None)) as ledger:
            try:
                ledger.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                return False
            ledger.execute("ROLLBACK")
            return True

    until(stopped_outside, within=30)


@pytest.mark.parametrize(
    "point",
    [
        "claim.after",
        # what a service makes of these is in the kill matrix
        *(
            pytest.param(p, marks=pytest.mark.long)
            for p in ("submit.after-create", "claim.before", "result.after")
        ),
    ],
)
def test_a_process_killed_at_a_crash_point_leaves_a_job_that_the_next_one_ends(
    served: Served, point: str
) -> None:
    """Kill at a point before, at and after the claim; the next process ends the job, once."""
    engine, address = served
    job_id = f"killed-{point}"
    killed = engine.start(scenarios.TEN_STEPS, job_id, crash=point, salt=job_id)
    status, _ = killed.ends()

    again = engine.start(scenarios.TEN_STEPS, job_id, salt=job_id)
    ended, told = again.ends()

    assert status == -signal.SIGKILL
    assert (ended, told) == (0, "")
    rows = engine.attempts(job_id)
    expected = {
        "submit.after-create": ["completed"],
        "claim.before": ["crashed", "completed"],
        "claim.after": ["crashed", "completed"],
        "result.after": ["completed"],
    }[point]
    assert [row.outcome for row in rows] == expected
    assert witnessed(engine.witness).count("join") == 1
    states = run_states(address, engine, job_id)
    assert [kind for kind, _ in states] == [
        {"crashed": "CRASHED", "completed": "COMPLETED"}[outcome] for outcome in expected
    ]
    if point == "result.after":
        committed = "The result sha256:[0-9a-f]{64} was committed"
        assert re.fullmatch(f"{committed}; the process died before it could say so.", states[0][1])
    elif len(states) == 2:
        follows = r"attempt 2 of 3 .* [0-9:]{8} \(UTC\)"
        assert re.fullmatch(f"the process died at [0-9:]{{8}}; {follows}", states[0][1])
    assert all(row.run_closed for row in rows)


def test_ctrl_c_hands_the_attempt_back_and_the_next_command_goes_on(served: Served) -> None:
    """SIGINT ends the command soon and quietly, uses no budget, and leaves the finished steps."""
    engine, address = served
    running = engine.start(scenarios.STUBBORN, "interrupted", seconds=2.0)
    until(lambda: witnessed(engine.witness) != [], within=90, told=lambda: running.looks)

    began = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    status, told = running.ends()
    took = time.monotonic() - began
    between = queries.get(engine.system.db, "interrupted")
    ended, said = engine.start(scenarios.STUBBORN, "interrupted", seconds=2.0).ends()

    assert (status, told) == (130, "")
    assert took < 20
    assert between.status == "retrying"
    rows = engine.attempts("interrupted")
    assert [row.outcome for row in rows] == ["interrupted", rows[1].outcome]
    assert [row.counts for row in rows] == [False, rows[1].counts]
    assert rows[1].due_at == rows[0].ended_at
    assert (ended, said) == (0, "")
    assert run_states(address, engine, "interrupted")[0][0] in {"CANCELLED", "CRASHED"}


def test_ctrl_c_does_not_wait_for_a_step_that_never_looks_up(served: Served) -> None:
    """A step that would block for a minute keeps nobody waiting."""
    engine, _ = served
    stubborn = engine.start(scenarios.STUBBORN, "blocking", seconds=120.0)
    until(lambda: any("stubborn" in line for line in witnessed(engine.witness)), within=90)

    stubborn.process.send_signal(signal.SIGINT)
    status, told = stubborn.ends(within=30)

    assert (status, told) == (130, "")


def test_two_processes_share_a_job_and_only_one_executes_it(served: Served) -> None:
    """Started at once on the same job, one process runs it and the other follows; both see it complete."""
    engine, _ = served
    pair = [engine.start(scenarios.SLOW, "shared", seconds=1.0, salt="shared") for _ in range(2)]

    ends = [running.ends() for running in pair]

    assert ends == [(0, ""), (0, "")]
    assert [last(running.looks) for running in pair] == [("complete", 1), ("complete", 1)]
    assert len(witnessed(engine.witness)) == 2
    assert [row.outcome for row in engine.attempts("shared")] == ["completed"]


def test_a_process_stopped_for_longer_than_its_lease_commits_nothing(served: Served) -> None:
    """Stop a process, let another take over, wake the first: it changes nothing, and the result is right."""
    engine, address = served
    first = engine.start(scenarios.SLOW, "stopped", seconds=3.0, salt="stopped")
    until(lambda: witnessed(engine.witness) != [], within=90, told=lambda: first.looks)

    stop_between_transactions(first.process.pid, engine)
    try:
        second = engine.start(scenarios.SLOW, "stopped", seconds=3.0, salt="stopped")
        until(lambda: len(engine.attempts("stopped")) == 2, within=90, told=lambda: second.looks)
        until(lambda: any(look["possible_double_run"] for look in second.looks), within=60)
    finally:
        os.kill(first.process.pid, signal.SIGCONT)
    ends = [first.ends(), second.ends()]

    assert ends == [(0, ""), (0, "")]
    rows = engine.attempts("stopped")
    assert [(row.outcome, row.counts) for row in rows] == [("lost", True), ("completed", False)]
    job = queries.get(engine.system.db, "stopped")
    assert job.status == "complete"
    assert [entry.attempt for entry in job.history] == [2]
    assert job.result is not None
    assert job.result.digest == digest_of(b"slow stopped")
    assert run_states(address, engine, "stopped")[1][0] == "COMPLETED"


def test_a_run_that_is_cancelled_in_prefect_ends_the_attempt_and_is_replaced(served: Served) -> None:
    """Somebody cancels the run in Prefect: the attempt stops, and the job goes on in another run."""
    engine, address = served
    running = engine.start(scenarios.SLOW, "cancelled-there", seconds=5.0, salt="cancelled-there")
    until(lambda: witnessed(engine.witness) != [], within=90, told=lambda: running.looks)
    [attempt] = engine.attempts("cancelled-there")

    async def cancel() -> None:
        async with prefect_client(address) as client:
            await client.set_flow_run_state(UUID(attempt.flow_run_id), Cancelled(message="not now"))

    asyncio.run(cancel())
    status, told = running.ends()

    assert (status, told) == (0, "")
    assert last(running.looks) == ("complete", 2)
    rows = engine.attempts("cancelled-there")
    assert [row.outcome for row in rows] == ["failed", "completed"]
    assert "not now" in rows[0].error["detail"]


def test_a_committed_result_whose_object_is_damaged_is_taken_back(served: Served) -> None:
    """A result that can't be verified is never shown as complete; the job is done again."""
    engine, _ = served
    db, store = engine.system.db, engine.system.store
    engine.accept(scenarios.NOOP, "rejected", salt="rejected")
    attempt = attempts.begin(db, "rejected", 1, flow_run_id=str(uuid4()), holder="somebody")
    with store.stage() as staging:
        staging.write(b"a result")
        info = staging.finish()
        checkpoints.reserve(db, attempt, info.digest, info.size)
        staging.publish()
    results.commit_result(db, attempt, Produced(info.digest, info.size, "text/plain"))
    [path] = engine.home.store.rglob(f"{info.digest.removeprefix('sha256:')}*")
    path.chmod(0o600)
    path.write_bytes(b"rotten")

    job, looks = engine.run(scenarios.NOOP, "rejected", salt="rejected")

    rows = engine.attempts("rejected")
    assert [(row.outcome, row.counts) for row in rows] == [("failed", True), ("completed", False)]
    assert rows[0].error["type"] == "object-corrupt"
    assert job.result is not None
    assert job.result.digest == digest_of(b"nothing rejected")
    first = [look.status for look in looks].index(JobStatus.COMPLETE)
    assert all(look.attempts == 2 for look in looks[first:])


def test_the_server_is_killed_during_a_run_and_the_job_ends_all_the_same(engine: Engine) -> None:
    """A client starts a killed server again at the same address, and the run in flight goes on."""
    running = engine.start(scenarios.SLOW, "server-killed", seconds=4.0)
    until(lambda: witnessed(engine.witness) != [], within=90, told=lambda: running.looks)

    with private_server(engine.home) as before:
        os.kill(before.pid, signal.SIGKILL)
        until(lambda: server_pid(engine) not in {None, before.pid}, within=90)
        status, told = running.ends(within=120)
        with private_server(engine.home) as after:
            state = asyncio.run(state_of(after, engine.attempts("server-killed")[0].flow_run_id))

    assert (status, told) == (0, "")
    assert last(running.looks) == ("complete", 1)
    assert (after.url, after.auth) == (before.url, before.auth)
    assert after.pid != before.pid
    assert state == "COMPLETED"


def server_pid(engine: Engine) -> int | None:
    """Return the process id that the living server recorded."""
    if not engine.server_lives():
        return None
    recorded = json.loads((engine.home.run / "server.json").read_text("utf-8"))
    return int(recorded["pid"])


async def state_of(address: Address, run_id: str) -> str | None:
    """Ask Prefect for the state type of a run."""
    async with prefect_client(address) as client:
        return (await PrefectRuns(client).look([run_id]))[run_id].state.type
