"""Following a job that the service of this data folder runs."""

from __future__ import annotations

import time
from typing import Final

from autocode.jobs.cli.progress import JobView
from autocode.jobs.cli.screen import Screen
from autocode.jobs.engine.announce import lives
from autocode.jobs.engine.system import System
from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger import queries
from autocode.jobs.ledger.wakeups import Listener
from autocode.jobs.model import TERMINAL
from autocode.jobs.request_errors import ServiceUnavailable
from autocode.jobs.resource import Job

__all__ = ["follow_here", "handed_over", "is_served"]

_LOOK_SECONDS: Final = 1.0
"""The longest pause between two looks; a committed change ends it sooner."""

_PATIENCE_SECONDS: Final = 60.0
"""How long the service or its database may be away: a restart takes a fraction of that."""


def is_served(system: System) -> bool:
    """Say whether a service runs on this data folder and takes the jobs that are asked for."""
    return lives(system.home, "reconcile")


def follow_here(screen: Screen, system: System, job_id: str) -> Job:
    """Show a job's progress until it is over; the service of this data folder runs it.

    Raises:
        KeyboardInterrupt: Ctrl-C; the service goes on with the job.
        LedgerUnavailable: the ledger stayed away for a minute.
        ServiceUnavailable: the service stayed away for a minute; the job is kept.
    """
    with JobView(screen, waiting_for="the service") as view, Listener(system.db) as listener:
        away_since: float | None = None
        trouble: ServiceUnavailable | LedgerUnavailable | None
        while True:
            try:
                job = queries.get(system.db, job_id)
                view.update(job)
                if job.status in TERMINAL:
                    return job
                trouble = None if is_served(system) else _gone(job_id)
            except LedgerUnavailable as error:
                trouble = error
            if trouble is None:
                away_since = None
            else:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > _PATIENCE_SECONDS:
                    raise trouble
            listener.wait(_LOOK_SECONDS)


def handed_over(screen: Screen, job: Job) -> None:
    """Say that the service has the job, and how to see what becomes of it."""
    if screen.json_mode:
        screen.emit(job)
        return
    screen.say(f"{job.job_id}  {job.status}", style="bold")
    screen.row("see it", f"autocode-jobs jobs show {job.job_id}")
    screen.row("get it", "autocode-jobs artifacts get DIGEST -o FOLDER, once it is complete")


def _gone(job_id: str) -> ServiceUnavailable:
    return ServiceUnavailable(
        f"The service that was to run job {job_id} has gone.",
        hint="The job is kept: start the service again (autocode-jobs up), or run the same command again.",
    )
