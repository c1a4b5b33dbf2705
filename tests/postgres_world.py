"""A home with a PostgreSQL of its own, and what the tests ask of its processes."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autocode.jobs import locks
from autocode.jobs.settings import Home
from engine_world import SOURCES, until


@contextmanager
def temporary_home(*, name: str = "home") -> Iterator[Home]:
    """Give a prepared home whose PostgreSQL, if any is started, is gone when the block ends, with its data.

    Its data lie where root would have them too, but in the same temporary folder.
    """
    folder = Path(tempfile.mkdtemp(prefix="autocode-home-")).resolve()
    folder.chmod(0o755)
    home = Home(folder / name)
    home.prepare()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOCODE_POSTGRES_FOLDER", str(folder / "data"))
        patch.setenv("PYTHONPATH", str(SOURCES))
        yield home
    until(lambda: not locks.is_held(home.run / "postgres.lock"), within=60)
    shutil.rmtree(folder)


def pids(home: Home) -> tuple[int, int]:
    """Return the ids of the keeper and of the postmaster, as the keeper told them."""
    told = json.loads((home.run / "postgres.json").read_text())
    return told["pid"], told["postgres"]


def alive(pid: int) -> bool:
    """Say whether a process lives; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def told_anew(home: Home, before: tuple[int, int]) -> tuple[int, int]:
    """Wait until a keeper told of another postmaster than *before*; return the new ids."""

    def new() -> bool:
        return (home.run / "postgres.json").exists() and pids(home)[1] != before[1]

    until(new, within=60)
    return pids(home)
