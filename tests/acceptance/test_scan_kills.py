"""A scan that is killed at any line of the code that remembers files leaves nothing that harms the next."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_scan_killed_at_any_line_harms_no_other(tmp_path: Path) -> None:
    """After SIGKILL the next scan finds what is there, and the one after that opens no file."""
    driver = Path(__file__).with_name("scan_kill_driver.py")

    done = subprocess.run(
        [sys.executable, driver, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for case in ("new", "known"):
        of_case = [each for each in told if each["case"] == case]
        assert [each["status"] for each in of_case[:-1]] == [signal.SIGKILL] * (len(of_case) - 1)
        assert of_case[-1]["status"] == 0
        # fewer would mean that the cache's code wasn't reached
        assert len(of_case) > 100
    assert [each for each in told if not each["is_right"] or each["opened"]] == []
