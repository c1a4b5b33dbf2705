"""Holding requests until a job moves: one query at a time for all who wait, and none while nobody does."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from autocode.jobs.api.threads import RequestCalls, Threads
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger import glances
from autocode.jobs.ledger.database import Database

__all__ = ["Watch"]

_log = logging.getLogger("autocode.jobs.api")

_PAUSE_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 4.0


class Watch:
    """Tells those who wait when the revision of their job is another one.

    Args:
        db: the ledger.
        threads: where it is read.
        most: how many may wait at once.
    """

    def __init__(self, db: Database, threads: Threads, most: int) -> None:
        self._db = db
        self._threads = threads
        self._most = most
        self._waiting: dict[asyncio.Future[None], tuple[str, int]] = {}
        self._looking: asyncio.Task[None] | None = None
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
        while self._waiting and not self._closed:
            await asyncio.sleep(_PAUSE_SECONDS)
            if not self._waiting:
                return
            asked = {job_id for job_id, _ in self._waiting.values()}
            try:
                found = await RequestCalls(self._threads, _ANSWER_SECONDS)(glances.revisions, self._db, asked)
            except JobsError:
                # those who wait are told by their own next read, or try again when their time is over
                continue
            for moved, (job_id, rev) in list(self._waiting.items()):
                if job_id in asked and found.get(job_id, rev) != rev:
                    _let_go(moved)


def _let_go(moved: asyncio.Future[None]) -> None:
    if not moved.done():
        moved.set_result(None)
