"""Children that died before they claimed their attempt are found by their death, and not by waiting."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs.engine.worker import registry
from autocode.jobs.engine.worker.handback import bury
from autocode.jobs.engine.worker.registry import Registered
from autocode.jobs.ledger import attempts
from reconcile_world import RUN, World, template, world

__all__ = ["template", "world"]

REGISTERS = """
import sys, time
from pathlib import Path
from autocode.jobs.engine.worker.registry import registered
from autocode.jobs.settings import Home
with registered(Home(Path(sys.argv[1])), sys.argv[2], 1, "a worker"):
    print("here", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def child(world: World) -> Iterator[subprocess.Popen[str]]:
    """Give a process in the list of children, which is to run the job's attempt."""
    attempts.set_run(world.system.db, "job", 1, RUN)
    process = subprocess.Popen(
        [sys.executable, "-c", REGISTERS, str(world.system.home.path), RUN], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield process
        process.kill()


def listed(world: World) -> list[Registered]:
    """Return the children in the list that are dead."""
    return [each for each in registry.children(world.system.home) if not registry.lives(each)]


def test_an_unclaimed_attempt_ends_with_its_process(world: World, child: subprocess.Popen[str]) -> None:
    """Its process died, so it is over as crashed, another is planned, and the child is off the list."""
    living = listed(world)
    child.kill()
    child.wait()

    bury(world.system, listed(world))
    bury(world.system, listed(world))

    assert living == []
    assert [row.outcome for row in world.rows()] == ["crashed", None]
    assert world.rows()[0].error["type"] == "attempt-lost"
    assert registry.children(world.system.home) == []


def test_a_claimed_attempt_is_left_to_who_can_prove_its_death(
    world: World, child: subprocess.Popen[str]
) -> None:
    """Another process may have claimed it, so the death of this one ends nothing."""
    world.begin()
    child.kill()
    child.wait()

    bury(world.system, listed(world))

    assert [row.outcome for row in world.rows()] == [None]
    assert registry.children(world.system.home) == []


def test_a_run_that_is_no_jobs_is_taken_off_the_list(tmp_path: Path, world: World) -> None:
    """A plain flow of somebody's has no attempt to end."""
    folder = world.system.home.run / "children"
    folder.mkdir()
    (folder / "4000000").write_text(
        '{"pid": 4000000, "began": "x", "flow_run_id": "plain", "worker": 1, "worker_began": "y"}'
    )

    bury(world.system, listed(world))

    assert [row.outcome for row in world.rows()] == [None]
    assert registry.children(world.system.home) == []
