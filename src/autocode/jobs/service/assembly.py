"""The parts of one home's service, by its settings, in the order in which they start."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import httpx
import psycopg

from autocode.jobs import locks
from autocode.jobs.configuration import Loaded
from autocode.jobs.engine.connection import check_access
from autocode.jobs.engine.server import Address, private_server, server_log
from autocode.jobs.engine.system import use_embedded
from autocode.jobs.errors import LedgerUnavailable, ServerUnavailable
from autocode.jobs.ledger.words import sentence
from autocode.jobs.postgres import client as postgres
from autocode.jobs.postgres.place import server_log as postgres_log
from autocode.jobs.service.custody import Custody
from autocode.jobs.service.forkserver import ForkServer
from autocode.jobs.service.health import Part
from autocode.jobs.service.held_part import Held, HeldPart
from autocode.jobs.service.leash import Leash
from autocode.jobs.service.log_files import PartLog
from autocode.jobs.service.process_part import COMMAND, Announcement, ProcessPart, Spec
from autocode.jobs.service.remote_part import RemotePart
from autocode.jobs.settings import Home
from autocode.jobs.urls import masked, plain_url

__all__ = ["announced", "assemble", "environment"]

_STOP_SECONDS: Final = 10.0

_OTHER_PREFECT: Final = "Start that server, or stop this service and name another with --prefect-api-url."


def assemble(
    home: Home, settings: Loaded, custody: Custody, leash: Leash, forks: ForkServer, *, worker: bool
) -> list[Part]:
    """Return the parts: what the settings name as somebody else's is watched, everything else is run here.

    Args:
        home: whose service.
        settings: checked ones.
        custody: where processes are found when this one is gone.
        leash: what they end with.
        forks: what forks those that are commands of ours.
        worker: whether a worker is among them.
    """
    values = settings.values
    environ = environment(home, settings)
    parts: list[Part] = [
        _postgres(home, values.database_url),
        _prefect(home, values.prefect_api_url, values.prefect_auth),
    ]
    for name, stop_seconds in (
        ("api", _STOP_SECONDS),
        ("reconcile", _STOP_SECONDS),
        *([("worker", values.drain_seconds + _STOP_SECONDS)] if worker else []),
    ):
        spec = Spec(
            name=name,
            argv=(*COMMAND, name),
            announced=announced(home, name),
            environ=environ,
            # not the Prefect server: each waits for it by itself, and may import its libraries meanwhile
            needs=("postgres",),
            stop_seconds=stop_seconds,
        )
        parts.append(ProcessPart(spec, PartLog(home.logs, name), custody, leash, forks=forks))
    return parts


def environment(home: Home, settings: Loaded) -> dict[str, str]:
    """Return the environment of the processes of a home's service."""
    return {**os.environ, **settings.environ(), "AUTOCODE_HOME": str(home.path)}


def announced(home: Home, part: str) -> Callable[[int], Announcement | None]:
    """Return what finds the announcement of a process of *part*: its own file, under a lock that it holds."""

    def find(pid: int) -> Announcement | None:
        for path in home.run.glob(f"{part}*.json"):
            try:
                said = json.loads(path.read_text("utf-8"))
                url, its = said.get("url"), said["pid"]
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
            if its == pid and locks.owner(path.with_suffix(".lock")) == pid:
                return Announcement(url if isinstance(url, str) else None)
        return None

    return find


def _postgres(home: Home, url: str | None) -> Part:
    if url is not None:
        return RemotePart("postgres", masked(plain_url(url)), lambda: _ask_postgres(url))

    @contextmanager
    def block() -> Iterator[str | None]:
        use_embedded(home)
        with postgres.running(home):
            yield None

    return HeldPart(
        Held(
            name="postgres",
            block=block,
            lock=home.run / "postgres.lock",
            clients=home.run / "postgres-clients.lock",
            log=postgres_log(home),
        )
    )


def _ask_postgres(url: str) -> None:
    try:
        psycopg.connect(plain_url(url), connect_timeout=3).close()
    except psycopg.Error as error:
        # what libpq says names host and user, and never the password
        raise LedgerUnavailable(
            f"{masked(plain_url(url))} doesn't answer: {sentence(error)}",
            hint="Start that server, or stop this service and name another with --database-url.",
        ) from error


def _prefect(home: Home, url: str | None, auth: str | None) -> Part:
    if url is not None:
        return RemotePart("prefect", masked(url), lambda: _ask_prefect(url, auth))

    @contextmanager
    def block() -> Iterator[str | None]:
        with private_server(home) as address:
            yield address.url

    return HeldPart(
        Held(
            name="prefect",
            block=block,
            lock=home.run / "server.lock",
            clients=home.run / "clients.lock",
            log=server_log(home),
            needs=("postgres",),
        )
    )


def _ask_prefect(url: str, auth: str | None) -> None:
    try:
        answer = httpx.get(f"{url}/health", timeout=5.0)
    except httpx.HTTPError as error:
        raise ServerUnavailable(
            f"{masked(url)} doesn't answer: {sentence(error)}", hint=_OTHER_PREFECT
        ) from error
    if answer.status_code != httpx.codes.OK:
        raise ServerUnavailable(
            f"{masked(url)} answers with status {answer.status_code}.", hint=_OTHER_PREFECT
        )
    check_access(Address(url, auth or "", pid=0))
