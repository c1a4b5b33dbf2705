"""Holding requests until a job moves: the ledger wakes one query for all who wait.

Nothing is asked while nobody waits, and soon after the last one left nobody listens either.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from autocode.jobs.api.listening import Listening
from autocode.jobs.api.threads import RequestCalls, Threads
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger import glances
from autocode.jobs.ledger.database import Database

__all__ = ["Watch"]

_log = logging.getLogger("autocode.jobs.api")

_PAUSE_SECONDS: Final = 0.02
"""The least time between two queries, however much happens."""

_ANYWAY_SECONDS: Final = 1.0
"""How soon the ledger is asked without having been heard: a wake-up may be lost with its connection."""

_LINGER_SECONDS: Final = 10.0
"""How long to go on listening for who may wait next, since a connection takes a while to make."""

_ANSWER_SECONDS: Final = 4.0


class Watch:
    """Tells those who wait when the revision of their job is another one.

    Args:
        db: the ledger.
        threads: where it is read.
        listening: what wakes.
        most: how many may wait at once.
    """

    def __init__(self, db: Database, threads: Threads, listening: Listening, most: int) -> None:
        self._db = db
        self._threads = threads
        self._listening = listening
        self._most = most
        self._waiting: dict[asyncio.Future[None], tuple[str, int]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._waiting)

    async def moved(self, job_id: str, rev: int, seconds: float) -> bool:
        """Wait until the job's revision isn't *rev*; return whether that happened within *seconds*.

        Returns at once where too many wait already, or the process is about to end.
        """
        if self._closed or len(self._waiting) >= self._most:
            return False
        _log.debug("held: %s", job_id)
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[moved] = (job_id, rev)
        # it may have moved since the caller read it
        self._woken.set()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            await asyncio.wait_for(moved, seconds)
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(moved, None)
        return not self._closed

    def close(self) -> None:
        """Let go of everybody who waits."""
        self._closed = True
        for moved in list(self._waiting):
            _let_go(moved)
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _LINGER_SECONDS
        with self._listening.to(self._woken):
            while not self._closed and (self._waiting or loop.time() < until):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), _ANYWAY_SECONDS)
                self._woken.clear()
                if self._waiting:
                    until = loop.time() + _LINGER_SECONDS
                    await self._tell()
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _tell(self) -> None:
        asked = {job_id for job_id, _ in self._waiting.values()}
        try:
            found = await RequestCalls(self._threads, _ANSWER_SECONDS)(glances.revisions, self._db, asked)
        except JobsError:
            # those who wait are told by their own next read, or try again when their time is over
            return
        for moved, (job_id, rev) in list(self._waiting.items()):
            if job_id in asked and found.get(job_id, rev) != rev:
                _let_go(moved)


def _let_go(moved: asyncio.Future[None]) -> None:
    if not moved.done():
        moved.set_result(None)
