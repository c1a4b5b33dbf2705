"""What a worker asks Prefect once for many runs."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from prefect.client.schemas.objects import Flow, FlowRun, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events import related as prefect_related
from prefect.exceptions import ObjectNotFound

from autocode.jobs.engine.worker.related import FRESH_SECONDS, hand_on, name_all, read_seldom


class Prefect:
    """A client that counts what it is asked, and a clock."""

    def __init__(self) -> None:
        self.asked: list[UUID] = []
        self.gone: set[UUID] = set()
        self.now = 100.0

    async def read_deployment(self, wanted: UUID) -> DeploymentResponse:
        """Return a deployment with variables that callers change."""
        self.asked.append(wanted)
        if wanted in self.gone:
            raise ObjectNotFound(RuntimeError("404"))
        variables = {"env": {"A": "1"}}
        return DeploymentResponse.model_validate(
            {"id": wanted, "name": "service", "flow_id": uuid.uuid4(), "job_variables": variables}
        )

    async def read_flow(self, wanted: UUID) -> Flow:
        """Return a flow."""
        self.asked.append(wanted)
        return Flow.model_validate({"id": wanted, "name": "export"})


@pytest.fixture
def prefect() -> Prefect:
    """A client that reads seldom."""
    made = Prefect()
    read_seldom(cast("Any", made), lambda: made.now)
    return made


def test_what_was_read_a_moment_ago_is_not_asked_for_again(prefect: Prefect) -> None:
    """Two runs of a deployment within the time are one question; afterwards it is asked anew."""
    wanted = uuid.uuid4()

    async def read() -> None:
        for _ in range(3):
            await prefect.read_deployment(wanted)
            await prefect.read_flow(wanted)
        prefect.now += FRESH_SECONDS + 0.1
        await prefect.read_deployment(wanted)

    asyncio.run(read())

    assert prefect.asked == [wanted] * 3


def test_what_one_run_does_to_its_deployment_no_other_sees(prefect: Prefect) -> None:
    """Prefect writes a run's variables into what it read."""

    async def read() -> Any:
        wanted = uuid.uuid4()
        first = await prefect.read_deployment(wanted)
        cast("Any", first.job_variables)["env"]["A"] = "changed"
        return (await prefect.read_deployment(wanted)).job_variables

    assert asyncio.run(read()) == {"env": {"A": "1"}}


def test_what_is_not_there_is_asked_for_each_time(prefect: Prefect) -> None:
    """A deployment that is made again is found at once."""
    wanted = uuid.uuid4()
    prefect.gone.add(wanted)

    async def read() -> str:
        with pytest.raises(ObjectNotFound):
            await prefect.read_deployment(wanted)
        prefect.gone.clear()
        return (await prefect.read_deployment(wanted)).name

    assert asyncio.run(read()) == "service"


def test_a_childs_events_name_what_its_run_belongs_to_without_a_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Flow, deployment, queue and pool are found in the place where Prefect looks before it asks."""
    known: dict[str, Any] = {}
    monkeypatch.setattr(prefect_related, "RESOURCE_CACHE", known)
    ids = {name: uuid.uuid4() for name in ("flow", "deployment", "queue", "pool")}
    run = FlowRun(flow_id=ids["flow"], deployment_id=ids["deployment"], work_queue_id=ids["queue"])
    deployment = SimpleNamespace(id=ids["deployment"], name="service", tags=["t"], work_queue_name="default")
    flow = SimpleNamespace(id=ids["flow"], name="export", tags=[])
    pool = SimpleNamespace(id=ids["pool"], name="autocode")

    hand_on(
        name_all(
            run,
            cast("DeploymentResponse", deployment),
            cast("Flow", flow),
            cast("WorkPool", pool),
        )
    )

    class Asked:
        def __getattr__(self, name: str) -> Any:
            async def refuse(_wanted: object) -> None:
                raise AssertionError(f"{name} was called")

            return refuse

    async def named() -> list[tuple[str, str]]:
        context = SimpleNamespace(flow_run=run)
        monkeypatch.setattr("prefect.context.FlowRunContext.get", lambda: context)
        run.work_pool_name = "autocode"
        found = await prefect_related.related_resources_from_run_context(cast("Any", Asked()))
        return [(each.role, each.name or "") for each in found if each.role not in {"tag", "flow-run"}]

    assert asyncio.run(named()) == [
        ("flow", "export"),
        ("deployment", "service"),
        ("work-queue", "default"),
        ("work-pool", "autocode"),
    ]
