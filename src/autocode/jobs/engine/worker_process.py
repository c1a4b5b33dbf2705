"""The process that performs steps apart. It imports neither Prefect nor a database, and dies with its parent.

``python -m autocode.jobs.engine.worker_process SOCKET HOME`` serves the parent at the socket's other end.
Messages are pickles between two processes of one program; nothing else can write to the socket.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import select
import signal
import sys
import threading
import time
from collections import deque
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, Final

from autocode.jobs import crash, kinds
from autocode.jobs.engine.apart import ApartContext, Done, perform
from autocode.jobs.engine.problems import presentable
from autocode.jobs.errors import JobsError, UnexpectedError
from autocode.jobs.kinds import Step
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore

__all__ = ["main"]

_TELL_SECONDS: Final = 0.2
_SELDOM: Final = (50_000, 20, 100)


def main(socket: int, home: Path) -> None:
    """Serve until the parent hangs up.

    Args:
        socket: descriptor of the connected socket.
        home: the home, which also tells people on the command line whose process this is.
    """
    # Ctrl-C is for the parent, which decides what becomes of the work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, args=(socket,), daemon=True).start()
    _Worker(Connection(socket), Home(home)).serve()


def _die_with_parent(socket: int) -> None:
    hung_up = select.poll()
    # an empty mask: the kernel reports a hang-up all the same, and nothing else
    hung_up.register(socket, 0)
    hung_up.poll()
    os._exit(0)


class _Worker:
    def __init__(self, parent: Connection, home: Home) -> None:
        self._parent = parent
        self._store = LocalStore(home.store)
        self._cache = home.cache
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._told = 0.0

    def serve(self) -> None:
        _, module, kind, name, point = self._next()
        importlib.import_module(module)
        step = kinds.get(kind).steps[name]
        if point is not None:
            crash.forward(point, self._passed)
        # records come and go by the thousand, and none of them is part of a cycle
        gc.freeze()
        gc.set_threshold(*_SELDOM)
        self._parent.send(("ready",))
        while True:
            _, chain, calls, before = self._next()
            self._run(step, chain, calls, before)

    def _run(self, step: Step[Any], chain: int, calls: Any, before: Any) -> None:
        number = 0
        context = ApartContext(
            self._store, lambda: None, lambda done: self._tell(chain, number, done), self._cache
        )
        try:
            for done in perform(context, step, calls, before):
                self._hand_over(chain, number, done)
                number += 1
        except Exception as error:  # noqa: BLE001 - handed to the parent
            self._parent.send(("error", chain, number, _sendable(error)))
        else:
            self._parent.send(("end", chain))

    def _hand_over(self, chain: int, number: int, done: Done) -> None:
        handed = [staging.hand_over() for staging in done.objects]
        objects = [(each.name, each.info) for each in handed]
        self._parent.send(("done", chain, number, done.produced, objects))
        for each in handed:
            send_handle(self._parent, each.file, None)
            os.close(each.file)

    def _tell(self, chain: int, number: int, done: int) -> None:
        now = time.monotonic()
        if now - self._told > _TELL_SECONDS:
            self._told = now
            self._parent.send(("progress", chain, number, done))

    def _passed(self, point: str) -> None:
        self._parent.send(("passed", point))
        while (message := self._parent.recv())[0] != "go":
            self._waiting.append(message)
        if message[1] is not None:
            raise message[1]

    def _next(self) -> tuple[Any, ...]:
        message: tuple[Any, ...] = self._waiting.popleft() if self._waiting else self._parent.recv()
        return message


def _sendable(error: Exception) -> JobsError:
    shown = presentable(error)
    try:
        pickle.loads(pickle.dumps(shown))  # noqa: S301 - made a moment ago, right here
    except Exception:  # noqa: BLE001 - whatever an error carries, its text arrives
        return UnexpectedError(f"{type(shown).__name__}: {shown.detail}")
    return shown


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), Path(sys.argv[2]))
    except (EOFError, ConnectionError):
        # between two messages the parent went away
        sys.exit(0)
