"""Fixtures of the crash tests.

Loaded with ``pytest_plugins = ["fixtures_engine", "fixtures_undisturbed"]``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.command import Command
from acceptance.undisturbed import Undisturbed
from autocode.jobs.engine.server import Address, private_server
from autocode.jobs.settings import Home
from autocode.jobs.testing.samples import write_samples


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Give the command a home of its own."""
    home = Home(tmp_path / "home")
    home.prepare()
    return Command(home.path)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, own_sources: None) -> Iterator[tuple[Home, Address]]:
    """Give a home whose server lives as long as the module; see *guest*."""
    home = Home(tmp_path_factory.mktemp("host") / "home")
    home.prepare()
    with private_server(home) as address:
        yield home, address


@pytest.fixture
def guest(tmp_path: Path, host: tuple[Home, Address]) -> Command:
    """Give the command a home with a ledger and a store of its own, and the server of *host*."""
    shared, _ = host
    # a crash point fires once for a home
    shutil.rmtree(shared.run / "crash", ignore_errors=True)
    home = Home(tmp_path / "home")
    home.path.mkdir(mode=0o700)
    for own, others in ((home.run, shared.run), (home.prefect, shared.prefect)):
        own.symlink_to(others, target_is_directory=True)
    return Command(home.path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Export sample sessions once, in peace."""
    folder = tmp_path_factory.mktemp("peace")
    write_samples(folder / "sessions", seed=3, sessions=5, megabytes=0.5)
    done = Command(folder / "home").run("export", folder / "sessions", "-o", folder / "out", "--json")
    assert done.status == 0, done.err
    return Undisturbed(folder / "sessions", done.job)
