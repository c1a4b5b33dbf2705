"""A part's process that another process forked: told, stopped and killed without ever hitting a third one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Final

__all__ = ["Forked"]

_REPORT_SECONDS: Final = 2.0
"""How long its end may go untold before its parent counts as hung: that one may have been stopped."""


class Forked:
    """Implements :class:`.running.Running` by a handle of the kernel's (``pidfd_open(2)``).

    The handle is this very process's for as long as it is open, so a signal reaches it or nobody, whatever
    its parent does. How it ended only the parent can tell.

    Args:
        number: by which the parent and we know it.
        look: hears what the parent has to tell.
        hung: called when the parent didn't tell the end in time; it then is told by :meth:`told`.
    """

    def __init__(self, number: int, look: Callable[[], None], hung: Callable[[], None]) -> None:
        self.number = number
        self.pid = 0
        self._look = look
        self._hung = hung
        self._handle: int | None = None
        self._status: int | None = None
        self._dead_since: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether its process is known, or that it has ended."""
        return self.pid != 0 or self._status is not None

    def started(self, pid: int) -> None:
        """Note its process, which its parent has not reaped."""
        self.pid = pid
        # one that ended and was reaped within a moment is told about right after this
        with contextlib.suppress(ProcessLookupError):
            self._handle = os.pidfd_open(pid)

    def told(self, status: int) -> None:
        """Note how it ended."""
        self._status = status
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def orphaned(self) -> None:
        """End it: its parent is gone, and nobody could tell any more how it ends."""
        self.kill()
        self.told(-signal.SIGKILL)

    def ended(self) -> int | None:
        """See :class:`.running.Running`."""
        self._look()
        if self._status is None and not self._lives():
            now = time.monotonic()
            self._dead_since = now if self._dead_since is None else self._dead_since
            if now - self._dead_since > _REPORT_SECONDS:
                self._hung()
        return self._status

    def terminate(self) -> None:
        """See :class:`.running.Running`."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """See :class:`.running.Running`."""
        if self._lives():
            # it leads its group, whose number is nobody else's while it lives
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def _lives(self) -> bool:
        if self._handle is None:
            return False
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return not poll.poll(0)
