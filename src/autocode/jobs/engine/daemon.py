"""The reconcile process: one leads and works, any number of others stand by."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
import threading
from collections.abc import Callable
from typing import Any, Final

from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

# the kinds that ship with the package are registered by their import
import autocode.jobs.operations.export  # noqa: F401 - see above
from autocode.jobs.engine.announce import announced
from autocode.jobs.engine.holder import holding, proven_dead
from autocode.jobs.engine.leading import Lead
from autocode.jobs.engine.server import Address
from autocode.jobs.engine.system import System
from autocode.jobs.errors import JobsError, LeadershipLost
from autocode.jobs.ledger.leaders import RENEW_SECONDS, Leadership, assert_leading
from autocode.jobs.ledger.wakeups import Listener
from autocode.jobs.notifications.settings import NotificationSettings

__all__ = ["ROLE", "run"]

ROLE: Final = "reconcile"
"""The role that one of these processes has at a time, and the name of the part."""

_LISTEN_SECONDS: Final = 0.5
"""How soon the listening thread notices that the process ends."""

logger = logging.getLogger(__name__)


def run(
    system: System,
    address: Address,
    *,
    name: str | None = None,
    notifications: NotificationSettings | None = None,
) -> int:
    """Reconcile in the foreground until SIGTERM or SIGINT; return the exit status.

    Args:
        system: the opened home.
        address: the Prefect server; it may be away, now or later.
        name: tells this process from others of the same home.
        notifications: how to tell the world that a job ended; without e-mail where nothing is given.

    Raises:
        TimeoutError: another reconciler of this name runs in the home.
    """
    settings: dict[Any, Any] = {PREFECT_API_URL: address.url}
    if address.auth:
        settings[PREFECT_API_AUTH_STRING] = address.auth
    with (
        announced(system.home, ROLE, name) as ready,
        holding(system.home) as holder,
        temporary_settings(settings),
    ):
        return asyncio.run(_Daemon(system, holder, ready, notifications or NotificationSettings()).run())


class _Daemon:
    def __init__(
        self, system: System, holder: str, ready: Callable[[], None], notifications: NotificationSettings
    ) -> None:
        self._system = system
        self._notifications = notifications
        self._ready = ready
        self._leadership = Leadership(
            system.db, ROLE, holder, gone=lambda other: proven_dead(system.home, other)
        )
        self._moved = asyncio.Event()
        self._ending = threading.Event()
        self._term: int | None = None
        self._lead: Lead | None = None
        self._failure: BaseException | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._end)
        threads = [
            threading.Thread(target=self._look_for_lead, args=(loop,), name="leadership", daemon=True),
            threading.Thread(target=self._listen, args=(loop,), name="listener", daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            await self._follow_terms()
        finally:
            self._ending.set()
            for thread in threads:
                await asyncio.to_thread(thread.join)
        logger.info("ended")
        return 0 if self._failure is None else 1

    async def _follow_terms(self) -> None:
        """Work in each term of ours, and stand by in all others, until the process is to end."""
        work: asyncio.Task[None] | None = None
        working = None
        while not self._ending.is_set():
            await self._moved.wait()
            self._moved.clear()
            if self._term == working and not self._ending.is_set():
                continue
            if work is not None:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                work = None
            working = self._term
            if working is not None and not self._ending.is_set():
                work = asyncio.create_task(self._work(working))
        if work is not None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _work(self, term: int) -> None:
        logger.info("leading", extra={"term": term})
        db = self._system.db.guarded(lambda tx: assert_leading(tx, ROLE, term))
        try:
            async with get_client() as client:
                self._lead = Lead(dataclasses.replace(self._system, db=db), client, self._notifications)
                await self._lead.run()
        except* LeadershipLost:
            logger.warning("another process leads now; standing by", extra={"term": term})
        except* Exception as group:
            logger.exception("the work of the leader broke off")
            self._failure = group
            self._end()
        finally:
            self._lead = None

    def _end(self) -> None:
        self._ending.set()
        self._moved.set()

    def _look_for_lead(self, loop: asyncio.AbstractEventLoop) -> None:
        """Renew or watch, in a thread of its own: a long look at a job must not cost the lead."""
        ready = False
        while True:
            try:
                term = self._leadership.lead_or_wait()
            except JobsError as error:
                # a leader that can't write changes nothing; whether it still leads shows when it can
                logger.debug("the lead can't be looked at: %s", error)
            else:
                self._set_term(loop, term)
                if not ready:
                    self._ready()
                    logger.info(
                        "ready, %s", "standing by: another process leads" if term is None else "leading"
                    )
                ready = True
            if self._ending.wait(RENEW_SECONDS):
                break
        try:
            self._leadership.release()
        except JobsError as error:
            logger.warning("the lead ends with its lease: %s", error)

    def _set_term(self, loop: asyncio.AbstractEventLoop, term: int | None) -> None:
        if term != self._term:
            self._term = term
            loop.call_soon_threadsafe(self._moved.set)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        with Listener(self._system.db, stamps=False) as listener:
            while not self._ending.is_set():
                if listener.wait(_LISTEN_SECONDS):
                    loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._lead is not None:
            self._lead.wake()
