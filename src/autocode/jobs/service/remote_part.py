"""A part that somebody else runs: it is asked now and then, and never started or stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from autocode.jobs.clock import Clock, SystemClock
from autocode.jobs.errors import JobsError
from autocode.jobs.service.health import Health, State

__all__ = ["RemotePart"]

_ASK_SECONDS: Final = 2.0


class RemotePart:
    """Tells whether something at an address answers.

    Args:
        name: of the part.
        url: its address, without passwords.
        ask: returns if it answers; may take seconds.
        pause: seconds between two questions.
        clock: what times are shown and measured by.
    """

    needs: tuple[str, ...] = ()
    stop_seconds = 0.0

    def __init__(
        self,
        name: str,
        url: str,
        ask: Callable[[], None],
        *,
        pause: float = _ASK_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._url = url
        self._ask = ask
        self._pause = pause
        self._clock = clock or SystemClock()
        self._state = State.WAITING
        self._since = self._clock.now()
        self._began = 0.0
        self._ready_seconds: float | None = None
        self._leave = threading.Event()
        self._thread: threading.Thread | None = None
        self._answered: bool | None = None
        self._error: JobsError | None = None

    def health(self) -> Health:
        """Say how it is."""
        error = self._error
        return Health(
            name=self.name,
            state=self._state,
            since=self._since,
            ready_seconds=self._ready_seconds,
            url=self._url,
            detail=() if error is None else (error.detail,),
            hint="" if error is None else error.hint,
        )

    def tick(self) -> None:
        """Begin to ask, or take note of the last answer."""
        if self._state is State.STOPPED:
            return
        if self._thread is None:
            self._began = self._clock.monotonic()
            self._enter(State.STARTING)
            self._thread = threading.Thread(target=self._keep_asking, name=f"asks {self.name}", daemon=True)
            self._thread.start()
        elif self._answered is not None:
            if self._answered and self._ready_seconds is None:
                self._ready_seconds = self._clock.monotonic() - self._began
            self._enter(State.READY if self._answered else State.FAILING)

    def stop(self) -> None:
        """Ask no more."""
        self._leave.set()
        self._enter(State.STOPPED)

    def kill(self) -> None:
        """Ask no more: what somebody else runs is left alone."""
        self.stop()

    def _keep_asking(self) -> None:
        while not self._leave.is_set():
            try:
                self._ask()
            except JobsError as error:
                self._error, self._answered = error, False
            else:
                self._error, self._answered = None, True
            self._leave.wait(self._pause)

    def _enter(self, state: State) -> None:
        if state is not self._state:
            self._state, self._since = state, self._clock.now()
