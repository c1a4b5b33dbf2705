"""``autocode-jobs up``: the whole service under one supervisor."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from logging.handlers import RotatingFileHandler
from typing import Final

from autocode.jobs import configuration, logs
from autocode.jobs.api.exposure import Exposure
from autocode.jobs.cli.health_screen import HealthScreen
from autocode.jobs.cli.main import DONE, FAILED, INTERRUPTED
from autocode.jobs.cli.screen import Screen
from autocode.jobs.configuration import Configuration, Loaded
from autocode.jobs.engine.databases import Choice, serving, shown
from autocode.jobs.errors import UsageError
from autocode.jobs.service.assembly import assemble, environment
from autocode.jobs.service.custody import Custody
from autocode.jobs.service.forkserver import ForkServer
from autocode.jobs.service.health import Health, State
from autocode.jobs.service.leash import Leash
from autocode.jobs.service.ledger_watch import LedgerWatch
from autocode.jobs.service.log_files import Follower
from autocode.jobs.service.single import announce, only_supervisor
from autocode.jobs.service.supervisor import Requests, Supervisor, heard_requests
from autocode.jobs.settings import Home

__all__ = ["up"]

_LOG_BYTES: Final = 10_000_000
_KEPT: Final = 3


def up(flags: Mapping[str, object], *, worker: bool, logs: bool, json: bool) -> int:
    """Run the service until Ctrl-C or SIGTERM; return the exit status.

    Raises:
        ServiceRunning: it already runs; nothing was changed.
        UsageError: a setting is wrong, the port is taken, or the ledger is in another database than the
            settings say; nothing was changed.
        HomeUnusable: the data folder can't be used.
    """
    home = Home.from_environment()
    settings = configuration.load(home, flags=flags)
    with heard_requests() as requests, only_supervisor(home) as custody:
        _check_listening(settings.values)
        os.environ.update(settings.environ())
        with serving(home) as choice:
            _check_parts(home, settings, choice)
            _log_to_file(home, settings)
            service = _Service(home, settings, custody, requests, worker=worker, logs=logs, json=json)
            in_order = service.run()
    if requests.count > 1:
        return INTERRUPTED
    return DONE if in_order else FAILED


class _Service:
    """One run of the service, and what is shown of it."""

    def __init__(
        self,
        home: Home,
        settings: Loaded,
        custody: Custody,
        requests: Requests,
        *,
        worker: bool,
        logs: bool,
        json: bool,
    ) -> None:
        self._home = home
        self._screen = HealthScreen(
            Screen(json_mode=json, lasting=True),
            home.path,
            home.logs,
            counts=lambda: self._watch.counts,
            clock=time.monotonic,
        )
        self._watch = LedgerWatch(home, login=self._screen.is_live)
        self._leash = Leash()
        self._forks = ForkServer(environment(home, settings), custody)
        self._parts = assemble(home, settings, custody, self._leash, self._forks, worker=worker)
        self._supervisor = Supervisor(self._parts, requests, told=self._told, looked=self._looked)
        self._urls: dict[str, str | None] = {}
        self._public = settings.values.behind_proxy
        self._followers = (
            {part.name: Follower(home.logs / f"{part.name}.log") for part in self._parts} if logs else {}
        )

    def run(self) -> bool:
        """Run it to its end; say whether all parts ended in order."""
        self._screen.start()
        # its imports take longest of all, and nothing has to be there before them
        self._forks.start()
        try:
            return self._supervisor.run()
        finally:
            self._screen.stop()
            self._watch.stop()
            self._leash.close()
            self._forks.close()
            for follower in self._followers.values():
                follower.close()

    def _told(self, health: Health) -> None:
        if health.state is State.STOPPING:
            # it is a client of PostgreSQL itself, which would wait for it
            self._watch.stop(within=0.0)
        self._screen.told(health)
        if health.state is State.READY and health.url != self._urls.get(health.name):
            self._urls[health.name] = health.url
            announce(self._home, url=self._urls.get("api"), prefect_url=self._urls.get("prefect"))

    def _looked(self, healths: Sequence[Health]) -> None:
        if any(health.name == "api" and health.state is State.READY for health in healths):
            self._watch.start()
        code, url = self._watch.take_login(), self._public or self._urls.get("api")
        if code is not None and url is not None:
            self._screen.login(f"{url}/login?code={code}")
        for name, follower in self._followers.items():
            for line in follower.lines():
                self._screen.line(f"{name:<9} {line}")
        self._screen.looked(healths)


def _check_listening(settings: Configuration) -> None:
    """Refuse what the API would only refuse later, in its log.

    Raises:
        UsageError: the host can be reached from elsewhere without TLS or a proxy, a certificate can't be
            used, or the port is taken.
    """
    host, port = settings.host, settings.port
    Exposure.of(settings).check(host)
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, kind)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise UsageError(
            f"The API can't listen at {host}, port {port}: {error.strerror or error}.",
            hint="Choose another with --port; 0 takes any that is free.",
        ) from error


def _check_parts(home: Home, settings: Loaded, choice: Choice) -> None:
    """Refuse to start a PostgreSQL of the home's own where parts that run alone use somebody else's.

    Raises:
        UsageError: they do.
    """
    if choice.kind == "url" and settings.values.database_url is None:
        raise UsageError(
            f"Parts of a service run on {home.path} already, with the ledger in {shown(home, choice)}.",
            hint="Name that database with --database-url, or end these parts first.",
        )


def _log_to_file(home: Home, settings: Loaded) -> None:
    """Send what the supervisor itself has to say to its own log, ``up.log``."""
    file = home.logs / "up.log"
    file.touch(mode=0o600)
    handler = RotatingFileHandler(file, maxBytes=_LOG_BYTES, backupCount=_KEPT, encoding="utf-8")
    handler.setFormatter(logs.Formatter("up", settings.values.log_format))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(settings.values.log_level.upper())
    logs.quieten()
