"""Processes of a PostgreSQL: finding them, ending them, and cleaning up after one that was killed."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

__all__ = [
    "adopt_orphans",
    "end_server",
    "kill_all",
    "open_children",
    "reap",
    "remove_shared_memory",
    "signalled_with_parent",
]

_POLL: Final = 0.02
_PROC: Final = Path("/proc")
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


@contextmanager
def open_children(pid: int) -> Iterator[list[int]]:
    """Yield a pidfd for each child of *pid*, which stays valid after that process died.

    Empty where the system has no pidfds or no ``/proc`` (everywhere but on Linux).
    """
    with ExitStack() as stack:
        handles: list[int] = []
        for child in _children(pid):
            with suppress(OSError):  # it ended in the meantime
                handle = os.pidfd_open(child)
                stack.callback(os.close, handle)
                handles.append(handle)
        yield handles


def kill_all(handles: Sequence[int], *, timeout: float = 10.0) -> None:
    """Kill the processes behind *handles* (pidfds) with SIGKILL and wait until they have ended.

    Args:
        handles: pidfds.
        timeout: seconds to wait for each; the kernel may hold one that waits for a disk.
    """
    for handle in handles:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(timeout * 1000)


def remove_shared_memory(pid_file: Path) -> None:
    """Remove the System V segment that a killed PostgreSQL left; does nothing after an orderly end.

    Line 7 of ``postmaster.pid`` holds the segment's key and id (PostgreSQL's ``miscinit.h``); an orderly
    shutdown removes the file.
    """
    with suppress(OSError, IndexError, ValueError):
        identifier = int(pid_file.read_text().splitlines()[6].split()[1])
        subprocess.run(["ipcrm", "-m", str(identifier)], check=False, capture_output=True)


def _children(pid: int) -> list[int]:
    if not hasattr(os, "pidfd_open"):
        return []
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def end_server(data: Path, socket: Path, name: str, uid: int, *, patience: float) -> None:
    """End whatever still works on the data folder *data*, and forget the lock files of what is gone.

    A postmaster gets the orderly *fast* shutdown first; what is left after it, or has no postmaster any more,
    is killed. A process is known by its command line and its user: an id alone may be anybody's by now.
    Only for who holds the lock of that folder: nothing may start there meanwhile.

    Args:
        data: the data folder.
        socket: the folder of its socket.
        name: the ``cluster_name`` of its server.
        uid: the user that the server runs as.
        patience: seconds for the orderly end.

    Raises:
        TimeoutError: something survived even SIGKILL, as a process does that waits for a dead disk.
    """
    family = _family(data, name, uid)
    postmasters = [pid for pid, is_postmaster in family.items() if is_postmaster]
    deadline = time.monotonic() + patience
    for pid in postmasters:
        _send(pid, signal.SIGINT, data, name, uid)
    while family and postmasters and time.monotonic() < deadline:
        time.sleep(_POLL)
        family = _family(data, name, uid)
        postmasters = [pid for pid, is_postmaster in family.items() if is_postmaster]
    deadline = time.monotonic() + patience
    while family:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {sorted(family)} of {data} don't end")
        for pid in family:
            _send(pid, signal.SIGKILL, data, name, uid)
        time.sleep(_POLL)
        reap()
        family = _family(data, name, uid)
    # with any process under the old id, a zombie included, PostgreSQL would refuse to start
    for left in (data / "postmaster.pid", *socket.glob(".s.PGSQL.*.lock")):
        left.unlink(missing_ok=True)


def reap() -> None:
    """Take leave of every child that has ended and that nobody waits for."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def adopt_orphans() -> None:
    """Let processes whose parent, a child of ours, is gone become our children. Linux; elsewhere nothing."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def signalled_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return a function that, in a child, asks for a signal when its parent is gone. Linux alone.

    The kernel forgets the wish when the child changes its user, and means by the parent the *thread* that
    started the child.
    """
    parent = os.getpid()

    def ask() -> None:
        _prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)

    return ask


# loaded before any fork: a child of a busy process can't load anything
_LIBC: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _prctl(option: int, value: int) -> None:
    if _LIBC is not None:
        _LIBC.prctl(option, value, 0, 0, 0)


def _family(data: Path, name: str, uid: int) -> dict[int, bool]:
    """Return the processes of the server of *data*, each with whether it is the postmaster."""
    found: dict[int, bool] = {}
    for pid, owner, words in _command_lines():
        if owner != uid or not words:
            continue
        if Path(words[0]).name == "postgres" and words[1:3] == ["-D", str(data)]:
            found[pid] = True
        elif words[0].startswith(f"postgres: {name}: "):
            found[pid] = False
    # a process that the postmaster has just forked bears its words until it has a title of its own
    return {pid: titled and _parent(pid) not in found for pid, titled in found.items()}


def _parent(pid: int) -> int | None:
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return None


def _command_lines() -> Iterator[tuple[int, int, list[str]]]:
    if _PROC.is_dir():
        for entry in _PROC.glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")
                yield int(entry.name), entry.stat().st_uid, words
        return
    listing = subprocess.run(["ps", "-axww", "-o", "pid=,uid=,command="], check=False, capture_output=True)
    for line in listing.stdout.decode("utf-8", "surrogateescape").splitlines():
        pid, uid, command = line.split(None, 2)
        titled = command.startswith("postgres: ")
        yield int(pid), int(uid), [command] if titled else command.split(" ")


def _send(pid: int, number: signal.Signals, data: Path, name: str, uid: int) -> None:
    """Send a signal to *pid*, and never to another process that has got its id meanwhile."""
    with suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            os.kill(pid, number)
            return
        handle = os.pidfd_open(pid)
        try:
            if pid in _family(data, name, uid):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
