"""A process that runs ``autocode-jobs`` commands: ``python -m autocode.jobs.testing.lessons.launcher HOME``.

Importing Prefect takes two to three seconds of processor time, and a lesson runs dozens of commands. So this
process imports everything once, and each command is a child that is forked from it: a process of its own,
with its own id, that calls what the console command calls and can be killed like any other.

It reads one JSON object a line from stdin and answers on stdout: ``{"run": 1, "pid": …}`` when the child was
started, ``{"run": 1, "status": …}`` when it ended. When stdin ends, which is when whoever started it is
gone, however that came about, it kills what still runs and ends.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

from autocode.jobs.engine.environment import configure_client
from autocode.jobs.settings import Home

__all__ = ["main"]

_PRELOADED: Final = (
    "autocode.jobs.cli.commands",
    "autocode.jobs.cli.export",
    "autocode.jobs.cli.main",
    "autocode.jobs.engine.oneshot",
)


class _Children:
    """The running children by the pipe that ends with each of them."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[int, int]] = {}

    @property
    def pipes(self) -> list[int]:
        return list(self._running)

    def start(self, request: dict[str, Any]) -> None:
        """Fork a child for *request*, and say so."""
        # a forked child holds the writing end until it dies, and what it executes doesn't inherit it
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become(request)
        os.close(write)
        self._running[read] = (request["run"], pid)
        _say(run=request["run"], pid=pid)

    def reap(self, pipe: int) -> None:
        """Collect the child whose pipe ended, and say how it ended."""
        run, pid = self._running.pop(pipe)
        os.close(pipe)
        _, status = os.waitpid(pid, 0)
        _say(run=run, status=os.waitstatus_to_exitcode(status))

    def kill(self) -> None:
        """Kill whatever runs, also what is stopped, and collect it."""
        for _, pid in self._running.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._running.clear()


def main(home: str) -> int:
    """Run commands until stdin ends; return the exit status."""
    # Ctrl-C in a notebook reaches the whole process group, and is meant for the command that runs
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    configure_client(Home(Path(home)))
    for name in _PRELOADED:
        importlib.import_module(name)
    # children share the pages of what was loaded, as long as no collection touches them
    gc.collect()
    gc.freeze()
    _say(ready=True)
    children = _Children()
    try:
        _serve(children)
    except BrokenPipeError:
        # whoever started us is gone and reads no answers any more
        pass
    finally:
        children.kill()
    return 0


def _serve(children: _Children) -> None:
    pending = b""
    while True:
        readable, _, _ = select.select([0, *children.pipes], [], [])
        for pipe in readable:
            if pipe != 0:
                children.reap(pipe)
        if 0 in readable:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                children.start(json.loads(line))


def _say(**answer: Any) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


def _become(request: dict[str, Any]) -> NoReturn:
    """Turn this forked process into the command, as if a shell had started it."""
    status = 1
    try:
        for number, (path, flags) in enumerate(
            [
                (os.devnull, os.O_RDONLY),
                (request["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
                (request["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            ]
        ):
            descriptor = os.open(path, flags, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(request["env"])
        sys.argv = ["autocode-jobs", *request["argv"]]
        importlib.import_module("autocode.jobs.cli.main").main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # the launcher's own cleaning up isn't the child's business
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
