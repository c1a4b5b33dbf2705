"""What wakes the worker: a run that was scheduled, a free slot, the time of the next due run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from prefect.events.clients import get_events_subscriber
from prefect.events.filters import EventFilter, EventNameFilter

__all__ = ["HORIZON", "POLL_SECONDS", "Alarm", "listen"]

HORIZON: Final = timedelta(seconds=30)
"""How far the worker looks ahead for runs that come due, so that it can set its alarm."""

POLL_SECONDS: Final = 2.0
"""How long a lost event may go unnoticed."""

_RECONNECT_SECONDS: Final = 0.5

_SCHEDULED: Final = tuple(
    f"prefect.flow-run.{name}"
    for name in ("Scheduled", "Late", "AwaitingRetry", "AwaitingConcurrencySlot", "Resuming")
)
"""Every name of a state of type SCHEDULED (``prefect/states.py``)."""


class Alarm:
    """Wakes one waiter: at once by :meth:`ring`, at the time that was set, and every two seconds.

    Rings while nobody waits count as one.
    """

    def __init__(self) -> None:
        self._ringing = asyncio.Event()
        self._due: datetime | None = None

    def ring(self) -> None:
        """Wake the waiter now."""
        self._ringing.set()

    def set(self, due: datetime | None) -> None:
        """Wake the waiter at *due*; ``None``: no time is known."""
        self._due = due

    async def wait(self) -> None:
        """Return when there may be something to do."""
        pause = POLL_SECONDS
        if self._due is not None:
            pause = min(pause, max(0.0, (self._due - datetime.now(UTC)).total_seconds()))
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._ringing.wait()
        self._ringing.clear()


async def listen(alarm: Alarm, connected: asyncio.Event) -> None:
    """Ring *alarm* for every run that is scheduled anywhere, for ever.

    Prefect's subscriber gives up when it is refused a connection, and after ten other failures; here it is
    made anew. An event is no more than a wake-up: what is due is asked afterwards.

    Args:
        alarm: what to ring.
        connected: set at the first subscription.
    """
    wanted = EventFilter(event=EventNameFilter(name=list(_SCHEDULED)))
    while True:
        # whatever it stumbled over, the poll goes on and so does this
        with suppress(Exception):
            async with get_events_subscriber(filter=wanted, reconnect_on_clean_close=True) as subscriber:
                connected.set()
                alarm.ring()
                async for _event in subscriber:
                    alarm.ring()
        await asyncio.sleep(_RECONNECT_SECONDS)
