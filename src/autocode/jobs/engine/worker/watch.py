"""A look at the ledger every second: children that lost their attempt are stopped, and orphans are killed.

A child notices by itself when its attempt was ended by somebody else, unless it is stopped, or stuck in
native code. Until it is gone it holds a slot, so the worker looks as well. A worker that can't look must not
take runs either: it may be the only one that is cut off, and each attempt that it took would be lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from autocode.jobs.engine.holder import is_holder
from autocode.jobs.engine.system import System
from autocode.jobs.engine.worker import registry
from autocode.jobs.engine.worker.children import Child, Children
from autocode.jobs.engine.worker.handback import bury
from autocode.jobs.engine.worker.messages import FENCED
from autocode.jobs.engine.worker.registry import Registered
from autocode.jobs.engine.worker.stopping import FENCE_SECONDS
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger.runs import Ending, endings
from autocode.jobs.projection import Outcome

__all__ = ["Watch"]

_LOOK_SECONDS: Final = 1.0

_BLIND_SECONDS: Final = 3.0
"""How long after the last look that succeeded the ledger counts as being within reach."""

_TOLD_BY_OTHERS: Final = frozenset({Outcome.CRASHED, Outcome.LOST, Outcome.GONE, Outcome.CANCELLED})
"""Endings that a process seldom writes about itself: it is stopped soon."""

_FAREWELL_SECONDS: Final = 30.0
"""How long a process may live on that ended its own attempt: Prefect may be away, and has to be told."""


class Watch:
    """Stops what must not go on.

    Args:
        system: opens the home; called in a thread.
        children: the worker's own children.
        regained: called in the event loop when the ledger is within reach again.
    """

    def __init__(
        self, system: Callable[[], System], children: Children, regained: Callable[[], None]
    ) -> None:
        self._system = system
        self._children = children
        self._regained = regained
        self._looked = float("-inf")
        self._over_since: dict[int, float] = {}
        self._me = (os.getpid(), registry.started_at(os.getpid()))

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            self._children.look()
            # nobody is judged while the ledger is away
            with suppress(JobsError, OSError):
                system = await asyncio.to_thread(self._system)
                await self._look_at_own(system)
                await asyncio.to_thread(self._look_at_orphans, system)
                sees, self._looked = self.sees, time.monotonic()
                if not sees:
                    self._regained()
            await asyncio.sleep(_LOOK_SECONDS)

    @property
    def sees(self) -> bool:
        """Whether the ledger was within reach a moment ago."""
        return time.monotonic() - self._looked < _BLIND_SECONDS

    async def _look_at_own(self, system: System) -> None:
        living = self._children.living
        # asked for nobody, too: that is how it is known that the ledger answers
        ended = await asyncio.to_thread(endings, system.db, [child.flow_run_id for child in living])
        if not living:
            self._over_since.clear()
        for child in living:
            if child.flow_run_id in ended:
                self._stop(child, ended[child.flow_run_id])

    def _stop(self, child: Child, ending: Ending) -> None:
        # of a run that somebody restarted, another began the attempt: this child is refused, and tells so
        restarted = not is_holder(ending.holder, child.pid)
        since = self._over_since.setdefault(child.number, time.monotonic())
        over = time.monotonic() - since
        if (restarted or ending.outcome not in _TOLD_BY_OTHERS) and over < _FAREWELL_SECONDS:
            return
        if not child.silenced:
            child.silenced = True
            child.say(FENCED)
            asyncio.get_running_loop().call_later(FENCE_SECONDS, self._children.kill, child, signal.SIGKILL)

    def _look_at_orphans(self, system: System) -> None:
        """Look after the children of workers that are gone.

        What one that died left unclaimed ends at once; one that lives is killed once the ledger says that its
        attempt is over.
        """
        orphans = [each for each in registry.children(system.home) if not self._has_worker(each)]
        dead = [each for each in orphans if not registry.lives(each)]
        bury(system, dead)
        orphans = [each for each in orphans if each not in dead]
        if not orphans:
            return
        ended = endings(system.db, [each.flow_run_id for each in orphans])
        for orphan in orphans:
            if orphan.flow_run_id in ended:
                registry.kill(orphan)

    def _has_worker(self, child: Registered) -> bool:
        """Say whether the worker that started the child lives, and looks after it."""
        if (child.worker, child.worker_began) == self._me:
            # own children are looked at above; one that ended without tidying up is an orphan's file
            return any(each.pid == child.pid for each in self._children.living)
        return registry.started_at(child.worker) == child.worker_began
