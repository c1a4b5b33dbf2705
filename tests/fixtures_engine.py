"""Fixtures for tests that need a real Prefect server.

Loaded with ``pytest_plugins = ["fixtures_engine"]``.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs import locks
from autocode.jobs.engine.server import Address, private_server
from autocode.jobs.engine.system import open_system
from autocode.jobs.settings import Home
from engine_world import SOURCES, Engine, until


@pytest.fixture(scope="session")
def own_sources() -> Iterator[None]:
    """Let every process that a test starts run these sources, whatever the environment has installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCES))
        yield


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory, own_sources: None) -> Path:
    """Start a server once on an empty home, and give the folder with its migrated database."""
    shared = tmp_path_factory.getbasetemp().parent
    with locks.exclusive(shared / "migrated.lock", within=170):
        home = Home(shared / "migrated")
        if not (home.prefect / "schema.json").exists():
            home.prepare()
            with private_server(home):
                pass
            until(lambda: not locks.is_held(home.run / "server.lock"), within=15)
    return home.prefect


def _opened(folder: Path, migrated: Path) -> Iterator[Engine]:
    home = Home(folder / "home")
    home.prepare()
    for file in migrated.iterdir():
        if file.is_file():
            shutil.copy2(file, home.prefect)
    with open_system(home) as system:
        yield Engine(home, system, folder)


@pytest.fixture
def engine(tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Give an engine of the test's own; after the test nothing of it may be left."""
    monkeypatch.setenv("AUTOCODE_HOME", str(tmp_path / "home"))
    for opened in _opened(tmp_path, migrated):
        yield opened
        opened.nothing_left()


@pytest.fixture(scope="module")
def _shared_home(
    tmp_path_factory: pytest.TempPathFactory, migrated: Path
) -> Iterator[tuple[Engine, Address]]:
    for opened in _opened(tmp_path_factory.mktemp("shared"), migrated):
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
