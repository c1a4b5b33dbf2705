"""Jobs run to their end against a real Prefect server: retries, budget, memo, and what Prefect shows."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from autocode.jobs import crash
from autocode.jobs.clock import parse_time
from autocode.jobs.engine.oneshot import run_to_end
from autocode.jobs.engine.server import Address
from autocode.jobs.engine.system import open_system
from autocode.jobs.ledger import attempts, events, glances, results, retries
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.settings import Home
from autocode.jobs.testing import scenarios
from autocode.jobs.testing.scenarios import witnessed
from engine_world import Engine, artifacts_of, runs_of, until

pytest_plugins = ["fixtures_engine"]
# Prefect leaves the socket of its event client to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

Served = tuple[Engine, Address]


def task_states(
    address: Address, engine: Engine, job_id: str, *, expected: int
) -> dict[str, tuple[str, str]]:
    """Return name and message of the state of each task run of a job, once Prefect has recorded them all."""
    ids = [row.flow_run_id for row in engine.attempts(job_id) if row.flow_run_id is not None]
    found: dict[str, tuple[str, str]] = {}

    def recorded() -> bool:
        _, tasks = asyncio.run(runs_of(address, ids))
        found.clear()
        for task in tasks:
            if task.state is not None and task.state.is_final():
                found[task.name] = (task.state.name or "", task.state.message or "")
        return len(found) >= expected

    until(recorded, within=20, told=lambda: found)
    return found


def test_a_job_goes_from_queued_over_running_to_complete(served: Served) -> None:
    """A job that is run shows queued, running, complete in this order, and has its result in the store."""
    engine, _ = served

    job, looks = engine.run(scenarios.NOOP, "plain", salt="plain")

    assert job.status is JobStatus.COMPLETE
    assert job.result is not None
    assert engine.system.store.verify(job.result.digest) is not None
    order = [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.COMPLETE]
    seen = [look.status for look in looks]
    assert seen == sorted(seen, key=order.index)
    assert [look.rev for look in looks] == sorted(look.rev for look in looks)


def test_a_one_shot_run_tells_its_result_and_makes_no_prefect_artifacts(served: Served) -> None:
    """A command that runs its job itself spends no time on pages, since its server has none."""
    engine, address = served

    job, _ = engine.run(scenarios.TEN_STEPS, "by-hand", salt="by-hand")
    runs, _ = asyncio.run(runs_of(address, [engine.attempts("by-hand")[0].flow_run_id]))

    assert job.result is not None
    assert runs[0].state is not None
    assert runs[0].state.message == f"Result {job.result.digest} committed; 11 steps done, 0 reused."
    assert asyncio.run(artifacts_of(address, runs[0].id)) == {}


def test_each_attempt_is_one_flow_run_with_the_key_of_the_attempt(served: Served) -> None:
    """Every attempt has a flow run of its own, which Prefect knows by the key job:<epoch>:<id>:<n>."""
    engine, address = served

    job, _ = engine.run(scenarios.BROKEN, "keys")
    rows = engine.attempts("keys")
    runs, _ = asyncio.run(runs_of(address, [row.flow_run_id for row in rows]))

    assert job.status is JobStatus.DEAD
    assert len({row.flow_run_id for row in rows}) == 3
    epoch = glances.epoch(engine.system.db)
    assert {run.idempotency_key for run in runs} == {f"job:{epoch}:keys:{n}" for n in (1, 2, 3)}
    assert {str(run.state.type.value) for run in runs if run.state is not None} == {"FAILED"}
    assert [row.run_closed for row in rows] == [True, True, True]


def test_a_transient_error_is_retried_within_the_attempt_and_announced(served: Served) -> None:
    """A step that fails twice succeeds in the same attempt; the time of the next try was persisted first."""
    engine, address = served

    job, _ = engine.run(scenarios.FLAKY, "flaky", failures=2)
    told = [event for event in events.read_after(engine.system.db, 0) if event.job_id == "flaky"]
    announced = [event.data["progress"]["retry_at"] for event in told if event.type == "job.progress"]

    assert job.status is JobStatus.COMPLETE
    assert job.attempts == 1
    assert witnessed(engine.witness) == ["try", "try", "try"]
    assert any(announced)
    assert job.progress is not None
    assert job.progress.retry_at is None
    assert task_states(address, engine, "flaky", expected=1)["sometimes"][0] == "Completed"


def test_a_permanent_error_ends_the_job_at_once_with_a_hint(served: Served) -> None:
    """A permanent error is tried once, and the dead job says what to do."""
    engine, _ = served

    job, _ = engine.run(scenarios.PERMANENT, "permanent")

    assert (job.status, job.reason) == (JobStatus.DEAD, DeadReason.PERMANENT)
    assert witnessed(engine.witness) == ["try"]
    assert job.error is not None
    assert (job.error.hint, job.error.step, job.error.retryable) == (
        "Don't use this scenario.",
        "never",
        False,
    )


def test_a_spent_budget_ends_the_job_after_pauses_that_grow(served: Served) -> None:
    """An error that stays uses up the budget, with a pause before each further attempt."""
    engine, _ = served

    job, looks = engine.run(scenarios.BROKEN, "spent")
    rows = engine.attempts("spent")

    assert (job.status, job.reason, job.attempts) == (JobStatus.DEAD, DeadReason.EXHAUSTED, 3)
    pauses = [(later.due_at - row.ended_at).total_seconds() for row, later in pairwise(rows)]
    assert len(pauses) == 2
    assert 0.05 <= pauses[0] <= 0.1
    assert 0.1 <= pauses[1] <= 0.2
    assert all(row.begun_at >= row.due_at for row in rows)
    waiting = [look for look in looks if look.status is JobStatus.RETRY]
    assert all(look.next_attempt_at is not None for look in waiting)


def test_an_error_of_foreign_code_is_shown_without_its_secrets(served: Served) -> None:
    """The text of an unexpected exception is redacted before it reaches the job or Prefect."""
    engine, address = served

    job, _ = engine.run(scenarios.BROKEN, "secret")
    runs, tasks = asyncio.run(runs_of(address, [row.flow_run_id for row in engine.attempts("secret")]))

    assert job.error is not None
    assert (job.error.type, job.error.step) == ("unexpected", "broken-step")
    told = job.model_dump_json() + "".join(run.model_dump_json() for run in runs)
    assert "ZeroDivisionError" in told
    assert "hunter2hunter2" not in told + "".join(task.model_dump_json() for task in tasks)


def test_a_step_done_before_shows_as_cached_and_its_body_is_not_called(served: Served) -> None:
    """A second job with the same inputs takes every step from the memo; Prefect shows each as Cached."""
    engine, address = served
    first, _ = engine.run(scenarios.TEN_STEPS, "memo-1", salt="memo")
    told = witnessed(engine.witness)

    second, _ = engine.run(scenarios.TEN_STEPS, "memo-2", salt="memo")

    assert len(told) == 11
    assert witnessed(engine.witness) == told
    assert [entry.digest for entry in second.history] == [entry.digest for entry in first.history]
    assert {entry.reused for entry in first.history} == {False}
    assert {entry.reused for entry in second.history} == {True}
    states = task_states(address, engine, "memo-2", expected=11)
    assert {name for name, _ in states.values()} == {"Cached"}
    messages = {label: message for label, (_, message) in states.items()}
    assert messages == {entry.step: f"Reused {entry.digest}" for entry in second.history}


@pytest.mark.parametrize("damage", ["removed", "altered"])
def test_a_step_whose_object_is_gone_or_damaged_is_done_again(served: Served, damage: str) -> None:
    """A memo counts only while its object is whole: otherwise that one step runs again."""
    engine, _ = served
    salt = f"damage {damage}"
    first, _ = engine.run(scenarios.TEN_STEPS, f"whole-{damage}", salt=salt)
    digest = first.history[4].digest
    [path] = engine.home.store.rglob(f"{digest.removeprefix('sha256:')}*")
    path.chmod(0o600)
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(b"not what it was")

    second, _ = engine.run(scenarios.TEN_STEPS, f"mended-{damage}", salt=salt)

    assert witnessed(engine.witness)[11:] == ["part 5"]
    assert [entry.digest for entry in second.history] == [entry.digest for entry in first.history]
    assert [entry.step for entry in second.history if not entry.reused] == ["part 5"]
    assert engine.system.store.verify(digest) is not None


def test_an_effect_is_done_once_though_the_attempt_behind_it_fails(served: Served) -> None:
    """An effect that was recorded isn't repeated by the next attempt."""
    engine, _ = served
    crash.arm("step.after-checkpoint=raise", tokens=engine.folder / "tokens")

    try:
        job, _ = engine.run(scenarios.EFFECT, "effect", salt="effect")
    finally:
        crash.disarm()

    assert job.status is JobStatus.COMPLETE
    assert job.attempts == 2
    assert witnessed(engine.witness) == ["effect send:effect"]


def test_the_time_limit_ends_an_attempt_whose_step_never_looks_up(served: Served) -> None:
    """A step that ignores the time limit is left to itself, and the attempt ends as timed out."""
    engine, _ = served

    job, _ = engine.run(scenarios.STUBBORN, "stubborn", seconds=30.0)
    [attempt] = engine.attempts("stubborn")

    assert (job.status, job.reason) == (JobStatus.DEAD, DeadReason.EXHAUSTED)
    assert job.error is not None
    assert job.error.type == "timed-out"
    assert attempt.outcome == "timed-out"
    assert attempt.ended_at - attempt.begun_at < timedelta(seconds=15)


def test_a_run_that_was_deleted_in_prefect_is_replaced_and_uses_no_budget(served: Served) -> None:
    """A planned attempt whose run is gone from Prefect is replaced by the next, for free."""
    engine, _ = served
    engine.accept(scenarios.NOOP, "deleted", salt="deleted")
    attempts.set_run(engine.system.db, "deleted", 1, "00000000-0000-4000-8000-000000000000")

    job, _ = engine.run(scenarios.NOOP, "deleted", salt="deleted")
    rows = engine.attempts("deleted")

    assert job.status is JobStatus.COMPLETE
    assert [row.outcome for row in rows] == ["gone", "completed"]
    assert [row.counts for row in rows] == [False, False]
    assert job.attempts == 2


def test_a_cancelled_job_is_dead_and_its_step_stops(engine: Engine) -> None:
    """A cancel that is asked for while a step runs ends the job as cancelled."""
    running = engine.start(scenarios.SLOW, "cancel", seconds=60.0)
    until(lambda: witnessed(engine.witness) != [], within=90)

    asked = results.request_cancel(engine.system.db, "cancel", actor="ann", reason="too slow")
    status, told = running.ends()

    assert asked
    assert (status, told) == (0, "")
    assert (running.looks[-1]["status"], running.looks[-1]["reason"]) == ("dead", "cancelled")
    assert running.looks[-1]["error"] is None
    [attempt] = engine.attempts("cancel")
    assert (attempt.outcome, attempt.error) == ("cancelled", None)
    assert len(witnessed(engine.witness)) == 1


def test_a_cancelled_job_is_retried_by_hand(served: Served) -> None:
    """A run whose job was called off ends as Cancelled in Prefect; a retry completes in a run of its own."""
    engine, address = served

    def call_off() -> None:
        until(lambda: witnessed(engine.witness) != [], within=60)
        results.request_cancel(engine.system.db, "again", actor="ann", reason="too slow")

    person = threading.Thread(target=call_off)
    person.start()
    dead, _ = engine.run(scenarios.SLOW, "again", seconds=6.0)
    person.join()
    [cancelled] = engine.attempts("again")
    runs, _ = asyncio.run(runs_of(address, [cancelled.flow_run_id]))
    retries.request_retry(
        engine.system.db, "again", actor="ann", reason="there is time now", expected_rev=dead.rev
    )
    job = run_to_end(engine.system, "again", address, lambda _: None)

    assert (dead.status, dead.reason, dead.error) == (JobStatus.DEAD, DeadReason.CANCELLED, None)
    assert [run.state.type.value for run in runs if run.state is not None] == ["CANCELLED"]
    assert (job.status, job.attempts) == (JobStatus.COMPLETE, 2)
    assert [row.outcome for row in engine.attempts("again")] == ["cancelled", "completed"]


def test_times_of_a_complete_job_are_in_order(served: Served) -> None:
    """A complete job was enqueued, started, checkpointed and completed in this order."""
    engine, _ = served

    job, _ = engine.run(scenarios.TEN_STEPS, "times", salt="times")

    times = [
        parse_time(text)
        for text in (
            job.times.enqueued_at,
            job.times.started_at,
            job.times.checkpoint_at,
            job.times.completed_at,
        )
    ]
    assert None not in times
    assert times == sorted(moment for moment in times if moment is not None)


def test_a_process_that_goes_to_another_server_tells_that_one_of_its_steps(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect has one sender of events a process; after a job on one home it reaches the next."""
    here, address = served
    here.run(scenarios.TEN_STEPS, "before-the-move", salt="before-the-move")
    home = Home(tmp_path / "elsewhere")
    home.prepare()

    with monkeypatch.context() as patch, open_system(home) as system:
        patch.setenv("AUTOCODE_HOME", str(home.path))
        Engine(home, system, tmp_path).run(scenarios.TEN_STEPS, "elsewhere", salt="elsewhere")
    here.run(scenarios.TEN_STEPS, "back", salt="back")

    states = task_states(address, here, "back", expected=11)
    assert {name for name, _ in states.values()} == {"Completed"}
