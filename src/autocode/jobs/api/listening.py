"""One thread that listens to the ledger, for all of a process that want to be woken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.wakeups import Listener

__all__ = ["Listening"]

_LISTEN_SECONDS: Final = 0.5
"""How soon the listening thread notices that it is to end."""


class Listening:
    """Wakes events of the loop when facts are committed; listens only while somebody wants to know.

    Args:
        db: the ledger.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._wanted: list[asyncio.Event] = []
        self._over: threading.Event | None = None

    @contextmanager
    def to(self, woken: asyncio.Event) -> Iterator[None]:
        """Set *woken* within the block, whenever something was committed; also without need, at times."""
        self._wanted.append(woken)
        if self._over is None:
            self._over = threading.Event()
            arguments = (asyncio.get_running_loop(), self._over)
            # a daemon: a database that says nothing must not hold up the end of the process
            threading.Thread(target=self._listen, args=arguments, name="ledger listener", daemon=True).start()
        try:
            yield
        finally:
            self._wanted.remove(woken)
            if not self._wanted:
                self._over.set()
                self._over = None

    def _wake(self) -> None:
        for woken in self._wanted:
            woken.set()

    def _listen(self, loop: asyncio.AbstractEventLoop, over: threading.Event) -> None:
        with Listener(self._db) as listener:
            while not over.is_set():
                if listener.wait(_LISTEN_SECONDS):
                    try:
                        loop.call_soon_threadsafe(self._wake)
                    except RuntimeError:
                        # the loop is closed: the process is ending, and nobody waits
                        return
