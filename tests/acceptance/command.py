"""The console command as its users run it: a process of its own, with a home of its own.

What is run to its end is forked from a process that has imported the program, as the service's parts are
(``autocode.jobs.cli.forkserver``); that spares each of some hundred commands two seconds. What is started and
left running is executed as a shell does it.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from autocode.jobs.service.forkserver import ForkServer
from autocode.jobs.service.running import Running

__all__ = ["PROGRAM", "Command", "Done", "until"]

PROGRAM = Path(sys.executable).parent / "autocode-jobs"


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    status: int
    out: str
    err: str

    @property
    def job(self) -> dict[str, Any]:
        """The job resource that it printed last."""
        value: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return value


@dataclass
class Command:
    """Runs ``autocode-jobs`` on one home."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    program: Path = PROGRAM

    def environ(self, **more: str) -> dict[str, str]:
        """Return the environment of a run: the test's own, the home, and *more*."""
        return {
            **os.environ,
            "AUTOCODE_HOME": str(self.home),
            "COLUMNS": "200",
            **self.environment,
            **more,
        }

    def run(
        self, *arguments: str | Path, timeout: float = 150, cwd: Path | None = None, **environment: str
    ) -> Done:
        """Run the command to its end.

        Raises:
            subprocess.TimeoutExpired: it did not end within *timeout* seconds, and was killed.
        """
        if self.program == PROGRAM:
            words = [str(each) for each in arguments]
            return _forked(words, self.environ(**environment), cwd or Path.cwd(), timeout)
        done = subprocess.run(
            [self.program, *map(str, arguments)],
            env=self.environ(**environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        """Start the command and leave it running."""
        return subprocess.Popen(
            [self.program, *map(str, arguments)],
            env=self.environ(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def processes(self) -> list[int]:
        """Return the ids of living processes that name this home on their command line."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if os.fsencode(self.home) in words:
                    found.append(int(entry.name))
        return found

    def wait_until_gone(self) -> None:
        """Wait until no process of the home lives; its Prefect server ends after its last client."""
        until(lambda: not self.processes(), within=20, told=lambda: f"processes {self.processes()}")


_forks = ForkServer({name: value for name, value in os.environ.items() if not name.startswith("AUTOCODE_")})
_forking = threading.Lock()
atexit.register(_forks.close)


def _forked(words: list[str], environ: dict[str, str], folder: Path, timeout: float) -> Done:
    with ExitStack() as stack:
        null = stack.enter_context(Path(os.devnull).open("rb"))
        out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        files = [each.fileno() for each in (null, out, err)]
        until(_can_fork, within=60)
        with _forking:
            process = _forks.spawn(words, environ, files, directory=folder)
        assert process is not None
        status = _ended(process, words, timeout)
        texts = [_text(each) for each in (out, err)]
    return Done(status, *texts)


def _can_fork() -> bool:
    with _forking:
        return _forks.ready()


def _ended(process: Running, words: list[str], timeout: float) -> int:
    end = time.monotonic() + timeout
    pause = threading.Event()
    while True:
        with _forking:
            status = process.ended()
        if status is not None:
            return status
        if time.monotonic() > end:
            with _forking:
                process.kill()
            raise subprocess.TimeoutExpired(words, timeout)
        pause.wait(0.02)


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8")


def until(condition: Callable[[], bool], *, within: float, told: Callable[[], str] = lambda: "") -> None:
    """Wait until *condition* holds; fail with what *told* says once *within* seconds have passed."""
    end = time.monotonic() + within
    pause = threading.Event()
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not true within {within:.0f} s: {told()}")
        pause.wait(0.05)
