"""Fixtures of the crash tests.

Loaded with ``pytest_plugins = ["fixtures_engine", "fixtures_undisturbed"]``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.command import Command
from acceptance.undisturbed import Undisturbed
from autocode.jobs.settings import Home
from autocode.jobs.testing.samples import write_samples


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Give the command a home of its own."""
    home = Home(tmp_path / "home")
    home.prepare()
    return Command(home.path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Export sample sessions once, in peace."""
    folder = tmp_path_factory.mktemp("peace")
    write_samples(folder / "sessions", seed=3, sessions=5, megabytes=0.5)
    done = Command(folder / "home").run("export", folder / "sessions", "-o", folder / "out", "--json")
    assert done.status == 0, done.err
    return Undisturbed(folder / "sessions", done.job)
