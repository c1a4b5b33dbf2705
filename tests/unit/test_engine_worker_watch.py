"""A worker knows whether the ledger is within reach, takes nothing while it isn't, and ends in any case."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from autocode.jobs.engine.system import System
from autocode.jobs.engine.worker import prefect_worker, watch
from autocode.jobs.engine.worker.children import Children
from autocode.jobs.engine.worker.prefect_worker import JobsWorker
from autocode.jobs.engine.worker.watch import Watch
from autocode.jobs.errors import LedgerUnavailable
from reconcile_world import World, template, world

__all__ = ["template", "world"]


class NoChildren:
    """A worker's children while it has none."""

    living: tuple[()] = ()

    def look(self) -> None:
        """Nothing to look at."""


class Ledger:
    """A way to the ledger that can be closed."""

    def __init__(self, system: System) -> None:
        self.away = False
        self.asked = 0
        self._system = system

    def __call__(self) -> System:
        """Return the opened home, as far as there is a way to it."""
        self.asked += 1
        if self.away:
            raise LedgerUnavailable("It is cut off.")
        return self._system


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and call the ledger out of reach soon."""
    monkeypatch.setattr(watch, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(watch, "_BLIND_SECONDS", 0.2)


async def becomes(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("quick")
def test_the_ledger_is_within_reach_while_looks_succeed(world: World) -> None:
    """It is out of reach before the first look and some time after the last; that it is back is told once."""
    ledger, told = Ledger(world.system), list[str]()
    looks = Watch(ledger, cast("Children", NoChildren()), lambda: told.append("back"))

    async def live() -> list[bool]:
        seen = [looks.sees]
        running = asyncio.create_task(looks.run())
        await becomes(lambda: looks.sees)
        before = ledger.asked
        await becomes(lambda: ledger.asked > before + 2)
        seen.append(looks.sees)
        ledger.away = True
        await becomes(lambda: not looks.sees)
        ledger.away = False
        await becomes(lambda: looks.sees)
        running.cancel()
        return seen

    assert asyncio.run(live()) == [False, True]
    assert told == ["back", "back"]


@pytest.mark.parametrize("sees", [True, False])
def test_a_worker_that_cannot_see_the_ledger_takes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, sees: bool
) -> None:
    """Prefect isn't even asked what is due: a run that was taken would be lost before it begins."""
    asked: list[str] = []

    async def take(_worker: Any) -> list[Any]:
        asked.append("Prefect")
        return []

    monkeypatch.setattr("prefect.workers.base.BaseWorker.get_and_submit_flow_runs", take)
    monkeypatch.setattr(JobsWorker, "limiter", type("Free", (), {"available_tokens": 1}))
    worker = JobsWorker("pool", system=world.system)
    worker._work_pool = cast("Any", object())
    worker._watch = cast("Watch", type("Looks", (), {"sees": sees}))

    asyncio.run(worker.get_and_submit_flow_runs())

    assert asked == (["Prefect"] if sees else [])


def test_a_worker_ends_though_prefects_part_of_it_does_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told by a signal, so its task is being cancelled already; what hangs is left after a while."""
    ended: list[str] = []

    async def hang(_worker: Any, *_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("left")

    monkeypatch.setattr("prefect.workers.base.BaseWorker.teardown", hang)
    monkeypatch.setattr(prefect_worker, "_FAREWELL_SECONDS", 0.1)
    worker = JobsWorker("pool", system=world.system)

    async def live() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await worker.teardown()
            ended.append("ended")

    async def stop() -> None:
        living = asyncio.create_task(live())
        await asyncio.sleep(0)
        living.cancel()
        await asyncio.wait([living], timeout=20)
        assert living.cancelled()

    asyncio.run(stop())

    assert ended == ["left", "ended"]
