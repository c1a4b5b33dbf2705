"""A part that other code keeps running while a block is held open: PostgreSQL, the Prefect server."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autocode.jobs import locks
from autocode.jobs.clock import Clock, SystemClock
from autocode.jobs.errors import JobsError
from autocode.jobs.retry import Backoff
from autocode.jobs.service.health import Health, State

__all__ = ["Held", "HeldPart"]

_PAUSES: Final = Backoff(first=0.5, factor=2.0, ceiling=30.0, jitter=0.5)
_FAILURES: Final = 2

_LINGER_SECONDS: Final = 6.0
"""A process that nobody needs waits a little for the next client, and then takes its time to end."""

_WANTED_LOOKS: Final = 5
"""So many looks in a row that find another client, and there is one."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is held, and how it shows itself.

    Args:
        name: of the part.
        block: makes the block; it gives the address to show, if there is one.
        lock: what the process behind it holds while it lives, with its id in it.
        clients: what every client shares, and the process takes for itself once there is none.
        log: what the process says.
        needs: names of the parts that are to be ready first.
        stop_seconds: how long the process may take to end.
    """

    name: str
    block: Callable[[], AbstractContextManager[str | None]]
    lock: Path
    clients: Path
    log: Path
    needs: tuple[str, ...] = ()
    stop_seconds: float = 15.0


class HeldPart:
    """Holds the block open in a thread, and tells how the process behind it is by that process's lock.

    The code behind the block starts the process again when it dies, and ends it after its last client; so
    another command of the home may keep it alive after :meth:`stop`. That counts as stopped, with a process.

    Args:
        held: what to hold.
        clock: what times are shown and measured by.
    """

    def __init__(self, held: Held, *, clock: Clock | None = None) -> None:
        self.name = held.name
        self.needs = held.needs
        self.stop_seconds = held.stop_seconds
        self._held = held
        self._clock = clock or SystemClock()
        self._state = State.WAITING
        self._since = self._clock.now()
        self._began = 0.0
        self._ready_seconds: float | None = None
        self._restarts = 0
        self._pid: int | None = None
        self._last_pid: int | None = None
        self._leave = threading.Event()
        self._entered = threading.Event()
        self._thread: threading.Thread | None = None
        # written by the thread, read by ticks: whole values, replaced at once
        self._url: str | None = None
        self._error: Exception | None = None
        self._failures = 0
        self._left_at = 0.0
        self._wanted_looks = 0

    def health(self) -> Health:
        """Say how it is."""
        error = self._error
        return Health(
            name=self.name,
            state=self._state,
            since=self._since,
            pid=self._pid,
            ready_seconds=self._ready_seconds,
            restarts=self._restarts,
            url=self._url if self._entered.is_set() else None,
            log=self._held.log,
            detail=() if error is None else (str(error),),
            hint=error.hint if isinstance(error, JobsError) else "",
        )

    def tick(self) -> None:
        """Begin to hold the block, or look whether the process behind it lives."""
        if self._state is State.STOPPED:
            return
        if self._state is State.STOPPING:
            if self._is_over():
                # what is left has another client, and says by whom it is to be found
                self._pid = locks.owner(self._held.lock)
                self._enter(State.STOPPED)
            return
        if self._thread is None:
            self._began = self._clock.monotonic()
            self._enter(State.STARTING)
            self._thread = threading.Thread(target=self._hold, name=f"holds {self.name}", daemon=True)
            self._thread.start()
        elif self._entered.is_set():
            self._look()
        elif self._failures >= _FAILURES:
            self._enter(State.FAILING)

    def stop(self) -> None:
        """Leave the block."""
        if self._state in {State.STOPPING, State.STOPPED}:
            return
        self._enter(State.STOPPING)
        self._left_at = self._clock.monotonic()
        self._leave.set()

    def kill(self) -> None:
        """Kill the process behind the block, and its group if it leads one."""
        pid = locks.owner(self._held.lock)
        # while the thread is in the block nobody can tell whether there is another client
        inside = self._thread is not None and self._thread.is_alive()
        if pid is None or (not inside and self._is_wanted()):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)

    def _look(self) -> None:
        pid = locks.owner(self._held.lock)
        if pid is None:
            self._pid = None
            self._enter(State.RESTARTING)
            return
        if self._last_pid is None:
            self._ready_seconds = self._clock.monotonic() - self._began
        elif pid != self._last_pid:
            self._restarts += 1
        self._pid = self._last_pid = pid
        self._enter(State.READY)

    def _hold(self) -> None:
        while not self._leave.is_set():
            try:
                with self._held.block() as url:
                    self._url, self._error, self._failures = url, None, 0
                    self._entered.set()
                    self._leave.wait()
            except Exception as error:  # noqa: BLE001 - whatever it was, it is shown and tried again
                self._entered.clear()
                self._failures += 1
                self._error = error
                self._leave.wait(_PAUSES.delay(self._failures))

    def _is_over(self) -> bool:
        if self._thread is not None and self._thread.is_alive():
            return False
        if not locks.is_held(self._held.lock):
            return True
        if self._clock.monotonic() - self._left_at < _LINGER_SECONDS:
            return False
        # the process itself takes the lock for moments in which it looks like a client's
        self._wanted_looks = self._wanted_looks + 1 if self._is_wanted() else 0
        return self._wanted_looks >= _WANTED_LOOKS

    def _is_wanted(self) -> bool:
        """Say whether somebody else is a client: the lock is taken, but shared."""
        if locks.is_held(self._held.clients):
            return False
        try:
            with locks.exclusive(self._held.clients, within=0.0):
                return False
        except TimeoutError:
            return not locks.is_held(self._held.clients)

    def _enter(self, state: State) -> None:
        if state is not self._state:
            self._state, self._since = state, self._clock.now()
