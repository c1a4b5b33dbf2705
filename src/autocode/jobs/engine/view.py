"""Prefect as a daemon sees it: looked at aside, so that a hanging server never holds up the ledger's work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from prefect.events.clients import get_events_subscriber
from prefect.events.filters import EventFilter, EventNameFilter

from autocode.jobs.engine.rescue import SeenRun
from autocode.jobs.engine.runs import PrefectRuns
from autocode.jobs.projection import Outcome

__all__ = ["PrefectView", "follow_events"]

_LOOK_SECONDS: Final = 1.0
"""Pause between two looks where no event came: how late a lost wake-up is made good."""

_BREATH_SECONDS: Final = 0.2

_RECONNECT_SECONDS: Final = 1.0

logger = logging.getLogger(__name__)


class PrefectView:
    """Implements :class:`autocode.jobs.engine.reconcile.Runs` by what was last seen; never waits for Prefect.

    Args:
        runs: Prefect itself.
        changed: called when a look brought news.
    """

    def __init__(self, runs: PrefectRuns, changed: Callable[[], None]) -> None:
        self._runs = runs
        self._changed = changed
        self._asked = asyncio.Event()
        self._wanted: frozenset[str] = frozenset()
        self._seen: Mapping[str, SeenRun] = {}
        self._answers = True

    async def look(self, run_ids: Collection[str]) -> Mapping[str, SeenRun]:
        """Return what was last seen of the runs, and see to it that those are looked at from now on.

        A run that is new is not asked for at once: there is nothing to rescue in its first second.
        """
        self._wanted = frozenset(run_ids)
        return self._seen

    async def close(self, run_id: str, outcome: Outcome, message: str) -> bool:
        """Close the run, or leave it for later where Prefect didn't answer last time."""
        if not self._answers:
            return False
        self._answers = await self._runs.close(run_id, outcome, message)
        return self._answers

    def ask(self) -> None:
        """Look at once: something changed."""
        self._asked.set()

    async def follow(self) -> None:
        """Look for ever, at each event and once a second."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            try:
                await self._refresh()
            except Exception:
                # whatever one answer holds, the next look may do better; the ledger's work goes on
                logger.exception("Prefect's answer can't be read")
                self._seen, self._answers = {}, False
            # events come in bursts, and each look reads every open run
            await asyncio.sleep(_BREATH_SECONDS)

    async def _refresh(self) -> None:
        wanted = self._wanted
        seen = await self._runs.look(wanted) if wanted else {}
        answers = bool(seen) or not wanted
        if answers is not self._answers:
            logger.warning(
                "Prefect %s", "answers again" if answers else "doesn't answer; going by the ledger"
            )
        # what was seen before an outage says nothing about now
        news = seen != self._seen
        self._seen, self._answers = seen, answers
        if news:
            self._changed()


_TROUBLE: Final = tuple(
    f"prefect.flow-run.{name}"
    for name in ("Crashed", "Failed", "Cancelling", "Cancelled", "Paused", "Suspended", "TimedOut", "deleted")
)
"""What the ledger doesn't hear first from the attempt itself."""


async def follow_events(wake: Callable[[], None]) -> None:
    """Call *wake* whenever Prefect tells of a flow run in trouble, for ever; an event is a hint, no fact.

    The subscriber is entered anew whenever it gives up, since errors of a server that restarts escape it.
    """
    changes = EventFilter(event=EventNameFilter(name=list(_TROUBLE)))
    while True:
        try:
            async with get_events_subscriber(filter=changes, reconnect_on_clean_close=True) as subscriber:
                wake()
                async for _ in subscriber:
                    wake()
        except Exception as error:  # noqa: BLE001 - the subscriber lets whatever its websocket raises through
            logger.debug("the event stream broke: %s", error)
        await asyncio.sleep(_RECONNECT_SECONDS)
