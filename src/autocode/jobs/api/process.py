"""One API process: it binds, answers, says so, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from autocode.jobs import locks
from autocode.jobs.api.app import create_app
from autocode.jobs.api.exposure import LOCAL, Exposure
from autocode.jobs.api.service import Service
from autocode.jobs.api.settings import REQUEST_BURST, REQUEST_RATE, EventLimits, Settings
from autocode.jobs.api.sockets import SocketProtocol
from autocode.jobs.clock import rfc3339
from autocode.jobs.engine.server import Address
from autocode.jobs.engine.system import System
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import access
from autocode.jobs.ledger.access import Role
from autocode.jobs.operations.export import EXPORT
from autocode.jobs.request_errors import TokenInvalid
from autocode.jobs.settings import write_durably

__all__ = ["KINDS", "OWN_TOKEN_NAME", "own_token", "serve", "server_config"]

KINDS: Final = (EXPORT,)
"""The kinds that this package brings; importing them is what makes them known to the routes."""

OWN_TOKEN_NAME: Final = "this machine"  # noqa: S105 - a name
"""Whom the audit names where a command of this home acted."""

_GRACE_SECONDS: Final = 10
"""How long requests that are being answered may take after the process was told to end."""

_LOCK_SECONDS: Final = 1.0

_PING_SECONDS: Final = 15.0
_PONG_SECONDS: Final = 20.0
"""How often the other end of a socket is asked whether it lives, and how long it may take to answer."""

_log = logging.getLogger("autocode.jobs.api")


def serve(
    system: System,
    address: Address | None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ready: Path | None = None,
    hosts: frozenset[str] = frozenset(),
    exposure: Exposure = LOCAL,
    prefect_ui: str | None = None,
    request_rate: float = REQUEST_RATE,
    request_burst: int = REQUEST_BURST,
    events: EventLimits | None = None,
    mail: bool = False,
) -> int:
    """Serve the API of *system* until SIGTERM or SIGINT; then answer what was begun, and return 0.

    Call it in the main thread. Logging is the caller's to set up; each request is one record of
    ``autocode.jobs.api.access``.

    Args:
        system: the opened home.
        address: where Prefect is, for ``/readyz``; ``None`` where that isn't known.
        host: the address to listen at.
        port: the port; 0 for the one this home had last, if it is free, else any.
        ready: the file to write once the service answers; ``run/api.json`` of the home where none is given.
        hosts: names beside the loopback ones by which clients may call the service.
        exposure: what keeps others from listening in where other machines reach the service.
        prefect_ui: where the Prefect UI answers, for links to runs.
        request_rate: changes that one token may ask for in a second, in the long run; 0: as many as it likes.
        request_burst: changes that it may ask for at once.
        events: what following events may cost, where that isn't the default.
        mail: e-mail can be sent, so that people may subscribe to it.

    Raises:
        UsageError: *host* can be reached from other machines without TLS or a proxy, a certificate can't be
            used, the port is taken, or the home is served already.
    """
    exposure.check(host)
    announced = ready if ready is not None else system.home.run / "api.json"
    settings = Settings(
        hosts=hosts | exposure.names(host),
        public=exposure.proxy,
        request_rate=request_rate,
        request_burst=request_burst,
        prefect_ui=None if prefect_ui is None else prefect_ui.rstrip("/"),
        prefect_api=None if address is None else address.url,
        prefect_auth=None if address is None else address.auth,
        events=events if events is not None else EventLimits(),
        mail=mail,
    )
    with _alone(system), contextlib.closing(_bound(host, port, announced)) as listening:
        own_token(system)
        app = create_app(system, settings)
        url = _url(host, listening, exposure)
        _run(app, listening, exposure, lambda: _announce(system, announced, url, exposure))
    return 0


def own_token(system: System) -> Path:
    """Make sure that ``run/token`` holds a token that works, for the commands of this home. Idempotent.

    Returns:
        The file, which only its owner can read.
    """
    file = system.home.run / "token"
    try:
        access.verify(system.db, file.read_text("ascii", errors="replace").strip())
    except (FileNotFoundError, TokenInvalid):
        made = access.create_token(system.db, name=OWN_TOKEN_NAME, role=Role.ADMIN)
        # a crash in between leaves a token in the ledger whose secret nobody knows
        write_durably(file, f"{made.text}\n".encode("ascii"))
    return file


@contextlib.contextmanager
def _alone(system: System) -> Iterator[None]:
    lock = system.home.run / "api.lock"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locks.owned(lock, within=_LOCK_SECONDS))
        except TimeoutError:
            raise UsageError(
                f"The API of {system.home.path} runs already, as process {locks.owner(lock)}.",
                hint=f"Its address is in {system.home.run / 'api.json'}.",
            ) from None
        yield


def _bound(host: str, port: int, announced: Path) -> socket.socket:
    """Return a socket bound to *port*, or, where that is 0, to the last one if it is free, else to any."""
    last = _last_port(announced)
    if port == 0 and last:
        with contextlib.suppress(OSError):
            return _bind(host, last)
    try:
        return _bind(host, port)
    except OSError as error:
        raise UsageError(
            f"Port {port} of {host} can't be had: {error.strerror or error}.",
            hint="Choose another port, or 0 for any that is free.",
        ) from error


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        # the port of a process that ended a moment ago can be had again; one that is in use can't
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
    except OSError:
        listening.close()
        raise
    return listening


def _last_port(announced: Path) -> int:
    try:
        return urlsplit(json.loads(announced.read_text("utf-8"))["url"]).port or 0
    except (OSError, ValueError, TypeError, KeyError):
        return 0


def _url(host: str, listening: socket.socket, exposure: Exposure) -> str:
    # all addresses of the machine aren't one that a client could ask for
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared with
    name = f"[{host}]" if ":" in host else host
    return f"{exposure.scheme}://{name}:{listening.getsockname()[1]}"


def _announce(system: System, file: Path, url: str, exposure: Exposure) -> None:
    facts = {"pid": os.getpid(), "url": url, "at": rfc3339(system.db.clock.now())}
    if exposure.certificate is not None:
        facts["certificate"] = str(exposure.certificate)
    write_durably(file, json.dumps(facts).encode())
    _log.info("ready at %s", url)


def server_config(app: FastAPI, exposure: Exposure = LOCAL) -> uvicorn.Config:
    """Return how *app* is served."""
    return uvicorn.Config(
        app,
        log_config=None,
        # what it logs below warnings quotes headers and queries of WebSocket requests
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        lifespan="on",
        ws=SocketProtocol,
        # nobody sends us more than a word; and what we send is compressed by nobody, hundreds of times
        ws_max_size=1 << 16,
        ws_per_message_deflate=False,
        ws_ping_interval=_PING_SECONDS,
        ws_ping_timeout=_PONG_SECONDS,
        ssl_certfile=exposure.certificate,
        ssl_keyfile=exposure.key,
    )


def _run(app: FastAPI, listening: socket.socket, exposure: Exposure, announce: Callable[[], None]) -> None:
    service: Service = app.state.service
    asyncio.run(_Server(server_config(app, exposure), service, announce).serve(sockets=[listening]))


class _Server(uvicorn.Server):
    """A server that announces itself, and whose process ends with the status of its choice.

    Args:
        config: uvicorn's.
        service: whose held requests and sockets are let go when the end begins.
        announce: called once requests are answered.
    """

    def __init__(self, config: uvicorn.Config, service: Service, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, then say so."""
        await super().startup(sockets=sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let held requests and sockets go, and answer what was begun."""
        self._service.close()
        await super().shutdown(sockets=sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End at SIGTERM and SIGINT; uvicorn's own version raises them again afterwards."""
        before = {number: signal.signal(number, self._told) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _told(self, number: int, _frame: FrameType | None) -> None:
        _log.info("ends: told by %s", signal.Signals(number).name)
        self.should_exit = True
