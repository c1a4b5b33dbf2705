"""Where a command finds its jobs: the ledger of this data folder, or a service at ``AUTOCODE_URL``."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from autocode.jobs.cli.runtime import configured, opened
from autocode.jobs.client import Client, discover
from autocode.jobs.engine.announce import lives
from autocode.jobs.engine.reconcile import sweep_ledger
from autocode.jobs.engine.system import System
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import audit, listing, queries, results, retries
from autocode.jobs.ledger.audit import CalledOff
from autocode.jobs.ledger.listing import Filter
from autocode.jobs.ledger.retries import Start
from autocode.jobs.ledger.wakeups import Listener
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.resource import Job, RetryPreview
from autocode.jobs.settings import Home

__all__ = ["Desk", "Wanted", "actor", "at_desk", "catch_up", "elsewhere", "here", "remote"]


_LOOK_SECONDS: Final = 0.5
"""The longest pause between two looks; a committed change ends it sooner."""

_TOLD_SECONDS: Final = 3.0
"""How long an act waits for the service's reconcile: that takes milliseconds, unless its lead passes on."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs a list is to show; what isn't said leaves every job in."""

    status: tuple[str, ...] = ()
    kind: str | None = None
    session: str | None = None
    text: str | None = None


class Desk(Protocol):
    """What a person can do with jobs, wherever those are kept."""

    @property
    def served(self) -> bool:
        """Whether a service runs the jobs."""
        ...

    def get(self, job_id: str) -> Job:
        """Return a job as it was last persisted."""
        ...

    def called_off(self, job_id: str) -> CalledOff | None:
        """Return who called a job off, and why; ``None`` where nobody did, or it isn't known here."""
        ...

    def newest(self, limit: int, wanted: Wanted) -> list[Job]:
        """Return the newest *limit* jobs that fit, newest first."""
        ...

    def dead_letters(
        self, *, kind: str | None, session: str | None, reason: str | None, text: str | None
    ) -> list[Job]:
        """Return the dead jobs that nobody called off, newest first."""
        ...

    def preview(self, job_id: str) -> RetryPreview:
        """Say what a retry would do."""
        ...

    def retry(self, job_id: str, *, reason: str, rev: int, start: Start, attempts: int) -> Job:
        """Give a dead job further attempts; return it as it is persisted then.

        Where a service is slow to tell, that may still be the revision *rev*.
        """
        ...

    def cancel(self, job_id: str, *, reason: str) -> Job:
        """Call a job off; return it as it is persisted then: a running attempt ends later."""
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
def here(what: str) -> Iterator[System]:
    """Open the data folder for a command that works on its ledger alone.

    Raises:
        UsageError: ``AUTOCODE_URL`` is set; *what* begins the sentence that says so.
    """
    if elsewhere():
        raise UsageError(
            f"{what} in the data folder, and AUTOCODE_URL points elsewhere.",
            hint="Run the command on the machine of that service, without AUTOCODE_URL.",
        )
    with opened() as system:
        yield system


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

    @property
    def served(self) -> bool:
        return lives(self._system.home, "reconcile")

    def get(self, job_id: str) -> Job:
        return queries.get(self._db, job_id)

    def called_off(self, job_id: str) -> CalledOff | None:
        return audit.called_off(self._db, job_id)

    def newest(self, limit: int, wanted: Wanted) -> list[Job]:
        chosen = Filter(
            status=frozenset(map(JobStatus, wanted.status)) or None,
            kind=wanted.kind,
            session_id=wanted.session,
            q=wanted.text or None,
        )
        return queries.list_jobs(self._db, chosen.conditions(), limit=limit)

    def dead_letters(
        self, *, kind: str | None, session: str | None, reason: str | None, text: str | None
    ) -> list[Job]:
        reasons = [DeadReason(reason)] if reason else [each for each in DeadReason if each != "cancelled"]
        chosen = Filter(
            status=frozenset({JobStatus.DEAD}),
            reason=frozenset(reasons),
            kind=kind,
            session_id=session,
            q=text or None,
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
        # a service tells by itself, in a moment; nobody else did before the line above
        until = time.monotonic() + _TOLD_SECONDS
        with Listener(self._db) as listener:
            while not self._is_told(job_id) and (left := until - time.monotonic()) > 0:
                listener.wait(min(left, _LOOK_SECONDS))
        return queries.get(self._db, job_id)

    def _is_told(self, job_id: str) -> bool:
        with self._db.read() as tx:
            return job_id not in queries.untold(tx)


class _Elsewhere:
    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def served(self) -> bool:
        return True

    def get(self, job_id: str) -> Job:
        return self._client.get(job_id)

    def called_off(self, job_id: str) -> CalledOff | None:
        # the audit isn't told over HTTP
        del job_id
        return None

    def newest(self, limit: int, wanted: Wanted) -> list[Job]:
        found = self._client.list_jobs(
            status=wanted.status,
            kind=wanted.kind,
            session_id=wanted.session,
            q=wanted.text,
            page_size=min(limit, 200),
        )
        return list(islice(found, limit))

    def dead_letters(
        self, *, kind: str | None, session: str | None, reason: str | None, text: str | None
    ) -> list[Job]:
        found = self._client.list_jobs(
            status=[JobStatus.DEAD], kind=kind, session_id=session, q=text, page_size=200
        )
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
