"""The two ends of a lease: the attempt that renews it, and the reconciler that watches it stand still."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from autocode.jobs.clock import Clock
from autocode.jobs.errors import AttemptEnded, JobCancelled, JobsError, StepTimedOut
from autocode.jobs.ledger import attempts
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.database import Database
from autocode.jobs.settings import LEASE_SECONDS

__all__ = ["LeaseKeeper", "LeaseWatch"]


class LeaseKeeper:
    """Renews an attempt's lease from a thread, and says when the attempt must stop.

    Use it as a context manager around the attempt's work. Losing the lease, a time limit, a cancel and a
    request to stop all end in the same place: :meth:`check` raises. After a cancel it goes on renewing, so
    that the attempt is nobody's to end but its own until the grace time is over.

    Args:
        db: the ledger.
        attempt: whose lease.
        interval: seconds between renewals.
        lost: called once, in the keeper's thread, when somebody else ended the attempt.
    """

    def __init__(
        self,
        db: Database,
        attempt: Attempt,
        *,
        interval: float = LEASE_SECONDS / 5,
        lost: Callable[[], None] | None = None,
    ) -> None:
        self._db = db
        self._attempt = attempt
        self._interval = interval
        self._lost = lost
        self._deadline = db.clock.monotonic() + attempt.time_limit
        self._done = threading.Event()
        self._reason: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"lease {attempt.job_id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        # a renewal that waits for a locked database may take its time: it changes nothing any more
        self._thread.join(timeout=self._interval)

    @property
    def reason(self) -> Exception | None:
        """Why the attempt must stop; ``None`` while it may go on."""
        return self._reason

    def stop(self) -> None:
        """Make every later :meth:`check` raise: the attempt is being handed back."""
        self._reason = self._reason or AttemptEnded("This attempt is being handed back.")

    def check(self) -> None:
        """Return if the attempt may go on.

        Raises:
            AttemptEnded: the lease was lost, or the attempt is being handed back.
            JobCancelled: the job was called off.
            StepTimedOut: the attempt's time limit was reached.
        """
        if self._reason is not None:
            raise self._reason

    def beat(self) -> bool:
        """Look at the time limit and renew once; return whether to go on renewing. Never raises."""
        if self._reason is None and self._db.clock.monotonic() > self._deadline:
            limit = self._attempt.time_limit
            self._reason = StepTimedOut(f"The attempt ran longer than its limit of {limit:g} s.")
        try:
            if attempts.renew(self._db, self._attempt) and self._reason is None:
                self._reason = JobCancelled(f"Job {self._attempt.job_id} was called off.")
        except AttemptEnded as ended:
            if self._lost is not None and self._reason is None and not self._done.is_set():
                self._lost()
            self._reason = self._reason or ended
            return False
        except JobsError:
            # an outage or a full disk is nobody's fault: go on, and renew when the database is back
            pass
        return True

    def _run(self) -> None:
        while not self._done.wait(self._interval) and self.beat():
            pass


class LeaseWatch:
    """Declares a lease lost when its counter stood still for a lease, on this machine's monotonic clock.

    Looks have to come at least every half lease. After a longer pause the measurement starts anew: a watcher
    that was held up itself, by a locked database or a stopped machine, has seen nothing stand still.

    Args:
        clock: the clock to measure with.
        lease: seconds without a renewal after which an attempt is lost.
    """

    def __init__(self, clock: Clock, *, lease: float = LEASE_SECONDS) -> None:
        self._clock = clock
        self._lease = lease
        self._seen: dict[Hashable, _Standing] = {}

    def stood_still(self, key: Hashable, counter: int) -> float:
        """Note *counter* for *key*; return for how many leases it has stood still (1 or more: lost)."""
        now = self._clock.monotonic()
        before = self._seen.get(key)
        if before is None or before.counter != counter or now - before.looked > self._lease / 2:
            self._seen[key] = _Standing(counter, since=now, looked=now)
            return 0.0
        self._seen[key] = _Standing(counter, since=before.since, looked=now)
        return (now - before.since) / self._lease

    def forget_all(self) -> None:
        """Start every measurement anew; called after an outage of the database, when nobody could renew."""
        self._seen.clear()


@dataclass(frozen=True, slots=True)
class _Standing:
    counter: int
    since: float
    looked: float
