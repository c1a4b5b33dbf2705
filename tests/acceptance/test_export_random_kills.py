"""The command is killed again and again, at moments that nobody chose; the bundle stays the same."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from acceptance.command import Command
from acceptance.undisturbed import Undisturbed, cursors_without_gaps, nothing_left, steps_of
from autocode.jobs.engine.server import private_server
from autocode.jobs.settings import Home

pytest_plugins = ["fixtures_engine", "fixtures_undisturbed"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_kills_at_random_moments_change_nothing(
    undisturbed: Undisturbed, command: Command, tmp_path: Path
) -> None:
    """Kill the command again and again from outside, at random moments; the bundle stays the same."""
    seed = int(os.environ.get("AUTOCODE_KILL_SEED", "20261130"))
    rounds = int(os.environ.get("AUTOCODE_KILL_ROUNDS", "5"))
    draw = random.Random(seed)
    arguments = ("export", undisturbed.sessions, "-o", tmp_path / "out", "--json")
    kills = 0
    # the test keeps the server alive, so that most moments fall into the export and not into a start
    with private_server(Home(command.home)):
        while kills < rounds:
            process = command.start(*arguments)
            try:
                process.communicate(timeout=draw.uniform(0.3, 4.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
        final = command.run(*arguments)

    assert final.status == 0, f"seed {seed}: {final.err}"
    assert final.job["result"]["digest"] == undisturbed.digest
    assert steps_of(final.job) == undisturbed.checkpoints
    nothing_left(command)
    cursors_without_gaps(command.home)
