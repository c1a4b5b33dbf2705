"""A part that is a process of ours: started, watched, started again with growing pauses, stopped."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from autocode.jobs.clock import Clock, SystemClock
from autocode.jobs.retry import Backoff
from autocode.jobs.service.custody import Custody
from autocode.jobs.service.forkserver import ForkServer
from autocode.jobs.service.health import Health, State
from autocode.jobs.service.leash import VARIABLE, Leash
from autocode.jobs.service.log_files import PartLog
from autocode.jobs.service.running import Running, Started, ending

__all__ = ["COMMAND", "Announcement", "ProcessPart", "Spec"]

PAUSES: Final = Backoff(first=0.2, factor=2.0, ceiling=30.0, jitter=0.5)
"""Between the end of a process and its next start."""

_STEADY_SECONDS: Final = 30.0
"""A process that was ready for so long has not failed at once: the pauses begin anew."""

_FAILURES: Final = 3
"""So many ends in a row, and the part is called failing."""

_TAIL_LINES: Final = 5

COMMAND: Final = (sys.executable, "-m", "autocode.jobs.cli.main")
"""How a command of ours is started; its own arguments follow."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a part says once it is ready."""

    url: str | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """What a part is.

    Args:
        name: the part's name, which is also that of its log.
        argv: its command line.
        announced: given the process's id, returns what it announced, or ``None`` as long as it isn't ready.
        environ: its environment.
        needs: names of the parts that are to be ready first.
        start_seconds: how long it may take to be ready; then it is killed and started again.
        stop_seconds: how long it may take to end after SIGTERM.
    """

    name: str
    argv: tuple[str, ...]
    announced: Callable[[int], Announcement | None]
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    needs: tuple[str, ...] = ()
    start_seconds: float = 300.0
    stop_seconds: float = 10.0


class ProcessPart:
    """Keeps one process running, in a session and group of its own.

    When its process ends, the rest of its group is killed before the next is started.

    Args:
        spec: what to run.
        log: gets its stdout and stderr.
        custody: where its processes are found when this one is gone.
        leash: what it ends with when this process is gone.
        forks: forks it, where it is a command of ours (*argv* of ``python -m autocode.jobs.cli.main``).
        pauses: between an end and the next start.
        clock: what times are shown and measured by.
        draw: random numbers in [0, 1) for the pauses.
    """

    def __init__(
        self,
        spec: Spec,
        log: PartLog,
        custody: Custody,
        leash: Leash,
        *,
        forks: ForkServer | None = None,
        pauses: Backoff = PAUSES,
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.name = spec.name
        self.needs = spec.needs
        self.stop_seconds = spec.stop_seconds
        self._spec = spec
        self._log = log
        self._custody = custody
        self._leash = leash
        self._forks = forks
        self._pauses = pauses
        self._clock = clock or SystemClock()
        self._draw = draw
        self._process: Running | None = None
        self._state = State.WAITING
        self._since: datetime = self._clock.now()
        self._began = 0.0
        self._ready_at: float | None = None
        self._ready_seconds: float | None = None
        self._due = 0.0
        self._starts = 0
        self._failures = 0
        self._url: str | None = None
        self._log_began = 0
        self._detail: tuple[str, ...] = ()

    def health(self) -> Health:
        """Say how it is."""
        return Health(
            name=self.name,
            state=self._state,
            since=self._since,
            pid=None if self._process is None else self._process.pid,
            ready_seconds=self._ready_seconds,
            restarts=max(self._starts - 1, 0),
            url=self._url,
            log=self._log.path,
            detail=self._detail,
        )

    def tick(self) -> None:
        """Do what is due."""
        if self._state is State.STOPPED:
            return
        # a disk that is full is no reason to stop looking after the part
        with contextlib.suppress(OSError):
            self._log.rotate()
        if self._process is None:
            if self._state is State.STOPPING:
                self._enter(State.STOPPED)
            elif self._clock.monotonic() >= self._due:
                self._start()
        elif (status := self._process.ended()) is not None:
            self._ended(status)
        elif self._ready_at is None and self._state is not State.STOPPING:
            self._starting(self._process)

    def stop(self) -> None:
        """Ask the process to end: by SIGTERM, to it alone."""
        if self._state in {State.STOPPING, State.STOPPED}:
            return
        self._enter(State.STOPPING)
        self._detail = ()
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process and its group."""
        if self._process is not None:
            self._process.kill()

    def _start(self) -> None:
        try:
            self._process = self._spawned()
        except OSError as error:
            self._failed((f"can't be started: {error}",))
            return
        if self._process is None:
            return
        self._starts += 1
        self._began = self._clock.monotonic()
        if self._state is State.WAITING:
            self._enter(State.STARTING)

    def _spawned(self) -> Running | None:
        if self._forks is not None and self._forks.usable and not self._forks.ready():
            return None
        with self._log.opened() as log, self._custody.lock(self.name) as lock:
            self._log_began = self._log.size()
            process = self._forked(log, lock) or self._executed(log, lock)
        # the lock is held already; the id only helps systems that don't tell by whom
        with contextlib.suppress(OSError):
            self._custody.note(self.name, process.pid)
        return process

    def _forked(self, log: int, lock: int) -> Running | None:
        if self._forks is None or not self._forks.usable:
            return None
        return self._forks.spawn(
            self._spec.argv[len(COMMAND) :], self._environ(), (self._leash.read_end, log, log, lock)
        )

    def _executed(self, log: int, lock: int) -> Running:
        return Started(
            subprocess.Popen(
                self._spec.argv,
                env=self._environ(),
                stdin=self._leash.read_end,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
            )
        )

    def _environ(self) -> dict[str, str]:
        return {**self._spec.environ, VARIABLE: str(self._spec.stop_seconds)}

    def _starting(self, process: Running) -> None:
        said = self._spec.announced(process.pid)
        now = self._clock.monotonic()
        if said is not None:
            self._ready_at, self._ready_seconds = now, now - self._began
            self._url, self._detail = said.url, ()
            self._enter(State.READY)
        elif now - self._began > self._spec.start_seconds:
            self.kill()

    def _ended(self, status: int) -> None:
        self._process = None
        if self._state is State.STOPPING:
            self._enter(State.STOPPED)
            return
        steady = self._ready_at is not None and self._clock.monotonic() - self._ready_at >= _STEADY_SECONDS
        if steady:
            self._failures = 0
        said = self._log.tail(_TAIL_LINES, since=self._log_began)
        self._failed((ending(status), *said))

    def _failed(self, detail: tuple[str, ...]) -> None:
        was_ready, self._ready_at, self._url = self._ready_at is not None, None, None
        self._failures += 1
        self._detail = detail
        self._due = self._clock.monotonic() + self._pauses.delay(self._failures, self._draw)
        if self._failures >= _FAILURES:
            self._enter(State.FAILING)
        elif was_ready:
            self._enter(State.RESTARTING)

    def _enter(self, state: State) -> None:
        if state is not self._state:
            self._state, self._since = state, self._clock.now()
