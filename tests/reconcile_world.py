"""One job in a ledger of its own, a clock that the test moves, and a Prefect that says what the test chose.

Its fixtures are imported by name: ``from reconcile_world import template, world``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from autocode.jobs.clock import Clock
from autocode.jobs.engine.reconcile import Reconciler
from autocode.jobs.engine.rescue import Rescue, SeenRun
from autocode.jobs.engine.system import System
from autocode.jobs.ledger import attempts, jobs, queries
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.database import Database, sqlite_url
from autocode.jobs.projection import Outcome, RunState
from autocode.jobs.resource import Job
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from ledger_world import new_job

RUN = "00000000-0000-4000-8000-000000000001"


class StillClock:
    """A clock that moves when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.shift = timedelta()

    def now(self) -> datetime:
        """Return the current time, which somebody may have set forward or back."""
        return datetime(2025, 3, 1, tzinfo=UTC) + timedelta(seconds=self.seconds) + self.shift

    def monotonic(self) -> float:
        """Return the same clock in seconds."""
        return self.seconds


@dataclass
class FakeRuns:
    """Prefect, as far as the reconciler asks: one state for every run, and a record of what was closed."""

    says: RunState = field(default_factory=RunState)
    deployed: bool = True
    ours: bool = True
    closed: list[tuple[str, Outcome]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    looks: list[list[str]] = field(default_factory=list)

    async def look(self, run_ids: Collection[str]) -> dict[str, SeenRun]:
        """Return the state that the test chose for every run."""
        self.looks.append(sorted(run_ids))
        return {} if self.says.type is None else dict.fromkeys(run_ids, self.seen)

    @property
    def seen(self) -> SeenRun:
        """The run as Prefect shows it."""
        return SeenRun(self.says, self.deployed, self.ours)

    async def close(self, run_id: str, outcome: Outcome, message: str) -> bool:
        """Close the run unless it is gone."""
        if not self.says.gone:
            self.closed.append((run_id, outcome))
            self.told.append(message)
        return True


@dataclass
class World:
    """One job in a ledger of its own, with a fake Prefect beside it."""

    system: System
    clock: StillClock
    runs: FakeRuns
    reconciler: Reconciler
    driven: set[str] = field(default_factory=set)

    def look(self, *, after: float = 0.0, renewing: Attempt | None = None, step: float = 0.5) -> Job:
        """Sweep once, *after* so many seconds with a look (and a renewal) every *step*."""
        asyncio.run(self._look(int(after / step), step, renewing))
        return queries.get(self.system.db, "job")

    async def _look(self, times: int, step: float, renewing: Attempt | None) -> None:
        for _ in range(times):
            self.clock.seconds += step
            if renewing is not None:
                attempts.renew(self.system.db, renewing)
            await self.reconciler.sweep("job")
        await self.reconciler.sweep("job")

    def begin(self, holder: str = "elsewhere:1:x-y") -> Attempt:
        """Begin the first attempt, in a process that can't be seen from here."""
        return attempts.begin(self.system.db, "job", 1, flow_run_id=RUN, holder=holder)

    def rows(self) -> list[Any]:
        """Return the attempts' rows."""
        with self.system.db.read() as tx:
            return list(queries.load(tx, "job").attempts)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Migrate a ledger once."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    database = Database(sqlite_url(path))
    database.migrate()
    database.close()
    return path


@contextmanager
def opened(folder: Path, template: Path, clock: Clock) -> Iterator[System]:
    """Open a home with a ledger copied from *template*."""
    home = Home(folder / "home")
    home.prepare()
    home.ledger.write_bytes(template.read_bytes())
    database = Database(sqlite_url(home.ledger), clock=clock)
    # nothing here has to survive a power cut, and a test looks hundreds of times
    sa.event.listen(database._engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
    try:
        yield System(home, database, LocalStore(home.store))
    finally:
        database.close()


@pytest.fixture
def world(tmp_path: Path, template: Path) -> Iterator[World]:
    """Give a job that was accepted, and nothing else."""
    clock, runs = StillClock(), FakeRuns()
    with opened(tmp_path, template, clock) as system:
        jobs.enqueue(system.db, new_job("job"))
        yield World(system, clock, runs, Reconciler(system, runs))


@pytest.fixture
def served(world: World) -> World:
    """Give the same job, looked at by a service that rescues."""
    rescue = Rescue(world.clock, driven=lambda: world.driven)
    world.reconciler = Reconciler(world.system, world.runs, rescue=rescue)
    return world
