"""A part's process, however it was started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Protocol

__all__ = ["Running", "Started", "ending"]


class Running(Protocol):
    """A process that leads a group of its own."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def ended(self) -> int | None:
        """Return the exit status (negative: a signal) once it and its group are gone; else ``None``."""

    def terminate(self) -> None:
        """Send SIGTERM to the process alone: what it does with its children is its own affair."""

    def kill(self) -> None:
        """Kill the process and its group."""


class Started:
    """A child of this process.

    Args:
        process: started with a session of its own.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ended(self) -> int | None:
        """See :class:`Running`."""
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        # while it isn't waited for, its id and that of its group belong to nobody else
        self.kill()
        return self._process.wait()

    def terminate(self) -> None:
        """See :class:`Running`."""
        # the object's own method would wait for a process that has ended, and so free its id
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """See :class:`Running`."""
        # a group with nothing but zombies in it is refused on some systems
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def ending(status: int) -> str:
    """Say in words how a process ended."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"
