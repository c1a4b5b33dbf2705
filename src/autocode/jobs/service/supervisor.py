"""The loop: start parts as what they need gets ready, look after them, stop them in order."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from autocode.jobs.service.health import Health, Part, State

__all__ = ["Requests", "Supervisor", "heard_requests"]

_LOOK_SECONDS: Final = 0.1
_HURRY_SECONDS: Final = 2.0
"""How long a part may take to end once somebody asked a second time."""

_log = logging.getLogger(__name__)


class Requests:
    """How often somebody asked this process to stop."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Count one more; made to be a signal handler, so it takes no lock."""
        self.count += 1


@contextmanager
def heard_requests() -> Iterator[Requests]:
    """Count Ctrl-C, SIGTERM and the loss of the terminal within the block, instead of obeying them."""
    requests = Requests()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] is not signal.SIG_IGN or number != signal.SIGHUP:
            signal.signal(number, requests.note)
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Supervisor:
    """Runs parts until it is asked to stop.

    Args:
        parts: in the order in which they start; they stop in the opposite one.
        requests: once it counts one, parts are stopped; from two on they are hurried.
        told: given every change of a part's state, as it happens.
        looked: called some times a second with how all parts are.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        requests: Requests,
        *,
        told: Callable[[Health], None] = lambda _health: None,
        looked: Callable[[Sequence[Health]], None] = lambda _healths: None,
    ) -> None:
        self._parts = tuple(parts)
        self._requests = requests
        self._told = told
        self._looked = looked
        self._last: dict[str, tuple[object, ...]] = {}
        self._started: set[str] = set()
        self._blind = False

    def run(self) -> bool:
        """Run the parts until a request comes, then stop them; say whether all of them ended by themselves.

        What *told* or *looked* raise stops the parts as well, and is raised in the end.
        """
        try:
            while not self._requests.count:
                self._look()
                time.sleep(_LOOK_SECONDS)
        finally:
            in_order = self._stop()
        return in_order

    def _look(self) -> None:
        states = {part.name: part.health().state for part in self._parts}
        for part in self._parts:
            if all(states[name] is State.READY for name in part.needs if name in states):
                self._started.add(part.name)
        self._tick()
        self._tell()

    def _tick(self) -> None:
        # also while parts are stopped: those that still run are needed until the last worker is done
        for part in self._parts:
            if part.name in self._started:
                part.tick()

    def _tell(self) -> None:
        healths = [part.health() for part in self._parts]
        for health in healths:
            # a process that dies and is back between two looks is a change as well
            change = (health.state, health.restarts, health.detail[:1])
            if self._last.get(health.name) != change:
                self._last[health.name] = change
                _note(health)
                self._told(health)
        self._looked(healths)

    def _stop(self) -> bool:
        in_order = True
        for part in reversed(self._parts):
            in_order &= self._stop_one(part)
        return in_order

    def _stop_one(self, part: Part) -> bool:
        part.stop()
        self._started.add(part.name)
        deadline = time.monotonic() + part.stop_seconds
        killed = False
        while True:
            self._tick()
            self._tell_while_stopping()
            if part.health().state is State.STOPPED:
                return not killed
            now = time.monotonic()
            if self._requests.count > 1:
                deadline = min(deadline, now + _HURRY_SECONDS)
            if now > deadline:
                if killed:
                    _log.error("%s can't be ended", part.name)
                    return False
                _log.warning("%s did not end in time and is killed", part.name)
                part.kill()
                killed, deadline = True, now + _HURRY_SECONDS
            time.sleep(_LOOK_SECONDS)

    def _tell_while_stopping(self) -> None:
        if self._blind:
            return
        try:
            self._tell()
        except Exception:  # noqa: BLE001 - a screen that broke must not keep the parts from being stopped
            _log.exception("can't show how the parts are")
            self._blind = True


def _note(health: Health) -> None:
    grave = health.state in {State.RESTARTING, State.FAILING}
    _log.log(
        logging.WARNING if grave else logging.INFO,
        "%s is %s",
        health.name,
        health.state,
        extra={
            "pid_of_part": health.pid,
            "ready_seconds": None if health.ready_seconds is None else round(health.ready_seconds, 2),
            "restarts": health.restarts,
            **({"detail": " / ".join(health.detail)} if health.detail else {}),
        },
    )
