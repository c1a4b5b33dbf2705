"""What the routes of one application share."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from autocode.jobs.api.files import FileThreads
from autocode.jobs.api.hub import Hub
from autocode.jobs.api.limits import Limits
from autocode.jobs.api.settings import Settings
from autocode.jobs.api.threads import RequestCalls, Threads
from autocode.jobs.api.traffic import Traffic
from autocode.jobs.api.views import Views
from autocode.jobs.api.watch import Watch
from autocode.jobs.engine.system import System
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.figures import Figures

__all__ = ["Calls", "Service", "Shared"]


@dataclass(slots=True)
class Service:
    """One application's state.

    Args:
        system: the opened home.
        settings: what it was told.
        threads: where calls to the ledger run.
        epoch: the name of the ledger, which goes with every cursor.
        watch: holds requests until a job moves.
        limits: how often callers may ask.
        hub: tells of events.
        files: where files are read and written.
        views: the views of results, made when somebody asks.
        uploading: how many objects are being uploaded now.
        heard: the last counter that each leader showed, and the loop's time at which it was first seen.
        denied: how many requests were refused whose caller isn't known, or that were too many, by their type.
        traffic: what this process has answered.
        figures: the figures of the ledger that were counted last, and the loop's time of it; none where it
            didn't answer.
        scrapers: the digests of the tokens that were let in to read them, the oldest first.
        scraping: held by who counts them.
    """

    system: System
    settings: Settings
    threads: Threads
    epoch: str
    watch: Watch
    hub: Hub
    limits: Limits
    files: FileThreads
    views: Views
    uploading: int = 0
    heard: dict[str, tuple[tuple[int, int], float]] = field(default_factory=dict)
    denied: Counter[str] = field(default_factory=Counter)
    traffic: Traffic = field(default_factory=Traffic)
    figures: tuple[float, Figures | None] | None = None
    scrapers: dict[str, None] = field(default_factory=dict)
    scraping: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def cookie(self) -> str:
        """The name of the session cookie; browsers don't keep the ports of one host apart."""
        return f"autocode_{self.epoch}"

    def close(self) -> None:
        """Let go of all who wait, and close the sockets of all who follow; calls to the ledger go on."""
        self.watch.close()
        self.hub.close()

    @property
    def db(self) -> Database:
        """The ledger."""
        return self.system.db


def _shared(connection: HTTPConnection) -> Service:
    service: Service = connection.app.state.service
    return service


Shared = Annotated[Service, Depends(_shared)]


async def _calls(service: Shared) -> RequestCalls:
    # async: the deadline is read off the running loop
    return RequestCalls(service.threads, service.settings.ledger_seconds)


Calls = Annotated[RequestCalls, Depends(_calls)]
"""The calls to the ledger of one request, the caller's check included."""
