"""A service as a subject of the queue contract: everything is asked for through the HTTP client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autocode.jobs.kinds import Kind
from autocode.jobs.resource import Job
from autocode.jobs.testing import scenarios as s
from autocode.jobs.testing.queue_contract import Seen, Work
from kills_world import PATIENCE, Kills

__all__ = ["OverHttp"]

_LONG = 600.0


class OverHttp:
    """The service; each job's work tells a witness file of its own.

    Args:
        world: a running service with the scenarios' kinds, whose worker has *slots*.
        slots: how many jobs it runs side by side.
    """

    def __init__(self, world: Kills, slots: int) -> None:
        self._world = world
        self._slots = slots

    def enqueue(self, job_id: str, work: Work) -> Seen:
        """Ask for a job."""
        witness = {"witness": str(self._witness(job_id))}
        works: dict[Work, tuple[Kind[Any], dict[str, Any]]] = {
            Work.SUCCEED: (s.WEAK, {"failures": 0}),
            Work.FAIL_ONCE: (s.WEAK, {"failures": 1}),
            Work.FAIL_THRICE: (s.WEAK, {"failures": 3}),
            Work.REFUSE: (s.PERMANENT, {}),
            Work.HOLD: (s.SLOW, {"seconds": _LONG}),
            Work.CRASH: (s.UNLUCKY, {"failures": 99}),
        }
        kind, payload = works[work]
        with self._world.client() as client:
            return _seen(client.enqueue(kind.name, {**witness, **payload}, job_id=job_id).job)

    def get(self, job_id: str) -> Seen:
        """Look at a job."""
        with self._world.client() as client:
            return _seen(client.get(job_id))

    def settled(self, job_id: str) -> Seen:
        """Wait until the job is over."""
        with self._world.client() as client:
            return _seen(client.wait(job_id, timeout=PATIENCE))

    def running(self, job_id: str) -> None:
        """Wait until the job's work has begun, and the service says so."""
        self._world.wait(lambda: self.tries(job_id) > 0 and self.get(job_id).status == "running")

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Keep every slot of the worker busy."""
        names = [f"busy-{number}" for number in range(self._slots)]
        with self._world.client() as client:
            for name in names:
                payload: dict[str, Any] = {"witness": str(self._witness(name)), "seconds": _LONG}
                client.enqueue(s.SLOW.name, payload, job_id=name)
            for name in names:
                self.running(name)
            yield
            for name in names:
                client.cancel(name, reason="the others may go on")
                client.wait(name, timeout=PATIENCE)

    def cancel(self, job_id: str) -> None:
        """Call a job off."""
        with self._world.client() as client:
            client.cancel(job_id, reason="the contract's test")

    def retry(self, job_id: str) -> Seen:
        """Give a dead job one attempt more."""
        with self._world.client() as client:
            rev = client.get(job_id).rev
            return _seen(client.retry(job_id, reason="the contract's test", rev=rev, attempts=1))

    def tries(self, job_id: str) -> int:
        """Return how often the work was begun, as its witness says."""
        lines = s.witnessed(self._witness(job_id))
        return len([line for line in lines if not line.startswith("slow ends")])

    def _witness(self, job_id: str) -> Any:
        return self._world.folder / f"witness-{job_id}"


def _seen(job: Job) -> Seen:
    told = job.error
    error = None if told is None else (told.type, told.detail, told.hint)
    return Seen(job.status, job.reason, job.attempts, job.max_attempts, error)
