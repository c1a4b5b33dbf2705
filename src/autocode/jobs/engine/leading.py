"""What the leading reconciler does in its term: sweep, submit, adopt, look at Prefect, tell the world."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import httpx
from prefect.client.orchestration import PrefectClient

from autocode.jobs.engine import holder
from autocode.jobs.engine.adopt import Adopter
from autocode.jobs.engine.connection import PASSWORD_HINT, REFUSALS
from autocode.jobs.engine.deployments import Deployments
from autocode.jobs.engine.reconcile import Reconciler
from autocode.jobs.engine.rescue import Rescue
from autocode.jobs.engine.run_reports import Reports
from autocode.jobs.engine.runs import PrefectRuns
from autocode.jobs.engine.submit import Submitter
from autocode.jobs.engine.system import System
from autocode.jobs.engine.view import PrefectView, follow_events
from autocode.jobs.engine.worker import registry
from autocode.jobs.engine.worker.handback import bury
from autocode.jobs.errors import JobsError, LeadershipLost, LedgerUnavailable
from autocode.jobs.ledger.runs import open_holders
from autocode.jobs.notifications.sender import Sender, channels
from autocode.jobs.notifications.settings import NotificationSettings

__all__ = ["Lead"]

_SWEEP_SECONDS: Final = 1.0
"""Pause between two sweeps that nothing woke; leases have to be looked at twice in each."""

_TIDY_SECONDS: Final = 5.0
"""Pause between two looks for what processes that died left of themselves in the home: a few small files."""

_STORE_SECONDS: Final = 60.0
"""The same for the store, which has many folders, unless an attempt died within that time."""

_ADOPT_SECONDS: Final = 2.0

_DEPLOY_SECONDS: Final = 5.0

_FAREWELL_SECONDS: Final = 2.0
"""How long the end of a term waits for notifications that are being sent; the next term sends the rest."""

_TROUBLE_SECONDS: Final = 0.5
"""Pause after a failure, so that what is away isn't asked without end."""

_BREATH_SECONDS: Final = 0.25

logger = logging.getLogger(__name__)


class Lead:
    """One term. Every write is held against the term by the database that *system* has.

    Args:
        system: the opened home, its database guarded by the term.
        client: an open client.
        notifications: how to tell the world that a job ended.
    """

    def __init__(self, system: System, client: PrefectClient, notifications: NotificationSettings) -> None:
        self._system = system
        self._facts = asyncio.Event()
        self._outbox = asyncio.Event()
        self._view = PrefectView(PrefectRuns(client), self._facts.set)
        rescue = Rescue(system.db.clock, driven=lambda: holder.driven(system.home))
        self._buried = self._swept = float("-inf")
        self._reconciler = Reconciler(
            system, self._view, rescue=rescue, reports=Reports(system, client), buried=self._note_burial
        )
        self._deployments = Deployments(client)
        self._submitter = Submitter(system, client, self._deployments)
        self._adopter = Adopter(system, client)
        self._sender = Sender(system.db, channels(notifications))

    def wake(self) -> None:
        """Look at the ledger at once: a fact was committed."""
        self._facts.set()
        self._outbox.set()

    async def run(self) -> None:
        """Work until the lead is lost, or until it is cancelled.

        Raises:
            ExceptionGroup: with :class:`~autocode.jobs.errors.LeadershipLost` where another leads now.
        """
        self._sender.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._view.follow())
                group.create_task(follow_events(self._view.ask))
                group.create_task(_for_ever("sweep", self._facts, _SWEEP_SECONDS, self._sweep))
                group.create_task(_for_ever("submit", self._outbox, _SWEEP_SECONDS, self._submit))
                group.create_task(_for_ever("deploy", asyncio.Event(), _DEPLOY_SECONDS, self._deploy))
                # nothing wakes it: a worker that is faster adopts by its claim
                group.create_task(_for_ever("adopt", asyncio.Event(), _ADOPT_SECONDS, self._adopt))
                group.create_task(_for_ever("tidy", asyncio.Event(), _TIDY_SECONDS, self._tidy))
        finally:
            # whoever died since the last time may be the last for weeks
            self._note_burial()
            await self._tidy()
            await asyncio.to_thread(self._sender.stop, _FAREWELL_SECONDS)

    def _note_burial(self) -> None:
        self._buried = time.monotonic()

    async def _sweep(self) -> None:
        try:
            await self._reconciler.sweep()
        except LedgerUnavailable:
            # nobody could renew: each lease has its whole time once the database is back
            self._reconciler.forget_leases()
            raise
        finally:
            # what ended is to be told
            self._sender.wake()

    async def _submit(self) -> None:
        await self._submitter.submit_all()

    async def _deploy(self) -> None:
        """Make what people may start in Prefect; no job waits for the deployments of other kinds."""
        await self._deployments.look_at_pool()
        await self._deployments.ensure_all()

    async def _adopt(self) -> None:
        await self._adopter.adopt_all()

    async def _tidy(self) -> None:
        """Remove what processes that were killed left behind; what can't be removed now can later.

        A process may outlive the end of its attempt for a while, so once after that isn't enough.
        """
        now = time.monotonic()
        store_too = now - self._buried < _STORE_SECONDS or now - self._swept >= _STORE_SECONDS
        if store_too:
            self._swept = now

        def tidy() -> None:
            with suppress(JobsError, OSError):
                holder.sweep(self._system.home, open_holders(self._system.db))
                children = registry.children(self._system.home)
                bury(self._system, [child for child in children if not registry.lives(child)])
                if store_too:
                    self._system.store.sweep_temp()

        await asyncio.to_thread(tidy)


async def _for_ever(
    name: str, woken: asyncio.Event, pause: float, work: Callable[[], Awaitable[None]]
) -> None:
    """Do *work* at once, whenever it is *woken*, and after each *pause*; tell of trouble once."""
    told = ""
    while True:
        woken.clear()
        began = time.monotonic()
        trouble = await _tried(work)
        if trouble != told:
            logger.warning("%s: %s", name, trouble or "works again")
            told = trouble
        # facts that come faster than they are worked off are taken together: half of the time stays free
        took = min(time.monotonic() - began, _BREATH_SECONDS)
        await asyncio.sleep(_TROUBLE_SECONDS if trouble else took)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await woken.wait()


async def _tried(work: Callable[[], Awaitable[None]]) -> str:
    try:
        await work()
    except LeadershipLost:
        raise
    except httpx.HTTPStatusError as error:
        hint = f" {PASSWORD_HINT}" if error.response.status_code in REFUSALS else ""
        return f"{type(error).__name__}: {error}{hint}"
    except (httpx.HTTPError, TimeoutError, JobsError) as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        # one job that can't be looked at must not keep all others waiting for ever
        logger.exception("unexpected")
        return f"{type(error).__name__}: {error}"
    return ""
