"""Runs of the command: started by the launcher, and what can be said of them from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from autocode.jobs.errors import UnexpectedError

__all__ = ["Child", "Launcher", "Run", "clean_environment"]

_END_SECONDS: Final = 120.0
"""How long a command may take; a hundred times what it needs, for machines that do something else."""


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A command that ended, as its parent saw it: no word of the command's own counts.

    Args:
        command: the command and its options, without paths.
        status: the exit status; below zero the number of the signal that ended it.
        crash_at: the crash point that was armed, if one was.
        out: what it wrote on stdout.
        err: what it wrote on stderr.
    """

    command: str
    status: int
    crash_at: str | None
    out: str
    err: str

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.status == -signal.SIGKILL

    def __repr__(self) -> str:
        if self.status < 0:
            where = f" at {self.crash_at}" if self.crash_at else ""
            return f"autocode-jobs {self.command}: killed by {signal.Signals(-self.status).name}{where}"
        missed = f"; it never came to {self.crash_at}" if self.crash_at else ""
        told = "" if self.status == 0 else "\n" + self.err.strip()
        return f"autocode-jobs {self.command}: ended with status {self.status}{missed}{told}"


class Child:
    """A command that was started.

    Args:
        answers: what the launcher says about it.
    """

    def __init__(self, answers: SimpleQueue[dict[str, Any]]) -> None:
        self._answers = answers
        self.pid: int = self._next("pid", _END_SECONDS)
        """The process id, for signals."""

    def wait(self, *, within: float = _END_SECONDS) -> int:
        """Wait for its end and return its status; below zero the number of the signal that ended it.

        Call it once.

        Raises:
            UnexpectedError: it didn't end *within* so many seconds and was killed, or the launcher is gone.
        """
        try:
            return self._next("status", within)
        except UnexpectedError:
            os.kill(self.pid, signal.SIGKILL)
            raise

    def _next(self, key: str, within: float) -> int:
        try:
            answer = self._answers.get(timeout=within)
        except Empty:
            raise UnexpectedError(f"The command said nothing for {within:.0f} s and was killed.") from None
        if key not in answer:
            raise UnexpectedError("The process that starts a lesson's commands is gone.")
        value: int = answer[key]
        return value


class Launcher:
    """The process that starts commands; it ends with this one, and so does what it started.

    Returns at once: what it has to import, it imports while the reader reads.

    Args:
        home: the home whose Prefect folder all commands use.
        log: a file for what goes wrong in it.
    """

    def __init__(self, home: Path, log: Path) -> None:
        with log.open("wb") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "autocode.jobs.testing.lessons.launcher", str(home)],
                env=clean_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
            )
        self._log = log
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._started = 0
        self._over = False
        self._waiting: dict[int, SimpleQueue[dict[str, Any]]] = {}
        threading.Thread(target=self._listen, name="launcher's answers", daemon=True).start()

    def start(self, argv: Sequence[str], environment: Mapping[str, str], out: Path, err: Path) -> Child:
        """Start ``autocode-jobs`` with *argv*, its output in the files *out* and *err*.

        Raises:
            UnexpectedError: the launcher is gone; the detail holds what it complained of.
        """
        if not self._ready.wait(_END_SECONDS):
            raise self._gone()
        with self._lock:
            # a write alone doesn't tell: for a moment it succeeds, though the reader is dead
            if self._over:
                raise self._gone()
            self._started += 1
            number = self._started
            answers = self._waiting[number] = SimpleQueue()
            request = {
                "run": number,
                "argv": list(argv),
                "env": dict(environment),
                "out": str(out),
                "err": str(err),
            }
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
            except OSError as error:
                raise self._gone() from error
        return Child(answers)

    @property
    def pid(self) -> int:
        """The launcher's own process id."""
        return self._process.pid

    def close(self) -> None:
        """End it and every command that still runs; idempotent."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if not self._ready.is_set():
            # it has started nothing yet, and would look at its stdin only when all is imported
            self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                answer = json.loads(line)
                if answer.get("ready"):
                    self._ready.set()
                else:
                    self._waiting[answer["run"]].put(answer)
        with self._lock:
            self._over = True
            for queue in self._waiting.values():
                queue.put({})
        self._ready.set()

    def _gone(self) -> UnexpectedError:
        told = self._log.read_text("utf-8", "replace").strip().splitlines()
        last = told[-1] if told else "it left no word"
        return UnexpectedError(f"The process that starts a lesson's commands is gone: {last}.")


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would change a command's work or its words."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("AUTOCODE_", "PREFECT_"))}
    return {**kept, "COLUMNS": "100", "NO_COLOR": "1", "TZ": "UTC"}
