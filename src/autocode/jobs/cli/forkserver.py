"""The process that parts of the service are forked from: ``python -m autocode.jobs.cli.forkserver FD``.

Each part needs nearly the same libraries, Prefect first of all, and importing them takes seconds of processor
time. Here they are imported once: a start costs that once instead of four times, a part that died is back in
a tenth of a second, and the parts share the memory. Each part is a process of its own all the same.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Final

from autocode.jobs import logs
from autocode.jobs.engine.environment import configure_client
from autocode.jobs.engine.worker import launch, zygote
from autocode.jobs.engine.worker.processes import call_oneself, finish
from autocode.jobs.settings import Home

__all__ = ["main"]

_PRELOADED: Final = (
    "autocode.jobs.cli.commands",
    "autocode.jobs.cli.parts",
    "autocode.jobs.api.process",
    "autocode.jobs.engine.daemon",
    "autocode.jobs.engine.worker.service",
    "autocode.jobs.engine.worker.child",
)

_ORPHAN_SECONDS: Final = 120.0
"""How long parts may go on without their supervisor: longer than they grant themselves (``leash``)."""


def main(descriptor: int, *kept: int) -> None:
    """Serve the supervisor at the socket's other end until it is gone, and all parts with it.

    Args:
        descriptor: the socket.
        kept: open files that say that this process lives, and that no part is to hold.
    """
    # what a terminal sends to everybody is for the supervisor, which ends the parts in order
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    call_oneself("forkserver")
    home = Home.from_environment()
    logs.configure_child("up", home.logs)
    configure_client(home)
    from autocode.jobs.engine.worker import prewarm  # noqa: PLC0415 - after Prefect's settings are set

    prewarm.preload()
    for module in _PRELOADED:
        importlib.import_module(module)
    prewarm.freeze()

    def live(lifeline: socket.socket) -> int:
        for each in kept:
            os.close(each)
        return _live(lifeline)

    zygote.Zygote(socket.socket(fileno=descriptor), live, orphan_seconds=_ORPHAN_SECONDS).serve()


def _live(lifeline: socket.socket) -> int:
    """Be the part that the supervisor describes in a line of JSON, with open files for its streams."""
    described, files = _described(lifeline)
    if described is None:
        # the supervisor died before it said what to do
        return 0
    streams, kept = files[:3], files[3:]
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
        os.close(descriptor)
    if described["directory"] is not None:
        os.chdir(described["directory"])
    os.environ.clear()
    os.environ.update(described["environ"])
    argv: list[str] = described["argv"]
    if argv[0] == "worker":
        launch.fork_beside(lambda control: _accompany(control, kept))
    return _run(argv)


def _run(argv: list[str]) -> int:
    from autocode.jobs.cli import main as command  # noqa: PLC0415 - imported long ago

    call_oneself(argv[0])
    sys.argv = ["autocode-jobs", *argv]
    try:
        return command.serve(argv)
    finally:
        finish()


def _accompany(control: socket.socket, kept: list[int]) -> None:
    """Be the worker's zygote; what says that the worker lives is not for it to hold."""
    for descriptor in kept:
        os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.environ.pop("AUTOCODE_LEASH", None)
    zygote.serve(control)


def _described(lifeline: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    text, files = b"", []
    with lifeline:
        while not text.endswith(b"\n"):
            part, received, _flags, _address = socket.recv_fds(lifeline, 1 << 16, 8)
            files += received
            if not part:
                return None, files
            text += part
    return json.loads(text), files


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*map(int, sys.argv[1:]))
