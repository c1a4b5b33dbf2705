"""The process that children are forked from: ``python -m autocode.jobs.engine.worker.zygote DESCRIPTOR``.

It has imported everything and has one thread, so that a fork is safe and takes milliseconds. It is the
children's parent: it alone learns how each ended, and sends that to its owner. Before it reaps a child it
kills whatever that child left in its process group; until then the kernel uses the number for nobody else.

A worker's children are runs. The supervisor of ``autocode-jobs up`` has its parts forked in the same way, and
the worker among them gets its zygote with it (:mod:`.launch`).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from autocode.jobs import logs
from autocode.jobs.engine.worker.launch import hear_environment
from autocode.jobs.engine.worker.messages import Frame, Op, receive, send
from autocode.jobs.engine.worker.processes import become_subreaper, call_oneself, kill_group, reap_any
from autocode.jobs.settings import Home

__all__ = ["ORPHAN_SECONDS", "Zygote", "main", "serve"]

ORPHAN_SECONDS: Final = 4.0
"""How long children may take to hand their attempts back after the worker died, before they are killed."""


def main(descriptor: int) -> None:
    """Serve the worker at the socket's other end until it is gone, and all children with it."""
    # what a terminal sends to everybody is for the worker, which decides what becomes of its children
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from autocode.jobs.engine.worker import prewarm  # noqa: PLC0415 - seconds, and importing this module is cheap

    prewarm.preload()
    serve(socket.socket(fileno=descriptor))


def serve(control: socket.socket) -> None:
    """Be the zygote of the worker at the other end of *control*; everything is imported already."""
    become_subreaper()
    call_oneself("zygote")
    logs.configure_child("worker", Home.from_environment().logs)
    from autocode.jobs.engine.worker import child, prewarm  # noqa: PLC0415 - imported long ago

    if hear_environment(control):
        prewarm.prewarm()
        Zygote(control, child.live, orphan_seconds=ORPHAN_SECONDS).serve()


class Zygote:
    """Forks children on request and tells how they end; its process must have one thread.

    Args:
        control: the socket to its owner.
        become: what a child does, given its own socket to the owner; returns its exit status.
        orphan_seconds: how long children may go on once the owner is gone.
    """

    def __init__(
        self, control: socket.socket, become: Callable[[socket.socket], int], *, orphan_seconds: float
    ) -> None:
        self._control = control
        self._become = become
        self._orphan_seconds = orphan_seconds
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._numbers: dict[int, int] = {}

    def serve(self) -> None:
        """Obey the owner until it is gone."""
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._tell(Frame(Op.READY))
        control: socket.socket | int = self._control
        while True:
            ready, _, _ = select.select([control, self._woken], [], [])
            if self._woken in ready:
                self._reap_all()
            if self._control in ready:
                received = receive(self._control)
                if received is None:
                    break
                self._obey(*received)
        self._outlive_owner()

    def _obey(self, frame: Frame, files: list[int]) -> None:
        if frame.op is Op.SPAWN:
            self._spawn(frame.number, files[0])
        elif frame.op is Op.SIGNAL:
            self._signal(frame.number, frame.value)

    def _spawn(self, number: int, lifeline: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._become_child(lifeline)
        os.close(lifeline)
        self._numbers[pid] = number
        self._tell(Frame(Op.STARTED, number, pid))

    def _become_child(self, lifeline: int) -> None:
        status = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self._woken, self._waker):
                os.close(descriptor)
            self._control.close()
            status = self._become(socket.socket(fileno=lifeline))
        finally:
            os._exit(status)

    def _signal(self, number: int, wanted: int) -> None:
        for pid, known in self._numbers.items():
            if known == number:
                with suppress(ProcessLookupError):
                    os.kill(pid, wanted)
                with suppress(ProcessLookupError):
                    os.killpg(pid, wanted)

    def _reap_all(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)
        with suppress(ChildProcessError):
            while (ended := reap_any()) is not None:
                pid, status = ended
                self._tell(Frame(Op.EXITED, self._numbers.pop(pid, 0), pid, status))

    def _tell(self, frame: Frame) -> None:
        # an owner that is gone is noticed where it is listened to
        with suppress(OSError):
            send(self._control, frame)

    def _outlive_owner(self) -> None:
        """Let the children hand back what they have, then kill who is left: one may be stopped."""
        end = time.monotonic() + self._orphan_seconds
        while self._numbers and (left := end - time.monotonic()) > 0:
            select.select([self._woken], [], [], left)
            self._reap_all()
        for pid in self._numbers:
            kill_group(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
