"""What would make our processes burn a core for nothing if it were wrong."""

from __future__ import annotations

import subprocess
import sys
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


def test_prefect_comes_without_the_grammar_that_jupyter_brings() -> None:
    """jsonschema, which Prefect imports, builds no grammar of IRIs in our processes: that takes 2 s."""
    script = (
        "import sys; from autocode.jobs.engine.environment import leave_out_grammar; leave_out_grammar();"
        "import jsonschema; sys.exit('lark' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)

    assert (done.returncode, done.stderr) == (0, b"")
