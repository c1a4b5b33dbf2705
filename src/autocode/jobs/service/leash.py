"""How a part notices that its supervisor is gone: its stdin is a pipe that the supervisor holds open.

The kernel closes the pipe with the supervisor, however that ends. It needs no parent's id, which may be used
again, and works on every system with pipes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import MutableMapping
from typing import Final

__all__ = ["VARIABLE", "Leash", "attach"]

VARIABLE: Final = "AUTOCODE_LEASH"
"""Seconds that a part may go on, in order to end in order, once its supervisor is gone."""


class Leash:
    """The supervisor's side: one pipe for all of its parts."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()

    def close(self) -> None:
        """Let go: parts that still run end by themselves."""
        os.close(self.read_end)
        os.close(self._write_end)


def attach(environ: MutableMapping[str, str] = os.environ) -> bool:
    """End this process when its supervisor ends: by SIGTERM, and if that takes too long, with its group.

    Call it first of all; it needs no more than the standard library. Does nothing in a process that has no
    supervisor. Returns whether it has one.
    """
    # not for the processes that this one starts: their stdin is something else
    seconds = environ.pop(VARIABLE, None)
    if seconds is None:
        return False
    # the pipe is kept where no library of ours reads from
    pipe = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    threading.Thread(target=_watch, args=(pipe, float(seconds)), name="leash", daemon=True).start()
    return True


def _watch(pipe: int, seconds: float) -> None:
    with contextlib.suppress(OSError):
        while os.read(pipe, 1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seconds)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
