"""What runs behind a lesson, and how it ends: a folder, a Prefect server, a process that starts commands."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from autocode.jobs import locks
from autocode.jobs.engine.server import Address, private_server
from autocode.jobs.testing._processes import Janitor
from autocode.jobs.testing.lessons.folders import Folders
from autocode.jobs.testing.lessons.runs import Launcher
from autocode.jobs.testing.lessons.witness_prefect import PrefectWitness

__all__ = ["Machinery"]

_END_SECONDS: Final = 15.0
"""How long the server may take to end after it was asked to; it takes less than one."""


class Machinery:
    """Starts everything at once and returns without waiting: what is slow is ready when it is needed.

    It all ends with :meth:`close`, or with this process, however that ends: the server when the lock of its
    last client is dropped, the launcher when its stdin ends, the folder by the hand of a janitor.

    Args:
        name: part of the temporary folder's name.
        sessions: how many sample sessions to write.
    """

    def __init__(self, name: str, *, sessions: int) -> None:
        # resolved: what commands print and what we search for in it must be the same path
        root = Path(tempfile.mkdtemp(prefix=f"autocode-lesson-{name}-")).resolve()
        self._janitor = Janitor(root)
        self._stack = ExitStack()
        self._closed = False
        self.folders = Folders(root, sessions=sessions)
        self.launcher = Launcher(self.folders.server.path, self.folders.server.logs / "launcher.log")
        self._server: Future[Address] = Future()
        threading.Thread(target=self._start_server, name="lesson's server", daemon=True).start()
        self._prefect: PrefectWitness | None = None

    @property
    def address(self) -> Address:
        """Where the Prefect server is; waits until it answers.

        Raises:
            ServerUnavailable: it didn't start.
        """
        return self._server.result()

    @property
    def prefect(self) -> PrefectWitness:
        """Prefect's API."""
        if self._prefect is None:
            self._prefect = PrefectWitness(self.address)
        return self._prefect

    def close(self) -> list[str]:
        """End everything and remove the folder; return what is left, which is nothing. Idempotent."""
        if not self._closed:
            self._closed = True
            self.launcher.close()
            if self._prefect is not None:
                self._prefect.close()
            self._end_server()
            self._janitor.close()
        return _processes(self.folders.root) + [str(path) for path in [self.folders.root] if path.exists()]

    def _start_server(self) -> None:
        try:
            address = self._stack.enter_context(private_server(self.folders.server))
        except BaseException as error:  # noqa: BLE001 - told to whoever asks for the address
            self._server.set_exception(error)
        else:
            self._janitor.guard(address.pid)
            self._server.set_result(address)

    def _end_server(self) -> None:
        lock = self.folders.server.run / "server.lock"
        # one that is still starting isn't waited for: it holds its lock long before it answers
        while not self._server.done():
            starting = locks.owner(lock)
            if starting is not None:
                with suppress(ProcessLookupError):
                    os.kill(starting, signal.SIGKILL)
            threading.Event().wait(0.02)
        if self._server.exception() is not None:
            return
        pid = self._server.result().pid
        self._janitor.guard(None)
        self._stack.close()
        # it would end by itself after a while, which a reader needn't wait for
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while locks.is_held(lock) and time.monotonic() < deadline:
            threading.Event().wait(0.02)


def _processes(folder: Path) -> list[str]:
    """Return the command lines of living processes that name *folder*; none where there is no ``/proc``."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().decode("utf-8", "replace").split("\0")
            if any(word == str(folder) or word.startswith(f"{folder}{os.sep}") for word in words):
                found.append(" ".join(words).strip())
    return sorted(found)
