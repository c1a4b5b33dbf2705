"""The application on a real port of its own, in a thread of the test, and sockets to it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

import autocode.jobs.testing.scenarios  # noqa: F401 - registers the kinds that the tests submit
from api_served import until
from autocode.jobs.api.app import create_app
from autocode.jobs.api.process import server_config
from autocode.jobs.api.service import Service
from autocode.jobs.api.settings import EventLimits, Settings
from autocode.jobs.client import Client
from autocode.jobs.engine.system import System
from autocode.jobs.ledger import access, jobs
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from ledger_world import look, new_job

PATIENCE = 30.0
"""Seconds after which a message that didn't come is missed."""


class Port:
    """An application that is served.

    Args:
        database: a migrated ledger.
        folder: where the home goes.
        settings: what the application is told.
        port: where; 0 for any that is free.
    """

    def __init__(
        self, database: Database, folder: Path, settings: Settings | None = None, *, port: int = 0
    ) -> None:
        home = Home(folder / "home")
        home.prepare()
        self.db = database
        self.app = create_app(System(home, database, LocalStore(home.store)), settings)
        self.service: Service = self.app.state.service
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind(("127.0.0.1", port))
        self.number: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.number}"
        self.token = self.new_token()
        self._server = _Server(server_config(self.app), self.service)
        self._thread = threading.Thread(target=self._serve, name="port")

    def new_token(self, role: Role = Role.ADMIN, **options: Any) -> str:
        """Return a fresh token."""
        return access.create_token(self.db, name="test", role=role, **options).text

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        until(lambda: self._server.started)

    def stop(self) -> None:
        """End as a process that was told to, and wait for it."""
        self._server.should_exit = True
        self._thread.join()

    def client(self, token: str | None = None, **options: Any) -> Client:
        """Return a client of it."""
        return Client(self.url, token or self.token, **options)

    def socket(
        self, query: str = "", *, token: str | None = "", headers: dict[str, str] | None = None
    ) -> Socket:
        """Return an open socket; *token* is an admin's where none is given, and none where it is ``None``."""
        own = {} if token is None else {"Authorization": f"Bearer {token or self.token}"}
        address = f"ws://127.0.0.1:{self.number}/v1/events{query}"
        return Socket(
            connect(
                address, additional_headers=own | (headers or {}), proxy=None, max_size=None, close_timeout=1
            )
        )

    def cursor(self) -> str:
        """Return the newest cursor, as a list of jobs gives it."""
        with self.client() as client:
            return client.page({"page_size": 1}).event_cursor

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listening]))


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.close()
        await super().shutdown(sockets=sockets)


class Socket:
    """One connection that follows events.

    Args:
        connection: it.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Go."""
        self._connection.close()

    def cut(self) -> None:
        """Go without a word, as a machine that loses its network."""
        self._connection.socket.shutdown(socket.SHUT_RDWR)

    def next(self, *, within: float = PATIENCE) -> dict[str, Any]:
        """Return the next message."""
        message: dict[str, Any] = json.loads(self._connection.recv(timeout=within))
        return message

    def event(self) -> dict[str, Any]:
        """Return the next event; pings in between are passed over."""
        while "specversion" not in (message := self.next()):
            assert message["type"] in {"ping", "resumed"}, message
        return message

    def upto(self, cursor: str) -> list[dict[str, Any]]:
        """Return the events that come until everything up to *cursor* was told, by an event or a ping."""
        found: list[dict[str, Any]] = []
        while True:
            message = self.next()
            if "specversion" in message:
                found.append(message)
            reached = message.get("id") or message["cursor"]
            if reached is not None and number(reached) >= number(cursor):
                return found

    def closed(self) -> tuple[int, str]:
        """Return code and reason of the close that comes, whatever comes before it."""
        with pytest.raises(ConnectionClosed) as ended:
            self._to_its_end()
        frame = ended.value.rcvd
        assert frame is not None, "the connection broke off"
        return frame.code, frame.reason

    def _to_its_end(self) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self._connection.recv(timeout=PATIENCE)


def number(cursor: str) -> int:
    """Return the number in a cursor."""
    return int(cursor.rpartition(":")[2])


@contextmanager
def on_port(database: Database, folder: Path, *, port: int = 0, **limits: Any) -> Iterator[Port]:
    """Give an application over *database* on a port; *limits* are those of who follows events."""
    settings = Settings(events=EventLimits(**{"ping_seconds": 0.2, "check_seconds": 0.2} | limits))
    served = Port(database, folder, settings, port=port)
    with closing(served._listening):
        served.start()
        try:
            yield served
        finally:
            served.stop()


def tell(database: Database, job_id: str = "job", **changes: Any) -> None:
    """Accept a job, and let reconcile tell of it: one event."""
    jobs.enqueue(database, new_job(job_id, **changes))
    look(database, job_id)
