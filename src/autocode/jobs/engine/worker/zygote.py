"""The process that children are forked from: ``python -m autocode.jobs.engine.worker.zygote DESCRIPTOR``.

It has imported everything and has one thread, so that a fork is safe and takes milliseconds. It is the
children's parent: it alone learns how each ended, and sends that to the worker. Before it reaps a child it
kills whatever that child left in its process group; until then the kernel uses the number for nobody else.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Final

from autocode.jobs import logs
from autocode.jobs.engine.worker.messages import Frame, Op, receive, send
from autocode.jobs.engine.worker.processes import become_subreaper, kill_group, reap_any
from autocode.jobs.settings import Home

__all__ = ["ORPHAN_SECONDS", "main"]

ORPHAN_SECONDS: Final = 4.0
"""How long children may take to hand their attempts back after the worker died, before they are killed."""


def main(descriptor: int) -> None:
    """Serve the worker at the socket's other end until it is gone, and all children with it."""
    # what a terminal sends to everybody is for the worker, which decides what becomes of its children
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    become_subreaper()
    logs.configure_child("worker", Home.from_environment().logs)
    control = socket.socket(fileno=descriptor)
    from autocode.jobs.engine.worker.prewarm import prewarm  # noqa: PLC0415 - seconds, and importing this module is cheap

    prewarm()
    _Zygote(control).serve()


class _Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._numbers: dict[int, int] = {}

    def serve(self) -> None:
        """Obey the worker until it is gone."""
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
        self._outlive_worker()

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
            from autocode.jobs.engine.worker.child import live  # noqa: PLC0415 - imported long ago, by the prewarming

            status = live(socket.socket(fileno=lifeline))
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
        # a worker that is gone is noticed where it is listened to
        with suppress(OSError):
            send(self._control, frame)

    def _outlive_worker(self) -> None:
        """Let the children hand back what they have, then kill who is left: one may be stopped."""
        end = time.monotonic() + ORPHAN_SECONDS
        while self._numbers and (left := end - time.monotonic()) > 0:
            select.select([self._woken], [], [], left)
            self._reap_all()
        for pid in self._numbers:
            kill_group(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
