"""The application: routes, problems and the guard, around one opened home."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI

from autocode.jobs import __version__
from autocode.jobs.api import (
    actions,
    health,
    listing,
    notifications,
    pages,
    problems,
    reading,
    submitting,
)
from autocode.jobs.api.guard import Guard
from autocode.jobs.api.service import Service
from autocode.jobs.api.settings import Settings
from autocode.jobs.api.threads import Threads
from autocode.jobs.api.watch import Watch
from autocode.jobs.engine.system import System
from autocode.jobs.ledger import glances

__all__ = ["create_app"]

_ABOUT: Final = (
    "Durable background jobs: a job id at once, five honest states, a manual retry. "
    "Errors are RFC 9457 problems with a stable `type` and a `hint`. "
    "Send `Authorization: Bearer <token>`."
)


def create_app(system: System, settings: Settings | None = None) -> FastAPI:
    """Return the application over *system*; it opens no port.

    Kinds that clients may submit are those registered in this process.

    Args:
        system: the opened home; the caller closes it, after the application's end.
        settings: what differs from the defaults.

    Raises:
        LedgerUnavailable: the ledger can't be read.
    """
    chosen = settings if settings is not None else Settings()
    threads = Threads(system.db.connections)
    service = Service(
        system=system,
        settings=chosen,
        threads=threads,
        epoch=glances.epoch(system.db),
        watch=Watch(system.db, threads, chosen.waiters),
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        service.watch.close()
        threads.close()

    # no docs_url: those pages load their scripts from elsewhere
    app = FastAPI(
        title="autocode-jobs",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service = service
    for router in (
        health.router,
        submitting.router,
        listing.router,
        reading.router,
        actions.router,
        notifications.router,
        pages.router,
    ):
        app.include_router(router)
    problems.install(app)
    app.add_middleware(Guard, hosts=chosen.hosts)
    return app
