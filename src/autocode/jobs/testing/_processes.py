"""See to it that a child and what it owns are gone, whatever happens to us."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final

__all__ = ["Janitor", "kill_all", "open_children", "remove_shared_memory"]

# Reads what to guard until its input ends, which is when every holder of the other end is gone. It ignores
# the signals that a terminal or a supervisor sends to everybody, since it has to outlive us.
_JANITOR: Final = """
trap '' INT TERM HUP
pid=0
while read -r line && [ "$line" != close ]; do pid=$line; done
if [ "$pid" -gt 0 ] && kill -QUIT "$pid" 2>/dev/null; then
  tries=0
  while kill -0 "$pid" 2>/dev/null && [ "$tries" -lt 200 ]; do sleep 0.05; tries=$((tries + 1)); done
  kill -KILL "$pid" 2>/dev/null
fi
rm -rf -- "$1"
"""


class Janitor:
    """A process that ends a child of ours and removes a folder as soon as we are gone, even by SIGKILL.

    The kernel's parent-death signal can't do this: it fires when the *thread* that started the child ends,
    removes no folder and exists on Linux alone.

    Args:
        folder: removed when this process ends or :meth:`close` is called.
    """

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", _JANITOR, "janitor", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def guard(self, pid: int | None) -> None:
        """Say which child has to be ended (by SIGQUIT, then SIGKILL) when we are gone; ``None`` for none."""
        self._tell(str(pid or 0))

    def close(self) -> None:
        """End the guarded child, remove the folder and wait until that is done; idempotent."""
        self._tell("close")
        with suppress(OSError):
            self._stream.close()
        self._process.wait()

    @property
    def pid(self) -> int:
        """The process id of the janitor itself."""
        return self._process.pid

    @property
    def _stream(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _tell(self, line: str) -> None:
        with suppress(OSError, ValueError):  # somebody killed the janitor, or it is closed
            self._stream.write(f"{line}\n".encode())
            self._stream.flush()


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
