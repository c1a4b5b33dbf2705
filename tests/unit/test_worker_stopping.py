"""How a process that runs one attempt comes to its end, whatever would hold it."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

_HELD = dedent("""
    import threading
    from prefect.client.schemas.objects import FlowRun
    from autocode.jobs.engine.worker.processes import finish
    from autocode.jobs.engine.worker.stopping import Stop

    def left_behind_by_a_step():
        threading.Event().wait()

    stop = Stop(lambda: None, FlowRun.model_construct(), "holder")
    threading.Thread(target=left_behind_by_a_step).start()
    stop.attempt_is_over(0.1)
    finish()
""")


def test_a_thread_that_a_step_left_behind_does_not_hold_the_process() -> None:
    """The process leaves once its attempt is over for a while, and its log says what held it."""
    held = subprocess.run(
        [sys.executable, "-c", _HELD], capture_output=True, text=True, timeout=60, check=False
    )

    assert held.returncode == 0, held.stderr
    assert "left_behind_by_a_step" in held.stderr
    assert "after the end of its attempt" in held.stderr
