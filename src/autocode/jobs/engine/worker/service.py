"""Our own command's worker: signals, the lock of its name, and the file that says that it is ready."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from autocode.jobs import locks
from autocode.jobs.engine.connection import PASSWORD_HINT, REFUSALS
from autocode.jobs.engine.server import Address
from autocode.jobs.engine.system import System
from autocode.jobs.engine.worker.prefect_worker import JobsWorker
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.settings import Home, write_durably

__all__ = ["serve"]

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_PREDECESSOR_SECONDS: Final = 10.0
"""How long a worker of the same name may take to end, before this one gives up."""


def serve(
    system: System,
    address: Address,
    *,
    pool: str,
    limit: int,
    niceness: int,
    name: str | None,
    grace: float | None,
) -> int:
    """Do what :func:`autocode.jobs.engine.worker.run` says."""
    # a shell starts what it puts into the background with SIGINT ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if name is not None and not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be the name of a worker.",
            hint="Use up to 64 letters, digits, dots, dashes and underscores.",
        )
    part = "worker" if name is None else f"worker-{name}"
    settings = {PREFECT_API_URL: address.url, PREFECT_API_AUTH_STRING: address.auth or None}
    with _alone(system.home, part), temporary_settings(settings):
        return asyncio.run(
            _serve(
                system,
                part,
                pool=pool,
                limit=limit,
                niceness=niceness,
                grace=grace,
            )
        )


@contextmanager
def _alone(home: Home, part: str) -> Iterator[None]:
    ready = home.run / f"{part}.json"
    try:
        with locks.owned(home.run / f"{part}.lock", within=_PREDECESSOR_SECONDS):
            ready.unlink(missing_ok=True)
            try:
                yield
            finally:
                ready.unlink(missing_ok=True)
    except TimeoutError as error:
        raise UsageError(
            f"A worker of this home runs already ({home.run / part}.lock is held).",
            hint="Give this one another --name, or end the other one first.",
        ) from error


async def _serve(
    system: System, part: str, *, pool: str, limit: int, niceness: int, grace: float | None
) -> int:
    worker = JobsWorker(
        pool,
        name=f"{socket.gethostname()} {part}",
        limit=limit,
        niceness=niceness,
        grace=grace,
        system=system,
        # a reconciler follows wherever this command is used
        environment={"AUTOCODE_RECONCILED": "1"},
    )
    working = asyncio.create_task(worker.start(printer=lambda *_: None))
    announcing = asyncio.create_task(
        _announce(worker, system.home.run / f"{part}.json", pool=pool, limit=limit)
    )
    _stop_on_signals(working, worker)
    try:
        await working
    except asyncio.CancelledError:
        return 0
    except httpx.HTTPStatusError as error:
        # a server that was away at first, or lets nobody in any more
        if error.response.status_code not in REFUSALS:
            raise
        raise UsageError(
            f"The Prefect server doesn't let this worker in (status {error.response.status_code}).",
            hint=PASSWORD_HINT,
        ) from error
    except JobsError as error:
        sys.stderr.write(f"{error.type}: {error.detail} {error.hint}\n")
    finally:
        announcing.cancel()
        await asyncio.gather(announcing, return_exceptions=True)
    return 1


def _stop_on_signals(working: asyncio.Task[None], worker: JobsWorker) -> None:
    """Drain at the first signal, and hand everything back at once at the second."""

    def stop() -> None:
        if worker.stopping:
            worker.hurry.set()
        else:
            worker.stopping = True
            working.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


async def _announce(worker: JobsWorker, path: Path, *, pool: str, limit: int) -> None:
    await worker.ready.wait()
    _log.info("ready: takes runs of the pool %r, %d at once", pool, limit)
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    said = {"pid": os.getpid(), "at": at, "slots": limit}
    with suppress(OSError):
        await asyncio.to_thread(write_durably, path, json.dumps(said).encode())
