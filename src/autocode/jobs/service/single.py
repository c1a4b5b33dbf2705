"""One supervisor a home: who it is, and what an earlier one left running."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Final

from autocode.jobs import locks
from autocode.jobs.clock import SystemClock, rfc3339
from autocode.jobs.errors import HomeUnusable, ServiceRunning
from autocode.jobs.service.custody import Custody
from autocode.jobs.settings import Home, write_durably

__all__ = ["Running", "announce", "only_supervisor", "running"]

_REMAINS_SECONDS: Final = 10.0
"""How long parts of a supervisor that died may take to end in order."""


@dataclass(frozen=True, slots=True)
class Running:
    """What the supervisor says of itself in ``run/up.json``.

    Args:
        pid: its process.
        at: since when, in UTC.
        url: of the API, once it answers.
        prefect_url: of the Prefect server, once it answers.
    """

    pid: int
    at: str
    url: str | None = None
    prefect_url: str | None = None


def running(home: Home) -> Running | None:
    """Return what the supervisor that runs on *home* said, or ``None`` where none runs. Changes nothing."""
    pid = locks.owner(home.run / "up.lock")
    if pid is None:
        return None
    try:
        said = Running(**json.loads((home.run / "up.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return Running(pid, "")
    # the file outlives its supervisor, and the next one may not have come to write its own
    return said if said.pid == pid else Running(pid, "")


def announce(home: Home, *, url: str | None, prefect_url: str | None) -> None:
    """Write where the service answers, for other commands of the home. Atomic."""
    said = Running(os.getpid(), rfc3339(SystemClock().now()) or "", url, prefect_url)
    write_durably(home.run / "up.json", json.dumps(asdict(said)).encode())


@contextmanager
def only_supervisor(home: Home) -> Iterator[Custody]:
    """Be the home's only supervisor within the block; first end what an earlier one left running.

    Raises:
        ServiceRunning: another one runs; nothing was changed.
        HomeUnusable: something of an earlier one runs on and can't be ended from here.
    """
    _refuse_second(home)
    home.prepare()
    try:
        with locks.owned(home.run / "up.lock", within=0.0):
            (home.run / "up.json").unlink(missing_ok=True)
            custody = Custody(home.run / "up")
            _end_remains(custody)
            yield custody
            (home.run / "up.json").unlink(missing_ok=True)
    except TimeoutError:
        _refuse_second(home)
        raise


def _refuse_second(home: Home) -> None:
    other = running(home)
    if other is not None:
        where = f" at {other.url}" if other.url else ""
        raise ServiceRunning(
            f"The service of {home.path} already runs{where}, as process {other.pid}.",
            hint=f"Use the one that runs, or stop it: kill -TERM {other.pid}",
            pid=other.pid,
            url=other.url,
        )


def _end_remains(custody: Custody) -> None:
    left = custody.end(within=_REMAINS_SECONDS) if custody.living() else {}
    if left:
        parts = ", ".join(
            f"{name} (process {', '.join(map(str, sorted(pids))) or 'unknown'})"
            for name, pids in left.items()
        )
        raise HomeUnusable(
            f"Parts of an earlier service still run and can't be ended: {parts}.",
            hint="End these processes, then run the same command again.",
        )
