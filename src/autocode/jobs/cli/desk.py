"""Where a command finds its jobs: the ledger of this data folder, or a service at ``AUTOCODE_URL``."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

from autocode.jobs.cli.runtime import configured, opened
from autocode.jobs.client import Client, discover
from autocode.jobs.engine.announce import lives
from autocode.jobs.engine.reconcile import sweep_ledger
from autocode.jobs.engine.system import System
from autocode.jobs.ledger import listing, queries, results, retries
from autocode.jobs.ledger.listing import Filter
from autocode.jobs.ledger.retries import Start
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.resource import Job, RetryPreview
from autocode.jobs.settings import Home

__all__ = ["Desk", "actor", "at_desk", "catch_up", "elsewhere", "remote"]


class Desk(Protocol):
    """What a person can do with jobs, wherever those are kept."""

    def get(self, job_id: str) -> Job:
        """Return a job as it was last persisted."""
        ...

    def newest(self, limit: int) -> list[Job]:
        """Return the newest *limit* jobs, newest first."""
        ...

    def dead_letters(self, *, kind: str | None, reason: str | None, text: str | None) -> list[Job]:
        """Return the dead jobs that nobody called off, newest first."""
        ...

    def preview(self, job_id: str) -> RetryPreview:
        """Say what a retry would do."""
        ...

    def retry(self, job_id: str, *, reason: str, rev: int, start: Start, attempts: int) -> Job:
        """Give a dead job further attempts."""
        ...

    def cancel(self, job_id: str, *, reason: str) -> Job:
        """Call a job off."""
        ...


def actor() -> str:
    """Return who sits at this command line, as far as the system knows: ``ada@workstation``."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def elsewhere() -> bool:
    """Say whether ``AUTOCODE_URL``, or ``url`` in the settings, sends commands to a service."""
    configured()
    return bool(os.environ.get("AUTOCODE_URL"))


def catch_up(system: System) -> None:
    """Bring the statuses up to date as far as the ledger tells, unless a service does it all the time."""
    if not lives(system.home, "reconcile"):
        sweep_ledger(system)


@contextmanager
def remote() -> Iterator[Client]:
    """Give a client of the service that ``AUTOCODE_URL`` names.

    Raises:
        UsageError: ``AUTOCODE_TOKEN`` is missing, or the address is none.
    """
    client = discover(Home.from_environment())
    assert client is not None, "elsewhere() is asked first"
    with client:
        yield client


@contextmanager
def at_desk() -> Iterator[Desk]:
    """Give the desk that the environment names.

    Raises:
        HomeUnusable: the data folder can't be used.
        UsageError: ``AUTOCODE_URL`` is set without a token.
    """
    if elsewhere():
        with remote() as client:
            yield _Elsewhere(client)
        return
    with opened() as system:
        catch_up(system)
        yield _Here(system)


class _Here:
    def __init__(self, system: System) -> None:
        self._system = system
        self._db = system.db

    def get(self, job_id: str) -> Job:
        return queries.get(self._db, job_id)

    def newest(self, limit: int) -> list[Job]:
        return queries.list_jobs(self._db, limit=limit)

    def dead_letters(self, *, kind: str | None, reason: str | None, text: str | None) -> list[Job]:
        reasons = [DeadReason(reason)] if reason else [each for each in DeadReason if each != "cancelled"]
        chosen = Filter(
            status=frozenset({JobStatus.DEAD}), reason=frozenset(reasons), kind=kind, q=text or None
        )
        found: list[Job] = []
        token: str | None = None
        while True:
            page = listing.page(self._db, chosen, size=listing.LARGEST_PAGE, token=token)
            found += page.jobs
            token = page.next_token
            if token is None:
                return found

    def preview(self, job_id: str) -> RetryPreview:
        found = retries.preview(self._db, job_id)
        return RetryPreview(
            job_id=found.job_id,
            rev=found.rev,
            dead=found.dead,
            reused=found.reused,
            steps=found.steps,
            effects_done=found.effects_done,
            effects_open=found.effects_open,
            max_attempts_after=found.max_attempts_after,
        )

    def retry(self, job_id: str, *, reason: str, rev: int, start: Start, attempts: int) -> Job:
        retries.request_retry(
            self._db,
            job_id,
            actor=actor(),
            reason=reason,
            start=start,
            expected_rev=rev,
            attempts=attempts,
        )
        return self._told(job_id)

    def cancel(self, job_id: str, *, reason: str) -> Job:
        results.request_cancel(self._db, job_id, actor=actor(), reason=reason)
        return self._told(job_id)

    def _told(self, job_id: str) -> Job:
        catch_up(self._system)
        return queries.get(self._db, job_id)


class _Elsewhere:
    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, job_id: str) -> Job:
        return self._client.get(job_id)

    def newest(self, limit: int) -> list[Job]:
        return list(islice(self._client.list_jobs(page_size=min(limit, 200)), limit))

    def dead_letters(self, *, kind: str | None, reason: str | None, text: str | None) -> list[Job]:
        found = self._client.list_jobs(status=[JobStatus.DEAD], kind=kind, q=text, page_size=200)
        return [
            job
            for job in found
            if (job.reason == reason if reason else job.reason is not DeadReason.CANCELLED)
        ]

    def preview(self, job_id: str) -> RetryPreview:
        return self._client.retry_preview(job_id)

    def retry(self, job_id: str, *, reason: str, rev: int, start: Start, attempts: int) -> Job:
        return self._client.retry(job_id, reason=reason, rev=rev, start=start, attempts=attempts)

    def cancel(self, job_id: str, *, reason: str) -> Job:
        return self._client.cancel(job_id, reason=reason)
