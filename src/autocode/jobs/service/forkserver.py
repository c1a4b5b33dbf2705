"""Starting parts by forking a process that has imported everything (:mod:`autocode.jobs.cli.forkserver`)."""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from autocode.jobs.engine.worker.messages import Frame, Op, receive, send
from autocode.jobs.service.custody import Custody
from autocode.jobs.service.forked import Forked
from autocode.jobs.service.running import Running

__all__ = ["ForkServer"]

_FORK_SECONDS: Final = 5.0
"""How long a fork may take before the process counts as hung, and is killed."""

_IMPORT_SECONDS: Final = 60.0

_TRIES: Final = 2
"""So many processes that don't get ready, and parts are started without one."""

_log = logging.getLogger(__name__)


class ForkServer:
    """One process that forks parts, started anew when it dies. A part does not outlive it.

    Only one thread may use it.

    Needs a system with process handles (Linux 5.3); elsewhere it is never usable.

    Args:
        environ: the environment of its process; each part has its own.
        custody: where its process is found when this one is gone.
    """

    def __init__(self, environ: Mapping[str, str], custody: Custody | None = None) -> None:
        self._environ = dict(environ)
        self._custody = custody
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._began = 0.0
        self._ready = False
        self._failures = 0
        self._numbers = 0
        self._parts: dict[int, Forked] = {}
        self._usable = hasattr(os, "pidfd_open")

    def start(self) -> None:
        """Start its process if there is none, without waiting for it."""
        if self._control is not None or not self._usable:
            return
        ours, its = socket.socketpair()
        with ExitStack() as stack:
            kept = [stack.enter_context(its).fileno()]
            if self._custody is not None:
                kept.append(stack.enter_context(self._custody.lock("forkserver")))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "autocode.jobs.cli.forkserver", *map(str, kept)],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                pass_fds=kept,
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
        part = self._parts[self._numbers] = Forked(self._numbers, self.look, self._give_up)
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
                # a part that has read it all may have hung up, and then even nothing can't be sent
                if rest := described[sent:]:
                    ours.sendall(rest)
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

    def _give_up(self) -> None:
        """Take the process for hung."""
        _log.warning("the process that parts are forked from doesn't tell how they end, and is replaced")
        self._hang_up()

    def close(self) -> None:
        """End its process; parts are to have ended before."""
        self._usable = False
        self._hang_up()

    def _wait_for(self, part: Forked) -> None:
        deadline = time.monotonic() + _FORK_SECONDS
        while not part.is_known:
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
            part.started(frame.pid)
        elif frame.op is Op.EXITED:
            del self._parts[frame.number]
            part.told(frame.value)

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
        parts, self._parts = self._parts, {}
        for part in parts.values():
            part.orphaned()
