"""Starting parts by forking a process that has imported everything (:mod:`autocode.jobs.cli.forkserver`)."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autocode.jobs.engine.worker.messages import Frame, Op, receive, send
from autocode.jobs.service.running import Running

__all__ = ["ForkServer"]

_FORK_SECONDS: Final = 5.0
"""How long a fork may take before the process counts as hung, and is killed."""

_IMPORT_SECONDS: Final = 60.0

_REPORT_SECONDS: Final = 5.0
"""How long the end of a part may go untold before the process counts as hung: it may have been stopped."""

_TRIES: Final = 2
"""So many processes that don't get ready, and parts are started without one."""

_log = logging.getLogger(__name__)


class ForkServer:
    """One process that forks parts, started anew when it dies. A part does not outlive it.

    Only one thread may use it.

    Args:
        environ: the environment of its process; each part has its own.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._began = 0.0
        self._ready = False
        self._failures = 0
        self._numbers = 0
        self._parts: dict[int, _Forked] = {}
        # a process that forks on behalf of others needs a system that tells who holds a lock
        self._usable = sys.platform == "linux"

    def start(self) -> None:
        """Start its process if there is none, without waiting for it."""
        if self._control is not None or not self._usable:
            return
        ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "autocode.jobs.cli.forkserver", str(its.fileno())],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )
        ours.setblocking(False)
        self._control, self._ready, self._began = ours, False, time.monotonic()

    @property
    def pid(self) -> int | None:
        """Its process id, while there is one."""
        return None if self._process is None else self._process.pid

    @property
    def usable(self) -> bool:
        """Whether parts can be forked, now or in a moment."""
        return self._usable

    def ready(self) -> bool:
        """Say whether a part can be forked now."""
        self.look()
        self.start()
        if not self._ready and time.monotonic() - self._began > _IMPORT_SECONDS:
            self._hang_up()
        return self._ready

    def spawn(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        files: Sequence[int],
        *,
        directory: Path | None = None,
    ) -> Running | None:
        """Fork a part; ``None``: it can't be forked now.

        Args:
            argv: the arguments of ``autocode-jobs``.
            environ: its environment.
            files: its stdin, stdout and stderr, and what it keeps open besides.
            directory: where it works, if not where this process was started.
        """
        if not self.ready():
            return None
        assert self._control is not None
        ours, its = socket.socketpair()
        self._numbers += 1
        part = self._parts[self._numbers] = _Forked(self, self._numbers)
        about = {
            "argv": list(argv),
            "environ": dict(environ),
            "directory": None if directory is None else str(directory),
        }
        described = json.dumps(about).encode() + b"\n"
        try:
            with ours:
                with its:
                    send(self._control, Frame(Op.SPAWN, part.number), [its.fileno()])
                self._wait_for(part)
                sent = socket.send_fds(ours, [described], list(files))
                ours.sendall(described[sent:])
        except OSError as error:
            _log.warning("a part can't be forked: %s", error)
            self._hang_up()
            return None
        return part

    def look(self) -> None:
        """Hear what its process has to tell."""
        while self._control is not None:
            try:
                received = receive(self._control)
            except BlockingIOError:
                return
            if received is None:
                self._hang_up()
                return
            self._hear(received[0])

    def signal(self, number: int, wanted: int, *, alone: bool) -> None:
        """Let a part's parent send it, or its group, a signal: no other process can have got the id."""
        if self._control is not None and number in self._parts:
            with contextlib.suppress(OSError):
                send(self._control, Frame(Op.SIGNAL_ALONE if alone else Op.SIGNAL, number, value=wanted))

    def give_up(self) -> None:
        """Take its process for hung: kill it, and all that it forked."""
        _log.warning("the process that parts are forked from doesn't tell how they end, and is replaced")
        self._hang_up()

    def close(self) -> None:
        """End its process; parts are to have ended before."""
        self._usable = False
        self._hang_up()

    def _wait_for(self, part: _Forked) -> None:
        deadline = time.monotonic() + _FORK_SECONDS
        while part.pid == 0 and part.status is None:
            left = deadline - time.monotonic()
            if left <= 0 or self._control is None:
                raise OSError("no answer")
            select.select([self._control], [], [], left)
            self.look()

    def _hear(self, frame: Frame) -> None:
        if frame.op is Op.READY:
            self._ready, self._failures = True, 0
            return
        part = self._parts.get(frame.number)
        if part is None:
            return
        if frame.op is Op.STARTED:
            part.pid = frame.pid
        elif frame.op is Op.EXITED:
            part.status = frame.value
            del self._parts[frame.number]

    def _hang_up(self) -> None:
        """Let go of a process that died or hangs, and end what it forked: nobody would tell how that ends."""
        control, self._control = self._control, None
        process, self._process = self._process, None
        if control is None or process is None:
            return
        if not self._ready:
            self._failures += 1
        self._ready = False
        if self._failures >= _TRIES:
            _log.warning("parts are started without a common process: it did not get ready")
            self._usable = False
        process.kill()
        control.close()
        process.wait()
        for part in self._parts.values():
            part.orphaned()
        self._parts.clear()


@dataclass(eq=False, slots=True)
class _Forked:
    """A part's process, which is the child of another."""

    server: ForkServer
    number: int
    pid: int = 0
    status: int | None = None
    dead_since: float | None = None

    def ended(self) -> int | None:
        self.server.look()
        if self.status is None and not _lives(self.pid):
            now = time.monotonic()
            self.dead_since = self.dead_since or now
            if now - self.dead_since > _REPORT_SECONDS:
                self.server.give_up()
        return self.status

    def terminate(self) -> None:
        self.server.signal(self.number, signal.SIGTERM, alone=True)

    def kill(self) -> None:
        self.server.signal(self.number, signal.SIGKILL, alone=False)

    def orphaned(self) -> None:
        """End the process, whose parent is gone; a moment ago it lived."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.status = -signal.SIGKILL


def _lives(pid: int) -> bool:
    """Say whether a process lives; one that only waits for its parent to reap it doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
