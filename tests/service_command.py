"""``autocode-jobs up`` as its users run it, and everything that runs because of it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["PARTS", "Service", "until"]

PARTS = ("postgres", "prefect", "api", "reconcile", "worker")
"""In the order in which they start."""

_PROGRAM = Path(sys.executable).parent / "autocode-jobs"
_READY_SECONDS = 150


class Service:
    """One home, and the service on it while one runs.

    Args:
        home: its data folder.
        arguments: of ``up``, beside ``--json`` and a free port.
        environ: variables of its commands, beside the test's own.
    """

    def __init__(self, home: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.events: list[dict[str, Any]] = []
        self.shown = ""
        self.ready_seconds: float | None = None
        self._arguments = arguments
        self._more = dict(environ or {})
        self._process: subprocess.Popen[str] | subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its commands: the test's own and the home."""
        return {**os.environ, **self._more, "AUTOCODE_HOME": str(self.home)}

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until every part is ready."""
        self.events = []
        process = self._process = subprocess.Popen(
            [_PROGRAM, "up", "--json", "--port", "0", *self._arguments],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()
        began = time.monotonic()
        until(lambda: self.event("ready") is not None, within=_READY_SECONDS, told=self.told)
        self.ready_seconds = time.monotonic() - began

    def start_on_terminal(self) -> None:
        """Start it on a terminal and wait until that shows that every part is ready."""
        self.shown = ""
        ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [_PROGRAM, "up", "--port", "0", *self._arguments],
            env={**self.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._watch, args=(ours,), daemon=True)
        self._reader.start()
        until(
            lambda: "ready after" in self.shown and "Log in:" in self.shown,
            within=_READY_SECONDS,
            told=lambda: self.shown + self.told(),
        )

    def start_unread(self) -> None:
        """Start it, read its first line and no more, and wait until its API answers."""
        process = self._process = subprocess.Popen(
            [_PROGRAM, "up", "--port", "0", *self._arguments],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        self.shown = process.stdout.readline()
        process.stdout.close()
        self._reader = None
        until(
            lambda: process.poll() is not None or bool(self.recorded().get("url")),
            within=_READY_SECONDS,
            told=self.told,
        )

    def recorded(self) -> dict[str, Any]:
        """Return what the service says of itself to other commands of its home."""
        try:
            found: dict[str, Any] = json.loads((self.home / "run" / "up.json").read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def stop(self) -> None:
        """End it in order if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGTERM)
            self.end()

    def ensure(self) -> None:
        """Start it unless it runs."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command on the home to its end."""
        return subprocess.run(
            [_PROGRAM, *arguments],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def event(self, name: str) -> dict[str, Any] | None:
        """Return the last event of this name."""
        return next((event for event in reversed(self.events) if event.get("event") == name), None)

    def health(self, part: str) -> dict[str, Any]:
        """Return how a part was when it last changed."""
        return next(event for event in reversed(self.events) if event.get("part") == part)

    def url(self) -> str:
        """Return where the API answers."""
        found: str = self.health("api")["url"]
        return found

    def signal(self, number: int) -> None:
        """Send a signal to the supervisor."""
        os.kill(self.pid, number)

    def end(self) -> int:
        """Wait until the supervisor has ended; return its exit status."""
        assert self._process is not None
        status = self._process.wait(60)
        if self._reader is not None:
            self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status

    def processes(self) -> dict[int, str]:
        """Return every living process that names the home, in its environment or its command line."""
        found = {}
        wanted = os.fsencode(self.home)
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            try:
                if wanted in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                    found[int(entry.name)] = (entry / "cmdline").read_text("utf-8").replace("\0", " ")
            except OSError:
                continue
        return found

    def close(self) -> None:
        """Leave nothing running, whatever the test did."""
        self.stop()
        until(lambda: not self.processes(), within=60, told=lambda: str(self.processes()))

    def told(self) -> str:
        """Return what the service said, and the ends of its logs."""
        logs = {
            path.name: path.read_text("utf-8", "replace")[-1500:] for path in self.home.glob("logs/*.log")
        }
        return "\n".join([*map(str, self.events), *(f"== {name}\n{text}" for name, text in logs.items())])

    def _watch(self, terminal: int) -> None:
        while True:
            try:
                read = os.read(terminal, 65536)
            except OSError:
                # that is how the end of the other side is told
                read = b""
            if not read:
                os.close(terminal)
                return
            self.shown += read.decode("utf-8", "replace")

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.events.append({"said": line})


def until(condition: Callable[[], bool], *, within: float, told: Callable[[], str] = lambda: "") -> None:
    """Wait until *condition* holds; fail with what *told* says once *within* seconds have passed."""
    end = time.monotonic() + within
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"not true within {within:.0f} s: {told()}"
        pause.wait(0.05)
