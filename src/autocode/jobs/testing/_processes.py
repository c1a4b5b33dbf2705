"""See to it that a child and what it owns are gone, whatever happens to us."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

__all__ = ["Janitor"]

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
