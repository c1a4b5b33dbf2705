"""Fixtures for tests of the worker: a home and a Prefect server that a module shares, and its workers.

Loaded with ``pytest_plugins = ["fixtures_engine", "fixtures_worker"]``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autocode.jobs.engine.server import Address
from autocode.jobs.testing import scenarios as s
from engine_world import Engine
from worker_world import Worker, World, world


@pytest.fixture
def own_workers(served: tuple[Engine, Address]) -> Iterator[World]:
    """Give a world without a worker; those that the test starts end with it."""
    with world(*served) as made:
        yield made


@pytest.fixture(scope="module")
def _shared_worker(_shared_home: tuple[Engine, Address]) -> Iterator[tuple[World, Worker]]:
    engine, address = _shared_home
    with world(engine, address) as made:
        worker = made.start(limit=3, environment={"AUTOCODE_WORKER_FLOWS": s.NOOP.flow})
        worker.ready()
        yield made, worker
        assert worker.stop() == 0, worker.log.read_text()


@pytest.fixture
def running(served: tuple[Engine, Address], _shared_worker: tuple[World, Worker]) -> tuple[World, Worker]:
    """Give a world and its worker, which the module shares; the witness is the test's own."""
    engine, address = served
    made, worker = _shared_worker
    return World(engine, address, made.workers), worker
