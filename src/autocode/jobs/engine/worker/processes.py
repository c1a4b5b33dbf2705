"""Reaping children without ever hitting a process that got the number of a dead one; and ending as one."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Final

__all__ = ["become_subreaper", "call_oneself", "finish", "kill_group", "reap", "reap_any"]

_SET_NAME: Final = 15
_SET_CHILD_SUBREAPER: Final = 36
"""``PR_SET_NAME`` and ``PR_SET_CHILD_SUBREAPER``, ``prctl(2)``."""


def become_subreaper() -> None:
    """Let descendants that lose their parent become this process's children. Does nothing but on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def call_oneself(name: str) -> None:
    """Let ``ps -o comm`` and ``top`` show this process as ``jobs-NAME``, 15 bytes at most. Only on Linux.

    A forked process has the command line of the one that it was forked from.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_NAME, f"jobs-{name}".encode()[:15], 0, 0, 0)


def reap(pid: int) -> int | None:
    """Reap a child if it ended, and kill what it left in its process group.

    The group is killed while the dead child still has its number, so that the number is nobody else's.

    Returns:
        The exit status of :func:`os.waitstatus_to_exitcode`, negative for a signal; ``None``: it lives.

    Raises:
        ChildProcessError: it is no child of this process.
    """
    if hasattr(os, "waitid"):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        kill_group(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    found, status = os.waitpid(pid, os.WNOHANG)
    if found == 0:
        return None
    kill_group(pid)
    return os.waitstatus_to_exitcode(status)


def reap_any() -> tuple[int, int] | None:
    """Reap one child that ended, as :func:`reap` does; return its pid and status, or ``None``: all live.

    Raises:
        ChildProcessError: this process has no children.
    """
    if hasattr(os, "waitid"):
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        status = reap(ended.si_pid)
        return None if status is None else (ended.si_pid, status)
    pid, raw = os.waitpid(-1, os.WNOHANG)
    if pid == 0:
        return None
    kill_group(pid)
    return pid, os.waitstatus_to_exitcode(raw)


def kill_group(leader: int) -> None:
    """Kill the process group that *leader* founded; there may be none."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def finish() -> None:
    """Do what the interpreter does at its end, which a forked process skips: events and logs go out."""
    with suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - what a normal exit calls
    with suppress(Exception):
        atexit._run_exitfuncs()  # noqa: SLF001 - what a normal exit calls
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
