"""How a child is stopped: handed back, cancelled, or fenced off. Whatever comes first decides."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from types import FrameType
from typing import Any, Final

import prefect.utilities.engine as prefect_signals
from prefect._internal import control_listener
from prefect._internal.attempt_control import Intent
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import TerminationSignal

from autocode.jobs.engine.system import System
from autocode.jobs.engine.worker import messages
from autocode.jobs.engine.worker.handback import cancel_attempt, hand_back, tell_prefect
from autocode.jobs.errors import JobsError

__all__ = ["FENCE_SECONDS", "HAND_BACK_SECONDS", "LEAVE_SECONDS", "Reason", "Stop"]

_log = logging.getLogger(__name__)

FENCE_SECONDS: Final = 2.0
"""How long a child whose attempt somebody else ended may go on, before it leaves its work as it is."""

HAND_BACK_SECONDS: Final = 2.0
"""How long the flow and Prefect together may take, once the attempt is handed back in the ledger."""


LEAVE_SECONDS: Final = 30.0
"""How long a process may take to leave once its attempt is over: Prefect is told, and the page written."""


class Reason(StrEnum):
    """Why a child stops."""

    HAND_BACK = "hand back"
    ORPHANED = "orphaned"
    CANCEL = "cancel"
    FENCED = "fenced"


_WORDS: Final = {
    messages.HAND_BACK: Reason.HAND_BACK,
    messages.CANCEL: Reason.CANCEL,
    messages.FENCED: Reason.FENCED,
    b"": Reason.ORPHANED,
}


class Stop:
    """Listens to the lifeline and to SIGTERM, and ends the child's run in the way that was asked for.

    Args:
        system: opens the home; called in a thread, when the ledger is first needed.
        run: the flow run.
        holder: under which name this process claims attempts.
    """

    def __init__(self, system: Callable[[], System], run: FlowRun, holder: str) -> None:
        self._system = system
        self._run = run
        self._holder = holder
        self._lock = threading.Lock()
        self._reason: Reason | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._flow_over = threading.Event()

    def install(self) -> None:
        """Take SIGTERM, now and from Prefect.

        Prefect's own handler raises wherever the main thread happens to be; in a callback of the event loop
        that is logged and lost. It is looked up by name whenever a flow begins, so ours takes its place.
        """
        vars(prefect_signals)["_prefect_sigterm_handler"] = self._on_sigterm
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def listen(self, lifeline: socket.socket) -> None:
        """Obey the worker's words, and notice its death, from a thread."""
        threading.Thread(target=self._listen, args=(lifeline,), name="lifeline", daemon=True).start()

    async def interruptible(self, flow: Any) -> Any:
        """Await *flow* so that a stop cancels it."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._reason in {Reason.HAND_BACK, Reason.ORPHANED, Reason.CANCEL}:
            self._interrupt()
        return await flow

    def begin(self, reason: Reason) -> None:
        """Stop for *reason*, unless a stop has begun. Returns at once."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
        work = {Reason.CANCEL: self._cancel, Reason.FENCED: self._leave}.get(reason, self._hand_back)
        threading.Thread(target=work, name=f"stop: {reason}", daemon=True).start()

    def fenced_off(self, seconds: float) -> None:
        """Leave without a word to Prefect, at the latest in *seconds*: somebody else ended the attempt.

        A process that stops itself has ended its own attempt, and goes on doing so.
        """
        with self._lock:
            if self._reason not in {None, Reason.FENCED}:
                return
            self._reason = Reason.FENCED
        if seconds <= 0:
            self._leave()
        timer = threading.Timer(seconds, self._leave)
        timer.daemon = True
        timer.start()

    def attempt_is_over(self, seconds: float = LEAVE_SECONDS) -> None:
        """Leave in *seconds* at the latest: what still holds this process then is held for nobody.

        The ledger has how the attempt ended, and reconcile tells Prefect once this process is dead. A thread
        that a step left behind would hold it, and its place among the worker's children, for ever.
        """
        timer = threading.Timer(seconds, self._held, args=(seconds,))
        timer.daemon = True
        timer.start()

    def flow_is_over(self) -> None:
        """Note that the flow has ended; while this process is handing back, wait for the end of that."""
        self._flow_over.set()
        if self._reason in {Reason.HAND_BACK, Reason.ORPHANED}:
            threading.Event().wait(2 * HAND_BACK_SECONDS)

    def _listen(self, lifeline: socket.socket) -> None:
        try:
            word = lifeline.recv(1)
        except OSError:
            word = b""
        self.begin(_WORDS.get(word, Reason.ORPHANED))
        # a second word says how little time is left, and death is the least
        with suppress(OSError):
            while (word := lifeline.recv(1)) not in {b"", messages.FENCED}:
                pass
        if word == messages.FENCED:
            self._leave()

    def _on_sigterm(self, number: int, _frame: FrameType | None) -> None:
        if self._reason is None:
            self.begin(Reason.HAND_BACK)
        elif self._task is None and self._reason is not Reason.FENCED:
            # a flow without an event loop of ours is interrupted where it is
            raise TerminationSignal(signal=number)

    def _cancel(self) -> None:
        with suppress(JobsError):
            cancel_attempt(self._system(), self._run, self._holder)
        self._tell_engine("cancel")
        self._interrupt()

    def _hand_back(self) -> None:
        handed: bool | None = False
        with suppress(JobsError):
            orphaned = self._reason is Reason.ORPHANED
            handed = hand_back(self._system(), self._run, self._holder, orphaned=orphaned)
        if handed is False:
            # it ended by itself a moment ago: let it tell Prefect how
            self._flow_over.wait(HAND_BACK_SECONDS)
            self._leave()
        self._tell_engine("relinquish")
        self._interrupt()
        self._flow_over.wait(HAND_BACK_SECONDS / 2)
        ours = handed is True
        telling = threading.Thread(target=tell_prefect, args=(self._run,), kwargs={"ours": ours}, daemon=True)
        telling.start()
        telling.join(HAND_BACK_SECONDS / 2)
        self._leave()

    def _tell_engine(self, intent: Intent) -> None:
        """Say to Prefect's engine in this process why the flow is about to be interrupted."""
        control_listener._set_intent(intent)  # noqa: SLF001 - what its own listener calls; no public way

    def _interrupt(self) -> None:
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    def _held(self, seconds: float) -> None:
        _log.warning("leaves %g s after the end of its attempt; what held it follows", seconds)
        faulthandler.dump_traceback(all_threads=True)
        self._leave()

    def _leave(self) -> None:
        if self._reason is Reason.ORPHANED:
            # nobody is left to kill what this process started
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(0)
