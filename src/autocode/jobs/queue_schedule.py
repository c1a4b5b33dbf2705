"""When each waiting job is due: a heap whose entries can be withdrawn."""

from __future__ import annotations

import heapq
import itertools

__all__ = ["Schedule"]


class Schedule:
    """Job ids by the time at which they are due, ties in the order of their offering.

    Not safe for threads by itself; its owner holds a lock. A withdrawn entry stays in the heap until it
    comes to the top, so offering and taking cost O(log n), and withdrawing O(1).
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._tickets: dict[str, int] = {}
        self._next_ticket = itertools.count()

    def offer(self, job_id: str, due: float) -> None:
        """Let *job_id* be taken from *due* on; an earlier offer of the same id is replaced."""
        ticket = next(self._next_ticket)
        self._tickets[job_id] = ticket
        heapq.heappush(self._heap, (due, ticket, job_id))

    def withdraw(self, job_id: str) -> None:
        """Let *job_id* be taken no more; does nothing if it isn't offered."""
        self._tickets.pop(job_id, None)

    def first_due(self) -> float | None:
        """Return when the first job is due, or ``None`` if none waits."""
        while self._heap:
            due, ticket, job_id = self._heap[0]
            if self._tickets.get(job_id) == ticket:
                return due
            heapq.heappop(self._heap)
        return None

    def take(self) -> str:
        """Remove and return the id that is due first.

        Raises:
            IndexError: no job waits.
        """
        self.first_due()
        job_id = heapq.heappop(self._heap)[2]
        del self._tickets[job_id]
        return job_id
