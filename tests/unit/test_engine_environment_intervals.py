"""Settings of the private server that would make it burn a core if they were wrong."""

from __future__ import annotations

from pathlib import Path

from autocode.jobs.engine.environment import child_environment
from autocode.jobs.settings import Home


def test_every_interval_of_the_private_server_is_at_least_a_whole_second(tmp_path: Path) -> None:
    """Prefect cuts intervals to whole seconds, and an interval of 0 is a loop that never sleeps."""
    home = Home(tmp_path / "home")
    home.prepare()

    environment = child_environment(home)

    intervals = {name: value for name, value in environment.items() if name.endswith("_INTERVAL")}
    assert intervals != {}
    assert {name: value for name, value in intervals.items() if int(float(value)) < 1} == {}
