"""From planned attempts to flow runs and back: submitting, adopting, looking, with a fake client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound

from autocode.jobs import crash, kinds
from autocode.jobs.clock import SystemClock
from autocode.jobs.engine import submit
from autocode.jobs.engine.adopt import Adopter
from autocode.jobs.engine.connection import prefect_address
from autocode.jobs.engine.deployments import Deployments
from autocode.jobs.engine.holder import holding
from autocode.jobs.engine.rescue import SeenRun
from autocode.jobs.engine.runs import PrefectRuns
from autocode.jobs.engine.submit import Submitter
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.engine.view import PrefectView
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import attempts, glances, jobs, queries, schema
from autocode.jobs.model import JobStatus
from autocode.jobs.operations.backup import back_up, restore
from autocode.jobs.projection import Outcome, RunState
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from autocode.jobs.testing import scenarios
from ledger_world import look, new_job, rows
from reconcile_world import StillClock, opened, template

__all__ = ["template"]

PAYLOAD = {"witness": "w", "salt": "s"}


def answer(status: int) -> httpx.HTTPStatusError:
    """Return what Prefect's client raises for such an answer."""
    request = httpx.Request("POST", "http://prefect/api")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, request=request))


@dataclass
class FakePrefect:
    """As much of Prefect's client as submitting and adopting need."""

    created: list[dict[str, Any]] = field(default_factory=list)
    pools: list[Any] = field(default_factory=list)
    deployments: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    raises: list[Exception] = field(default_factory=list)
    due: list[FlowRun] = field(default_factory=list)
    runs: dict[UUID, FlowRun] = field(default_factory=dict)
    states: list[tuple[UUID, Any]] = field(default_factory=list)
    named: list[tuple[UUID, str, list[str]]] = field(default_factory=list)
    alters: dict[str, Any] = field(default_factory=dict)

    async def read_work_pool(self, name: str) -> Any:
        """Return the pool."""
        if not self.pools:
            raise ObjectNotFound(http_exc=Exception())
        return self.pools[0]

    async def create_work_pool(self, wanted: Any) -> None:
        """Make the pool."""
        self.pools.append(wanted)

    async def create_flow(self, _flow: Any) -> UUID:
        """Return an id."""
        return uuid4()

    async def create_deployment(self, flow_id: UUID, name: str, **asked: Any) -> UUID:
        """Make a deployment."""
        made = uuid4()
        self.deployments[made] = {"flow_id": flow_id, "name": name, **asked}
        return made

    async def create_flow_run_from_deployment(self, deployment: UUID, **asked: Any) -> FlowRun:
        """Make a run of a deployment that exists."""
        if self.raises:
            raise self.raises.pop(0)
        if deployment not in self.deployments:
            raise answer(404)
        self.created.append({"deployment": deployment, **asked})
        parameters = self.alters or asked["parameters"]
        key = asked["idempotency_key"]
        return FlowRun(id=uuid4(), flow_id=uuid4(), parameters=parameters, idempotency_key=key)

    async def read_flow_run(self, run_id: UUID) -> FlowRun:
        """Return a run."""
        if run_id not in self.runs:
            raise ObjectNotFound(http_exc=Exception())
        return self.runs[run_id]

    async def read_flow_runs(self, **_asked: Any) -> list[FlowRun]:
        """Return what is due."""
        return self.due

    async def read_flow(self, _flow_id: UUID) -> Any:
        """Return the flow of every run."""
        return scenarios.NOOP

    async def set_flow_run_state(self, run_id: UUID, state: Any) -> None:
        """Note the state."""
        self.states.append((run_id, state))

    async def update_flow_run(self, run_id: UUID, *, name: str, tags: list[str]) -> None:
        """Note the name and the tags."""
        self.named.append((run_id, name, tags))


@pytest.fixture
def system(tmp_path: Path, template: Path) -> Iterator[System]:
    """Give an opened home."""
    with opened(tmp_path, template, SystemClock()) as system:
        yield system


@pytest.fixture
def prefect() -> Any:
    """Give a Prefect that holds nothing."""
    return FakePrefect()


def submitting(system: System, prefect: Any) -> int:
    """Make one pass."""

    async def submitted() -> int:
        return await Submitter(system, prefect, Deployments(prefect)).submit_all()

    return asyncio.run(submitted())


def accept(system: System, job_id: str, **changes: Any) -> None:
    """Accept a job of a scenario kind."""
    wanted = {"kind": scenarios.NOOP.name, "payload": PAYLOAD, **changes}
    jobs.enqueue(system.db, new_job(job_id, **wanted))


def test_a_pass_makes_pool_deployment_and_one_run_an_attempt(system: System, prefect: Any) -> None:
    """What is missing is made; each planned attempt has one run, named, tagged, and due when it is."""
    accept(system, "a", session_id="s-1")
    accept(system, "b")

    counts = [submitting(system, prefect), submitting(system, prefect)]

    assert counts == [2, 0]
    [pool], [(made, deployment)] = prefect.pools, prefect.deployments.items()
    assert (pool.name, pool.type) == ("autocode", "autocode-jobs")
    assert (deployment["name"], deployment["entrypoint"]) == ("service", scenarios.NOOP.flow)
    key = f"job:{glances.epoch(system.db)}"
    by_key = {each["idempotency_key"]: each for each in prefect.created}
    assert {each["deployment"] for each in prefect.created} == {made}
    assert by_key[f"{key}:a:1"]["name"] == "scenario-noop s-1 · attempt 1"
    assert by_key[f"{key}:b:1"]["name"] == "scenario-noop b · attempt 1"
    assert set(by_key[f"{key}:a:1"]["tags"]) == {
        "autocode-jobs",
        "kind:scenario-noop",
        "job:a",
        "session:s-1",
    }
    [due] = {row.due_at for row in rows(system.db, schema.attempts) if row.job_id == "a"}
    assert by_key[f"{key}:a:1"]["state"].state_details.scheduled_time == due


def test_a_job_that_a_living_command_drives_is_left_to_it(system: System, prefect: Any) -> None:
    """Nobody submits the job while its command lives; afterwards the next pass does."""
    accept(system, "driven")
    with holding(system.home, drives="driven"):
        during = submitting(system, prefect)

    assert (during, submitting(system, prefect)) == (0, 1)


def test_a_deployment_that_was_deleted_is_made_again(system: System, prefect: Any) -> None:
    """404 for a deployment that was known a moment ago: it is made again, and the run with it."""
    accept(system, "a")

    async def twice() -> None:
        deployments = Deployments(prefect)
        await deployments.ensure_all()
        prefect.deployments.clear()
        await Submitter(system, prefect, deployments).submit_all()

    asyncio.run(twice())

    assert [each["deployment"] for each in prefect.created] == list(prefect.deployments)


def test_deployments_that_lost_their_pool_get_another(system: System, prefect: Any) -> None:
    """A pool that somebody deleted, or deleted and made again, is not in any deployment that was known."""
    deployments = Deployments(prefect)

    async def made_anew(pools: list[Any]) -> int:
        prefect.deployments.clear()
        prefect.pools[:] = pools
        await deployments.look_at_pool()
        await deployments.ensure_all()
        return len(prefect.deployments)

    async def story() -> list[int]:
        kept, ours, others = (SimpleNamespace(id=uuid4()) for _ in range(3))
        return [await made_anew(pools) for pools in ([kept], [kept], [], [ours], [ours], [others])]

    made = asyncio.run(story())

    every = len(kinds.registered())
    assert made == [every, 0, every, 0, 0, every]


def test_a_job_that_prefect_never_takes_holds_up_no_other(
    tmp_path: Path, template: Path, prefect: Any
) -> None:
    """While one attempt's run fails each time, others get theirs; in the end it is refused by itself."""
    clock = StillClock()
    failures = 0
    create = prefect.create_flow_run_from_deployment

    async def picky(deployment: UUID, **options: Any) -> Any:
        nonlocal failures
        if ":a:" in options["idempotency_key"]:
            failures += 1
            raise TimeoutError
        return await create(deployment, **options)

    prefect.create_flow_run_from_deployment = picky

    async def story(system: System) -> None:
        submitter = Submitter(system, prefect, Deployments(prefect))
        for number in range(12):
            accept(system, f"other-{number}")
            clock.seconds += 100
            with suppress(TimeoutError):
                await submitter.submit_all()

    with opened(tmp_path, template, clock) as system:
        accept(system, "a")
        asyncio.run(story(system))
        first, *_ = rows(system.db, schema.attempts, schema.attempts.c.job_id == "a")

    assert len(prefect.created) == 12
    assert first.outcome == "failed"
    assert failures > 4


@pytest.mark.parametrize("status", [422, 413, 400])
def test_a_run_that_prefect_refuses_ends_the_attempt_with_its_answer(
    system: System, prefect: Any, status: int
) -> None:
    """The attempt fails, so that the budget bounds the tries, and the other jobs aren't kept waiting."""
    accept(system, "a")
    prefect.raises = [answer(status)]

    count = submitting(system, prefect)
    look(system.db, "a")

    job = queries.get(system.db, "a")
    assert (count, job.status) == (0, JobStatus.RETRY)
    assert job.error is not None
    assert (job.error.type, str(status) in job.error.detail) == ("run-refused", True)


@pytest.mark.parametrize("trouble", [answer(503), httpx.ConnectError("gone")])
def test_a_prefect_that_is_away_ends_nothing(system: System, prefect: Any, trouble: Exception) -> None:
    """The pass is told of it, the attempt stays planned, and the next pass submits it."""
    accept(system, "a")
    prefect.raises = [trouble]

    with pytest.raises(httpx.HTTPError):
        submitting(system, prefect)

    assert submitting(system, prefect) == 1


def test_a_run_with_other_parameters_under_the_same_key_is_not_trusted(system: System, prefect: Any) -> None:
    """An older ledger's run under the key is refused, and the attempt says so."""
    accept(system, "a")
    prefect.alters = {**PAYLOAD, "salt": "another"}

    submitting(system, prefect)

    first, second = rows(system.db, schema.attempts)
    assert (first.outcome, first.flow_run_id) == ("failed", None)
    assert "with other parameters" in first.error["detail"]
    assert second.n == 2


def test_a_process_that_dies_after_the_run_was_made_finds_the_same_run_again(
    system: System, prefect: Any, tmp_path: Path
) -> None:
    """Killed before the ledger knew: the next pass asks with the same key, and Prefect has one run for it."""
    accept(system, "a")
    crash.arm("submit.after-create=raise", tokens=tmp_path / "tokens")
    try:
        with pytest.raises(crash.CrashRaised):
            submitting(system, prefect)
    finally:
        crash.disarm()
    between = rows(system.db, schema.attempts)[0].flow_run_id

    submitting(system, prefect)

    assert between is None
    assert [each["idempotency_key"] for each in prefect.created] == [
        f"job:{glances.epoch(system.db)}:a:1"
    ] * 2
    assert rows(system.db, schema.attempts)[0].flow_run_id is not None


def test_a_restored_ledger_meets_no_run_of_the_time_after_its_backup(
    system: System, prefect: Any, tmp_path: Path
) -> None:
    """Attempt 1 ran after the backup; restored to before it, the job gets a run under another key."""
    accept(system, "a")
    store = LocalStore(system.home.store)
    made = back_up(system.home, system.db, store, tmp_path / "b.tar")
    submitting(system, prefect)
    home = Home(tmp_path / "restored")
    restore(made.file, home, actor="ann")

    with open_system(home) as restored:
        count = submitting(restored, prefect)
        epochs = [glances.epoch(each.db) for each in (system, restored)]

    assert count == 1
    assert [each["idempotency_key"] for each in prefect.created] == [f"job:{epoch}:a:1" for epoch in epochs]
    assert epochs[0] != epochs[1]
    seen = [FlowRun(flow_id=uuid4(), idempotency_key=each["idempotency_key"]) for each in prefect.created]
    assert [submit.identify(run) for run in seen] == [("a", 1)] * 2


def test_a_job_of_an_unknown_kind_waits(system: System, prefect: Any) -> None:
    """A kind that this process doesn't know is left to one that does."""
    jobs.enqueue(system.db, new_job("a", kind="nobody-knows"))

    assert submitting(system, prefect) == 0
    assert rows(system.db, schema.attempts)[0].ended_at is None


@pytest.mark.parametrize("known", [True, False])
def test_an_adopted_job_goes_on_on_its_own_deployment_while_there_is_one(
    system: System, prefect: Any, known: bool
) -> None:
    """The next attempt is a run of the deployment that started it; once that is gone, of the service's."""
    own = uuid4()
    run = FlowRun(id=uuid4(), flow_id=uuid4(), deployment_id=own, work_queue_name="q", parameters=PAYLOAD)
    prefect.runs[run.id] = run
    if known:
        prefect.deployments[own] = {}
    job_id, _ = submit.identify(run)
    accept(system, job_id, origin="prefect")
    attempt = attempts.begin(system.db, job_id, 1, flow_run_id=str(run.id), holder="x")
    attempts.end(system.db, job_id, 1, Outcome.FAILED, token=attempt.token)

    submitting(system, prefect)

    [made] = prefect.created
    assert made["idempotency_key"] == f"job:{glances.epoch(system.db)}:{job_id}:2"
    assert (made["deployment"] == own) is known


def adopting(system: System, prefect: Any) -> int:
    """Look once for runs to adopt."""

    async def adopted() -> int:
        return await Adopter(system, prefect).adopt_all()

    return asyncio.run(adopted())


def flow_run(**changes: Any) -> FlowRun:
    """Return a run that Prefect's scheduler made."""
    wanted = {"deployment_id": uuid4(), "parameters": {"witness": "w"}, "state_type": StateType.SCHEDULED}
    return FlowRun(id=uuid4(), flow_id=uuid4(), **{**wanted, **changes})


def test_a_due_run_becomes_a_job_whose_first_attempt_it_is(system: System, prefect: Any) -> None:
    """Adoption makes job, attempt and their bond at once, and only once."""
    run = flow_run()
    prefect.due = [run]

    counts = [adopting(system, prefect), adopting(system, prefect)]

    [job], [attempt] = rows(system.db, schema.jobs), rows(system.db, schema.attempts)
    assert counts == [1, 0]
    assert (job.job_id, job.origin, job.payload) == (
        f"prefect:{run.id}",
        "prefect",
        {"witness": "w", "salt": ""},
    )
    assert attempt.flow_run_id == str(run.id)
    assert attempts.wants_run(system.db) == []


@pytest.mark.parametrize(
    "changes",
    [{"idempotency_key": "job:a:1"}, {"deployment_id": None}],
    ids=["a run of ours", "a run that nobody would take"],
)
def test_what_is_ours_or_waits_for_nobody_is_not_adopted(
    system: System, prefect: Any, changes: dict[str, Any]
) -> None:
    """Runs of our own attempts, and those that a one-shot command made for itself, are left alone."""
    prefect.due = [flow_run(**changes)]

    assert adopting(system, prefect) == 0
    assert rows(system.db, schema.jobs) == []


def test_bad_parameters_fail_the_run_and_store_nothing(system: System, prefect: Any) -> None:
    """The run is ended with a pointer to each field; there is no job, and the next run is adopted."""
    bad, good = flow_run(parameters={"salt": 5}), flow_run()
    prefect.due = [bad, good]

    count = adopting(system, prefect)

    [(run_id, state)] = prefect.states
    assert (count, run_id, state.type) == (1, bad.id, StateType.FAILED)
    assert "/witness" in state.message
    assert [row.job_id for row in rows(system.db, schema.jobs)] == [f"prefect:{good.id}"]


@dataclass
class Answers:
    """What Prefect answers to looks."""

    says: dict[str, SeenRun]
    closes: bool = True
    asked: int = 0

    async def look(self, run_ids: Any) -> dict[str, SeenRun]:
        """Answer."""
        self.asked += 1
        return {each: seen for each, seen in self.says.items() if each in run_ids}

    async def close(self, run_id: str, outcome: Outcome, message: str) -> bool:
        """Answer."""
        self.asked += 1
        return self.closes


def test_a_view_never_waits_for_prefect_and_forgets_what_it_saw_before_an_outage() -> None:
    """What was seen counts until the next look; without an answer nothing is known or closed."""
    running = SeenRun(RunState("RUNNING", "Running"))
    answers: Any = Answers({"r": running})

    async def story() -> list[Any]:
        news: list[int] = []
        view = PrefectView(answers, lambda: news.append(1))
        seen = [await view.look(["r"])]
        await view._refresh()
        seen.append(await view.look(["r"]))
        answers.says = {}
        await view._refresh()
        seen.append(await view.look(["r"]))
        asked = answers.asked
        closed = await view.close("r", Outcome.LOST, "why")
        return [*seen, closed, answers.asked - asked, len(news)]

    before, during, after, closed, asked, news = asyncio.run(story())

    assert (before, during, after) == ({}, {"r": running}, {})
    assert (closed, asked, news) == (False, 0, 2)


def test_a_look_that_fails_in_an_unknown_way_is_followed_by_the_next(prefect: Any) -> None:
    """An answer that can't be read ends neither the view nor the leader; an id of nobody's is gone."""

    class Broken(Answers):
        async def look(self, run_ids: Any) -> dict[str, SeenRun]:
            self.asked += 1
            raise ZeroDivisionError

    answers: Any = Broken({})

    async def story() -> dict[str, SeenRun]:
        view = PrefectView(answers, lambda: None)
        await view.look(["r"])
        following = asyncio.create_task(view.follow())
        while answers.asked < 2:
            await asyncio.sleep(0)
            assert not following.done()
            view.ask()
        following.cancel()
        return await PrefectRuns(prefect).look(["no-id-of-prefect"])

    seen = asyncio.run(story())

    assert seen["no-id-of-prefect"].state.gone


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://host:4200", "http://host:4200/api"),
        ("https://host/prefect/api/", "https://host/prefect/api"),
    ],
)
def test_a_server_by_url_is_not_asked_anything(tmp_path: Path, url: str, expected: str) -> None:
    """The address is given as it is; nothing is started for it."""
    home = Home(tmp_path / "home")

    with prefect_address(home, url, "user:word") as address:
        assert (address.url, address.auth) == (expected, "user:word")
    assert not home.path.exists()


@pytest.mark.parametrize("url", ["", "host:4200", "ftp://host/api", "http://"])
def test_a_url_that_names_no_server_is_refused(tmp_path: Path, url: str) -> None:
    """The error says what an address looks like."""
    with pytest.raises(UsageError) as raised, prefect_address(Home(tmp_path), url):
        pass

    assert "http://127.0.0.1:4200/api" in raised.value.hint


def test_kinds_are_listed_by_name() -> None:
    """Every registered kind is known to the service."""
    names = [kind.name for kind in kinds.registered()]

    assert names == sorted(names)
    assert scenarios.NOOP.name in names
