"""Finding the service that a command should talk to."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from autocode.jobs.client.client import Client
from autocode.jobs.errors import UsageError
from autocode.jobs.request_errors import ServiceUnavailable
from autocode.jobs.settings import Home

__all__ = ["discover"]

_START_SECONDS: Final = 10.0
"""How long a service that holds its lock may take to say where it is."""

_POLL_SECONDS: Final = 0.05


def discover(home: Home, environ: Mapping[str, str] = os.environ, **options: Any) -> Client | None:
    """Return a client of the service to use, or ``None`` where there is none.

    That is the one that ``AUTOCODE_URL`` and ``AUTOCODE_TOKEN`` name; else the one that runs on *home*: a
    lock that its process holds says that it lives. The files beside the lock outlive it and prove nothing.

    Args:
        home: the data folder.
        environ: the environment.
        **options: handed on to :class:`Client`.

    Raises:
        UsageError: ``AUTOCODE_URL`` is set without ``AUTOCODE_TOKEN``, or is no address.
        ServiceUnavailable: the service of the home lives, and did not say where it is.
    """
    url = environ.get("AUTOCODE_URL")
    if url:
        token = environ.get("AUTOCODE_TOKEN")
        if not token:
            raise UsageError(
                "AUTOCODE_URL is set, and AUTOCODE_TOKEN isn't.",
                hint="Set AUTOCODE_TOKEN to a token of that service, or unset AUTOCODE_URL.",
            )
        return Client(url, token, **options)
    lock = home.run / "api.lock"
    give_up = time.monotonic() + _START_SECONDS
    while (pid := _holder(lock)) is not None:
        found = _recorded(home, pid)
        if found is not None:
            url, token, pinned = found
            return Client(url, token, pinned=pinned, **options)
        if time.monotonic() > give_up:
            raise ServiceUnavailable(f"The service of {home.path} (process {pid}) doesn't say where it is.")
        time.sleep(_POLL_SECONDS)
    return None


def _recorded(home: Home, pid: int) -> tuple[str, str, str | None] | None:
    """Return address, token and certificate (of TLS), once the process with the lock has written them."""
    try:
        facts = json.loads((home.run / "api.json").read_text("utf-8"))
        if facts["pid"] != pid:
            return None
        return str(facts["url"]), (home.run / "token").read_text("ascii").strip(), facts.get("certificate")
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def _holder(lock: Path) -> int | None:
    """Return the process that holds *lock*; 0 where it hasn't written its number yet."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = lock.read_text("ascii", errors="replace").strip()
        return int(text) if text.isdecimal() else 0
    finally:
        os.close(descriptor)
    return None
