"""A served home: the API as a process of its own, for tests that need a real port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autocode.jobs.client import Client, discover
from autocode.jobs.settings import Home

SOURCES = Path(__file__).parents[1] / "src"
PROGRAM = Path(__file__).with_name("api_process.py")

_START_SECONDS = 120.0
"""How long a process may take to start, on a machine that does much else."""


def until(condition: Callable[[], bool], within: float = 30.0) -> None:
    """Wait until *condition* holds."""
    end = time.monotonic() + within
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.02)


class Serving:
    """A process that serves a home.

    Args:
        home: whose API.
        log: the file of what it says.
        options: how it is called.
    """

    def __init__(self, home: Home, log: Path, **options: Any) -> None:
        self.home = home
        self.log = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(home.path), json.dumps(options)],
                env={**os.environ, "PYTHONPATH": f"{SOURCES}{os.pathsep}{PROGRAM.parent}"},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def facts(self) -> dict[str, Any]:
        """Return what the process wrote once it answered."""
        file = self.home.run / "api.json"
        until(lambda: self.process.poll() is not None or self._is_ours(file), _START_SECONDS)
        assert self.process.poll() is None, self.log.read_text("utf-8")[-3000:]
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return found

    def client(self) -> Client:
        """Return the client that a command of this home would use."""
        self.facts()
        found = discover(self.home, {})
        assert found is not None
        return found

    def end(self, number: int = signal.SIGTERM) -> int:
        """Tell the process to end, and return its status."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30)

    def _is_ours(self, file: Path) -> bool:
        try:
            return bool(json.loads(file.read_text("utf-8"))["pid"] == self.process.pid)
        except FileNotFoundError:
            return False


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[Serving]:
    """Give a process that serves a home of its own; it is gone afterwards."""
    serving = Serving(Home(folder / "home"), folder / "api.log", **options)
    try:
        yield serving
    finally:
        if serving.process.poll() is None:
            serving.process.kill()
        serving.process.wait()
        assert serving.process.stdout is not None
        serving.process.stdout.close()
