"""Finding or starting the private Prefect server of a home, for as long as somebody needs it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import httpx

from autocode.jobs.engine.environment import child_environment
from autocode.jobs.errors import ServerUnavailable
from autocode.jobs.settings import Home

__all__ = ["Address", "private_server"]

_START_SECONDS: Final = 120.0
"""The first start on an empty home runs Prefect's migrations: 7 s here, a minute on a slow disk."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server answers, and what lets us in."""

    url: str
    auth: str
    pid: int


@contextmanager
def private_server(home: Home, *, waiting: Callable[[float], None] | None = None) -> Iterator[Address]:
    """Give the address of the home's Prefect server, starting it if nobody has.

    The server ends by itself when the last process that needs it has left this block, or died.

    Args:
        home: whose server.
        waiting: told the seconds waited so far, several times a second.

    Raises:
        ServerUnavailable: it did not answer in time, or ended at once; the detail names its log.
    """
    clients = os.open(home.run / "clients.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # an ending server holds the exclusive lock until it is gone
        fcntl.flock(clients, fcntl.LOCK_SH)
        with _starting(home):
            address = _living(home)
            if address is None:
                address = _start(home, waiting or (lambda _seconds: None))
        yield address
    finally:
        os.close(clients)


@contextmanager
def _starting(home: Home) -> Iterator[None]:
    lock = os.open(home.run / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _living(home: Home) -> Address | None:
    try:
        address = Address(**json.loads((home.run / "server.json").read_text("utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    try:
        answer = httpx.get(f"{address.url}/health", timeout=5.0)
    except httpx.HTTPError:
        return None
    return address if answer.status_code == httpx.codes.OK else None


def _start(home: Home, waiting: Callable[[float], None]) -> Address:
    (home.run / "server.json").unlink(missing_ok=True)
    log_path = home.logs / "prefect-server.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "autocode.jobs.engine.server_process", str(home.path)],
            env=child_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    began = time.monotonic()
    while time.monotonic() - began < _START_SECONDS:
        address = _living(home)
        if address is not None and address.pid == process.pid:
            return address
        try:
            status = process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            waiting(time.monotonic() - began)
            continue
        raise ServerUnavailable(f"The Prefect server ended at once with status {status}; see {log_path}.")
    process.kill()
    raise ServerUnavailable(
        f"The Prefect server did not answer within {_START_SECONDS:.0f} s; see {log_path}."
    )
