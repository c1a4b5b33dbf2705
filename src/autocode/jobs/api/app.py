"""The application: routes, problems and the guard, around one opened home."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI

from autocode.jobs import __version__
from autocode.jobs.api import (
    actions,
    auditing,
    bulk,
    document,
    events,
    health,
    listing,
    metrics,
    notifications,
    pages,
    problems,
    reading,
    refusals,
    results,
    snapshots,
    submitting,
    uploads,
)
from autocode.jobs.api.files import FileThreads
from autocode.jobs.api.guard import Guard
from autocode.jobs.api.hub import Hub
from autocode.jobs.api.limits import Limits
from autocode.jobs.api.listening import Listening
from autocode.jobs.api.service import Service
from autocode.jobs.api.settings import Settings
from autocode.jobs.api.threads import Threads
from autocode.jobs.api.views import Views
from autocode.jobs.api.watch import Watch
from autocode.jobs.engine.system import System
from autocode.jobs.ledger import glances

__all__ = ["create_app"]

_FILE_THREADS: Final = 8

_ABOUT: Final = (
    "Durable background jobs: a job id at once, five honest states, a manual retry. "
    "Errors are RFC 9457 problems with a stable `type` and a `hint`. "
    "Send `Authorization: Bearer <token>`."
)


def create_app(
    system: System, settings: Settings | None = None, *, monotonic: Callable[[], float] = time.monotonic
) -> FastAPI:
    """Return the application over *system*; it opens no port.

    Kinds that clients may submit are those registered in this process.

    Args:
        system: the opened home; the caller closes it, after the application's end.
        settings: what differs from the defaults.
        monotonic: the clock of its limits, in seconds.

    Raises:
        LedgerUnavailable: the ledger can't be read.
    """
    chosen = settings if settings is not None else Settings()
    threads = Threads(system.db.connections)
    listening = Listening(system.db)
    epoch = glances.epoch(system.db)
    files = FileThreads(_FILE_THREADS)
    service = Service(
        system=system,
        settings=chosen,
        threads=threads,
        epoch=epoch,
        watch=Watch(system.db, threads, listening, chosen.waiters),
        hub=Hub(system.db, threads, listening, epoch, chosen),
        limits=Limits(chosen, monotonic),
        files=files,
        views=Views(system.store, system.home.cache / "views", chosen.view_bytes),
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()
        threads.close()
        files.close()
        service.views.close()

    # no docs_url: those pages load their scripts from elsewhere
    app = FastAPI(
        title="autocode-jobs",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        generate_unique_id_function=document.operation_id,
    )
    app.state.service = service
    for router in (
        health.router,
        metrics.router,
        submitting.router,
        listing.router,
        reading.router,
        actions.router,
        bulk.router,
        auditing.router,
        events.router,
        notifications.router,
        pages.router,
        uploads.router,
        snapshots.router,
        results.router,
    ):
        app.include_router(router)
    problems.install(app, refusals.record)
    document.install(app)

    def count(type_: str) -> None:
        service.denied[type_] += 1

    app.add_middleware(
        Guard, hosts=chosen.hosts, public=chosen.public, refused=count, answered=service.traffic.count
    )
    return app
