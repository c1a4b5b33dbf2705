"""Where a worker's zygote comes from: forked together with the worker, or started by it.

The service's parts are forked from a process that has imported everything. The worker among them can't be a
zygote itself, since it has threads; so a second process is forked with it before it has any. That one waits
until the worker knows the Prefect server's address, and tells it.

A zygote that dies is replaced by one that is started from scratch, and imports everything again.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

__all__ = ["ZygoteProcess", "fork_beside", "hear_environment", "launch"]


class ZygoteProcess(Protocol):
    """What a worker does with the process of its zygote, which is its child."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def wait(self) -> int:
        """Reap it."""


@dataclass(frozen=True, slots=True)
class _Forked:
    pid: int

    def kill(self) -> None:
        # not reaped yet, so the number is still its own
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


_beside: list[tuple[ZygoteProcess, socket.socket]] = []


def fork_beside(become: Callable[[socket.socket], None]) -> None:
    """Fork a zygote for the worker that this process is about to become; :func:`launch` returns it, once.

    Call it with one thread. The fork leads a session of its own, and ends its process when *become* returns.

    Args:
        become: what the fork does, given its socket to the worker.
    """
    ours, its = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            ours.close()
            os.setsid()
            become(its)
            status = 0
        finally:
            os._exit(status)
    its.close()
    _beside.append((_Forked(pid), ours))


def launch(environment: Mapping[str, str]) -> tuple[ZygoteProcess, socket.socket]:
    """Return a zygote that works in *environment*, and the socket to it, without waiting for anything.

    Args:
        environment: what the zygote and every child get.
    """
    if _beside:
        zygote, control = _beside.pop()
        # one that has died is noticed where it is listened to
        with suppress(OSError):
            control.sendall(json.dumps(dict(environment)).encode() + b"\n")
        return zygote, control
    ours, its = socket.socketpair()
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", "autocode.jobs.engine.worker.zygote", str(its.fileno())],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            start_new_session=True,
        )
    ours.sendall(b"{}\n")
    return process, ours


def hear_environment(control: socket.socket) -> bool:
    """Make what :func:`launch` says this process's environment; ``False``: nobody is left to say it."""
    parts: list[bytes] = []
    while not parts or parts[-1] != b"\n":
        # byte by byte: what follows the line is for somebody else
        part = control.recv(1)
        if not part:
            return False
        parts.append(part)
    told = json.loads(b"".join(parts))
    if told:
        os.environ.clear()
        os.environ.update(told)
    return True
