"""Fixtures for tests that need a real Prefect server.

Loaded with ``pytest_plugins = ["fixtures_engine"]``.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.events.worker import EventsWorker

from autocode.jobs.engine.server import Address, private_server
from autocode.jobs.engine.system import open_system
from autocode.jobs.settings import Home
from engine_world import SOURCES, Engine


@pytest.fixture(scope="session")
def own_sources() -> Iterator[None]:
    """Let every process that a test starts run these sources, whatever the environment has installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCES))
        yield


@pytest.fixture(autouse=True, scope="module")
def _events_told() -> Iterator[None]:
    """Leave no sender of events behind that still tries to reach this module's server."""
    yield
    EventsWorker.drain_all(timeout=2.0)


def _opened(folder: Path) -> Iterator[Engine]:
    home = Home(folder / "home")
    home.prepare()
    with open_system(home) as system:
        yield Engine(home, system, folder)


@pytest.fixture
def engine(tmp_path: Path, own_sources: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Give an engine of the test's own; after the test nothing of it may be left."""
    monkeypatch.setenv("AUTOCODE_HOME", str(tmp_path / "home"))
    for opened in _opened(tmp_path):
        yield opened
        opened.nothing_left()


@pytest.fixture(scope="module")
def _shared_home(
    tmp_path_factory: pytest.TempPathFactory, own_sources: None
) -> Iterator[tuple[Engine, Address]]:
    for opened in _opened(tmp_path_factory.mktemp("shared")):
        with private_server(opened.home) as address:
            yield opened, address
        opened.nothing_left()
    # what Prefect left unclosed is found here, and not in the middle of somebody else's test
    gc.collect()


@pytest.fixture
def served(
    _shared_home: tuple[Engine, Address], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Engine, Address]:
    """Give an engine whose home and server all tests of the module share; the witness is the test's own."""
    shared, address = _shared_home
    monkeypatch.setenv("AUTOCODE_HOME", str(shared.home.path))
    return Engine(shared.home, shared.system, tmp_path), address
