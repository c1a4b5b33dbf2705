"""What is done to the processes of a service while a job is stopped at its crash point."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import psutil

from autocode.jobs.service import leash
from autocode.jobs.settings import LEASE_SECONDS
from autocode.jobs.store import LocalStore
from autocode.jobs.testing.crashes.cases import Case, Fault, Victim
from autocode.jobs.testing.crashes.service import LEASH_SECONDS, OwnService, until

__all__ = ["FROZEN_SECONDS", "strike"]

FROZEN_SECONDS: Final = LEASE_SECONDS + 2.0
"""How long something is stopped or cut off, where nobody takes its place."""

_ALONE_SECONDS: Final = 0.5
"""How long a process that was frozen goes on while its worker is still frozen."""

_REPLACED_SECONDS: Final = 120.0
"""How long another attempt may take to begin; far above a lease, a backoff and the start of a worker."""

_CLOCKS: Final = {Fault.CLOCK_BACK: -3600.0, Fault.CLOCK_FORWARD: 3600.0}
"""By how many seconds the clocks are put wrong."""


def strike(
    service: OwnService,
    case: Case,
    struck: int,
    stack: ExitStack,
    *,
    given_up: Callable[[], bool],
    replaced: Callable[[], bool],
    made: Callable[[], str],
) -> None:
    """Do a case's fault, and let the process that stopped at the crash point go on if it lives.

    Args:
        service: the service.
        case: the case.
        struck: the process that stopped at the crash point.
        stack: undoes what has to stay until the job is over.
        given_up: says whether the attempt was ended.
        replaced: says whether another one has begun.
        made: gives the digest of the object that the job made last.

    Raises:
        NotInTime: nothing took the place of what was frozen or cut off.
    """
    if case.fault is Fault.KILL:
        _kill(service, case, struck)
    elif case.fault is Fault.FREEZE:
        _freeze(service, case, struck, stack, given_up)
    elif case.fault is Fault.CUT_OFF:
        _cut_off(service, struck, stack, replaced)
    elif case.fault is Fault.DAMAGE:
        _damage(service, case, struck, made())
    else:
        if case.fault in _CLOCKS:
            stack.enter_context(_other_clock(service, _CLOCKS[case.fault]))
        _resume(struck)


def _kill(service: OwnService, case: Case, struck: int) -> None:
    service.kill(service.victims(case.victim, struck))
    _resume(struck)
    if case.victim is Victim.EVERYTHING:
        service.reap()
        service.start()


def _freeze(
    service: OwnService, case: Case, struck: int, stack: ExitStack, given_up: Callable[[], bool]
) -> None:
    victims = service.victims(case.victim, struck)
    service.kill(victims, signal.SIGSTOP)
    if case.victim in {Victim.CHILD, Victim.WORKER}:
        if case.victim is Victim.WORKER:
            stack.enter_context(_spare_worker(service))
        # at once: what it was about to commit, nobody else has committed yet
        until(given_up, within=_REPLACED_SECONDS, what="the attempt was given up", told=service.told)
        # and alone for a moment: its worker would tell it that it has no right any more
        _resume(struck)
        time.sleep(_ALONE_SECONDS)
    else:
        _resume(struck)
        time.sleep(FROZEN_SECONDS)
    service.kill(victims, signal.SIGCONT)
    _resume(struck)


def _cut_off(service: OwnService, struck: int, stack: ExitStack, replaced: Callable[[], bool]) -> None:
    assert service.proxy is not None
    service.proxy.cut(lambda: [process.pid for process in service.victims(Victim.WORKER, struck)])
    stack.callback(service.proxy.mend)
    _resume(struck)
    stack.enter_context(_spare_worker(service))
    until(replaced, within=_REPLACED_SECONDS, what="another attempt had begun", told=service.told)
    service.proxy.mend()


def _damage(service: OwnService, case: Case, struck: int, digest: str) -> None:
    path = LocalStore(service.home.store).path_of(digest)
    whole = path.read_bytes()
    middle = len(whole) // 2
    # as a disk does it, behind everybody's back: the name and the size stay
    path.chmod(0o600)
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :])
    path.chmod(0o400)
    if case.point.startswith("step."):
        # an attempt that goes on need not look at it again; the next one has to
        service.kill(service.victims(Victim.CHILD, struck))
    _resume(struck)


@contextmanager
def _other_clock(service: OwnService, seconds: float) -> Iterator[None]:
    # never half-written: whoever reads it now would take the rest for another number
    draft = service.clock.with_suffix(".draft")
    draft.write_text(str(seconds), "ascii")
    draft.replace(service.clock)
    try:
        yield
    finally:
        service.clock.unlink()


def _resume(pid: int) -> None:
    with suppress(psutil.Error):
        psutil.Process(pid).resume()


@contextmanager
def _spare_worker(service: OwnService) -> Iterator[None]:
    """Give the service one more worker for the length of the block; it ends in order with it."""
    said = service.home.run / "worker-spare.json"
    said.unlink(missing_ok=True)
    environ = {key: value for key, value in service.environ.items() if key != "AUTOCODE_CRASH"}
    process = subprocess.Popen(
        [sys.executable, "-m", "autocode.jobs.cli.main", "worker", "--name", "spare"],
        env={**environ, leash.VARIABLE: LEASH_SECONDS},
        stdin=subprocess.PIPE,
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
        assert process.stdin is not None
        process.stdin.close()
