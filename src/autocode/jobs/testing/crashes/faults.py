"""What is done to the processes of a service while a job is stopped at its crash point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psutil

from autocode.jobs.settings import LEASE_SECONDS
from autocode.jobs.testing.crashes.cases import Case, Fault, Victim
from autocode.jobs.testing.crashes.proxy import Proxy
from autocode.jobs.testing.crashes.service import OwnService, until

__all__ = ["FROZEN_SECONDS", "freeze", "kill", "other_clock", "spare_worker", "without_database"]

FROZEN_SECONDS: Final = LEASE_SECONDS + 2.0
"""How long something is stopped or cut off, where nobody takes its place."""

_HOUR: Final = 3600.0


def kill(service: OwnService, case: Case, struck: int) -> None:
    """Kill the victim, let what stopped at the crash point go on, and start again what nobody else starts."""
    service.kill(service.victims(case.victim, struck))
    resume(struck)
    if case.victim is Victim.EVERYTHING:
        service.reap()
        service.start()


def freeze(service: OwnService, case: Case, struck: int, *, replaced: Callable[[], bool]) -> None:
    """Stop the victim for longer than a lease, and until *replaced* where another one can take its place."""
    victims = service.victims(case.victim, struck)
    service.kill(victims, signal.SIGSTOP)
    if case.victim not in {Victim.CHILD, Victim.WORKER}:
        resume(struck)
        time.sleep(FROZEN_SECONDS)
    else:
        until(replaced, within=60, what="another attempt had begun", told=service.told)
    service.kill(victims, signal.SIGCONT)
    resume(struck)


def without_database(
    service: OwnService, proxy: Proxy, struck: int, *, replaced: Callable[[], bool]
) -> None:
    """Cut the worker and its children off from the database until another worker has taken their place."""
    proxy.cut(lambda: [process.pid for process in service.victims(Victim.WORKER, struck)])
    resume(struck)
    until(replaced, within=60, what="another attempt had begun", told=service.told)
    proxy.mend()


@contextmanager
def other_clock(service: OwnService, fault: Fault) -> Iterator[None]:
    """Let this project's processes see another time for the length of the block."""
    service.clock.write_text(str(-_HOUR if fault is Fault.CLOCK_BACK else _HOUR), "ascii")
    try:
        yield
    finally:
        service.clock.unlink()


def resume(pid: int) -> None:
    """Let a stopped process go on; one that is gone is left alone."""
    with suppress(psutil.Error):
        psutil.Process(pid).resume()


@contextmanager
def spare_worker(service: OwnService) -> Iterator[None]:
    """Give the service one more worker for the length of the block; it ends in order with it."""
    said = service.home.run / "worker-spare.json"
    said.unlink(missing_ok=True)
    environ = {key: value for key, value in service.environ.items() if key != "AUTOCODE_CRASH"}
    process = subprocess.Popen(
        [sys.executable, "-m", "autocode.jobs.cli.main", "worker", "--name", "spare"],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(
            lambda: said.exists() or process.poll() is not None,
            within=60,
            what="the spare worker was ready",
            told=service.told,
        )
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
