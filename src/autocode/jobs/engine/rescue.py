"""Attempts that nobody will end: stuck before they began or in a cancel, over time, or abandoned.

Every span is measured on this process's monotonic clock since it first saw the situation, so that a wall
clock which is set back or forward judges nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.clock import Clock
from autocode.jobs.ledger.queries import JobRows
from autocode.jobs.projection import Ending, Outcome, RunState

__all__ = [
    "CANCELLING_SECONDS",
    "FOREIGN_PENDING_SECONDS",
    "GRACE_SECONDS",
    "PENDING_SECONDS",
    "Rescue",
    "SeenRun",
]

PENDING_SECONDS: Final = 15.0
"""How long a run of our pool may be Pending or Running in Prefect without its attempt being claimed."""

FOREIGN_PENDING_SECONDS: Final = 600.0
"""The same for other pools, whose workers may have to pull an image first."""

CANCELLING_SECONDS: Final = 30.0
"""How long somebody's cancel of a run in Prefect may stay without an answer."""

GRACE_SECONDS: Final = 10.0
"""How long after its time limit an attempt may take to stop by itself."""

_BLIND_SECONDS: Final = 5.0
"""A pause between two looks after which a situation counts as new: it may have changed back and forth."""


_Key = tuple[str, int, str]
"""Job, attempt, and what is measured of it."""


@dataclass(frozen=True, slots=True)
class SeenRun:
    """What Prefect says of one run.

    Args:
        state: its state; type ``GONE`` where Prefect no longer knows it, or knows nobody who could run it
            since its deployment was deleted; ``None`` where Prefect doesn't answer.
        deployed: whether it has a deployment, so that a worker takes it.
        ours: whether it waits in the service's own pool.
    """

    state: RunState = field(default_factory=RunState)
    deployed: bool = True
    ours: bool = True


@dataclass(slots=True)
class _Since:
    began: float
    looked: float


class Rescue:
    """Finds the ending of an attempt that would otherwise never end.

    Args:
        clock: the clock to measure with.
        driven: names the jobs that living one-shot commands drive.
    """

    def __init__(self, clock: Clock, *, driven: Callable[[], set[str]]) -> None:
        self._clock = clock
        self._driven = driven
        self._since: dict[_Key, _Since] = {}

    def forget_all(self) -> None:
        """Measure anew, but for time limits: an outage of the database stopped nobody's work."""
        self._since = {key: since for key, since in self._since.items() if key[-1] == "limit"}

    def keep(self, job_ids: Collection[str]) -> None:
        """Forget what was measured about other jobs than these."""
        self._since = {key: since for key, since in self._since.items() if key[0] in job_ids}

    def ending(self, rows: JobRows, seen: SeenRun) -> Ending | None:
        """Return what must end the latest attempt, or ``None``; *seen* is Prefect's word about its run."""
        latest = rows.attempts[-1]
        if latest.ended_at is not None:
            return None
        return (
            self._over_time(rows, latest)
            or self._stuck_pending(latest, seen)
            or self._stuck_cancelling(rows, latest, seen)
            or self._abandoned(latest, seen)
        )

    def _over_time(self, rows: JobRows, latest: sa.Row[Any]) -> Ending | None:
        if latest.begun_at is None:
            return None
        limit = rows.job.time_limit
        if self._holds(latest, "limit", blind=float("inf")) < limit + GRACE_SECONDS:
            return None
        return Ending(
            Outcome.TIMED_OUT, f"The attempt ran longer than its limit of {limit:g} s and didn't stop."
        )

    def _stuck_pending(self, latest: sa.Row[Any], seen: SeenRun) -> Ending | None:
        # Running, too: its process may have died between telling Prefect and claiming the attempt
        if latest.begun_at is not None or seen.state.type not in {"PENDING", "RUNNING"}:
            self._changed(latest, "pending")
            return None
        patience = PENDING_SECONDS if seen.ours else FOREIGN_PENDING_SECONDS
        if self._holds(latest, "pending") < patience:
            return None
        return Ending(
            Outcome.LOST,
            f"The run was {seen.state.type.lower()} for {patience:g} s, and no process began the attempt.",
        )

    def _stuck_cancelling(self, rows: JobRows, latest: sa.Row[Any], seen: SeenRun) -> Ending | None:
        if seen.state.type != "CANCELLING":
            self._changed(latest, "cancelling")
            return None
        if self._holds(latest, "cancelling") < CANCELLING_SECONDS:
            return None
        asked = rows.job.cancel_requested_at is not None
        return Ending(
            Outcome.CANCELLED if asked else Outcome.FAILED,
            f"The run was cancelled in Prefect, and nobody answered for {CANCELLING_SECONDS:g} s.",
        )

    def _abandoned(self, latest: sa.Row[Any], seen: SeenRun) -> Ending | None:
        """Judge a run that only the one-shot command which made it would run."""
        waits = latest.begun_at is None and latest.holder is None and seen.state.type == "SCHEDULED"
        if not waits or seen.deployed or latest.job_id in self._driven():
            return None
        return Ending(Outcome.INTERRUPTED, "The command that was to run this attempt is gone.")

    def _holds(self, latest: sa.Row[Any], what: str, *, blind: float = _BLIND_SECONDS) -> float:
        """Return for how many seconds the situation *what* has been seen to hold."""
        now = self._clock.monotonic()
        since = self._since.setdefault((latest.job_id, latest.n, what), _Since(now, now))
        if now - since.looked > blind:
            since.began = now
        since.looked = now
        return now - since.began

    def _changed(self, latest: sa.Row[Any], what: str) -> None:
        self._since.pop((latest.job_id, latest.n, what), None)
