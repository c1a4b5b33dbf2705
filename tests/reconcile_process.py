"""A reconcile process for as long as a test needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autocode.jobs.settings import Home
from engine_world import SOURCES, until

DRIVER = Path(__file__).with_name("engine_reconcile.py")
WITHIN = 150.0
"""A deadline for a machine that does much else."""


@contextmanager
def reconciling(home: Home, log: Path, name: str = "", url: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run a reconcile process until the block ends, then end it in order."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), name, url],
            env={
                **os.environ,
                "AUTOCODE_HOME": str(home.path),
                "PYTHONPATH": os.pathsep.join((str(SOURCES), str(DRIVER.parent))),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    record = home.run / (f"reconcile-{name}.json" if name else "reconcile.json")
    try:
        until(record.exists, within=WITHIN, told=log.read_text)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
