"""The worker's side of the zygote and of every child."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

from autocode.jobs.engine.worker.launch import ZygoteProcess, launch
from autocode.jobs.engine.worker.messages import Frame, Op, Order, receive, send
from autocode.jobs.engine.worker.processes import become_subreaper, reap
from autocode.jobs.errors import ServerUnavailable

__all__ = ["Child", "Children", "ZygoteUnavailable"]

_START_SECONDS: Final = 60.0
"""How long importing everything may take; 2 s here, longer on a cold disk."""

_FORK_SECONDS: Final = 10.0
"""How long a fork may take before the zygote counts as hung, and is replaced."""

_REPORT_SECONDS: Final = 5.0
"""How long an exit status may be missing once the lifeline is closed, before the zygote counts as hung."""

_UNKNOWN: Final = 1
"""The exit status of a child whose parent died before it, where the system has no subreapers."""


class ZygoteUnavailable(ServerUnavailable):
    """The process that forks children can't be started, or does not answer."""

    type = "zygote-unavailable"
    title = "The worker can't start processes"
    default_hint = "Look at what the worker wrote; it tries again with the next run."


@dataclass(eq=False)
class Child:
    """One child. ``status`` is that of :func:`os.waitstatus_to_exitcode`, once ``ended`` is set.

    ``parent`` is the socket to the zygote that forked it; when that one died, it fell to the worker.
    """

    number: int
    order: Order
    lifeline: socket.socket
    parent: socket.socket
    pid: int = 0
    status: int | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    silenced: bool = False

    @property
    def flow_run_id(self) -> str:
        """The flow run that it executes."""
        return str(self.order.flow_run["id"])

    @property
    def returncode(self) -> int | None:
        """What Prefect is to be told; 0 for a child that somebody else's word has already ended."""
        return 0 if self.silenced and self.status is not None else self.status

    def say(self, word: bytes) -> None:
        """Tell the child to stop in one of the ways that :mod:`.messages` names. Never waits."""
        with suppress(OSError):
            self.lifeline.send(word)


class Children:
    """Starts children through a zygote, learns how they end, and starts the zygote anew when it dies.

    Use it as an asynchronous context manager. Only this process's event loop may call it.

    Args:
        environment: what the zygote and every child get.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._zygote: ZygoteProcess | None = None
        self._control: socket.socket | None = None
        self._ready = asyncio.Event()
        self._numbers = 0
        self._closed = False
        self._living: dict[int, Child] = {}

    @property
    def living(self) -> list[Child]:
        """Every child that has not ended."""
        return list(self._living.values())

    @property
    def zygote_pid(self) -> int | None:
        """The zygote's process id, while there is one."""
        return None if self._zygote is None else self._zygote.pid

    async def __aenter__(self) -> Self:
        become_subreaper()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        self.kill_all()
        self._hang_up()

    def begin(self) -> None:
        """Start a zygote if there is none, without waiting for it."""
        if self._control is None:
            self._start()

    async def ready(self) -> None:
        """Wait until children can be forked at once, starting a zygote if there is none.

        Raises:
            ZygoteUnavailable: it did not start.
        """
        self.begin()
        try:
            async with asyncio.timeout(_START_SECONDS):
                seen = None
                # another one may have been started meanwhile
                while seen is not self._ready:
                    seen = self._ready
                    await seen.wait()
        except TimeoutError:
            self._hang_up()
            raise ZygoteUnavailable(f"It was not ready within {_START_SECONDS:.0f} s.") from None
        if self._control is None:
            raise ZygoteUnavailable("It ended while it started.")

    async def start(self, order: Order) -> Child:
        """Fork a child that executes *order*; return it once it exists.

        Raises:
            ZygoteUnavailable: it can't be forked.
        """
        await self.ready()
        assert self._control is not None
        ours, its = socket.socketpair()
        self._numbers += 1
        child = Child(self._numbers, order, ours, self._control)
        self._living[child.number] = child
        try:
            with its:
                send(self._control, Frame(Op.SPAWN, child.number), [its.fileno()])
            async with asyncio.timeout(_FORK_SECONDS):
                await child.started.wait()
        except (OSError, TimeoutError) as error:
            self._forget(child, _UNKNOWN)
            self._hang_up()
            raise ZygoteUnavailable(f"It did not fork a child: {str(error) or 'no answer'}.") from error
        if child.pid == 0:
            raise ZygoteUnavailable("It died before it forked a child.")
        await self._hand_over(child, order)
        return child

    def kill(self, child: Child, number: int = signal.SIGKILL) -> None:
        """Send a signal to the child and its process group, unless it ended. Never waits."""
        if child.number not in self._living or child.pid == 0:
            return
        if child.parent is self._control:
            with suppress(OSError):
                # the child's parent sends it: no other process can have got the number by then
                send(self._control, Frame(Op.SIGNAL, child.number, value=number))
                return
        with suppress(ProcessLookupError):
            os.kill(child.pid, number)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)

    def kill_all(self) -> None:
        """Kill every child that has not ended."""
        for child in self.living:
            self.kill(child)

    async def _hand_over(self, child: Child, order: Order) -> None:
        loop = asyncio.get_running_loop()
        child.lifeline.setblocking(False)
        # a child that dies before it has read is told by its exit status
        with suppress(OSError):
            await loop.sock_sendall(child.lifeline, order.encode())
        if not child.ended.is_set():
            loop.add_reader(child.lifeline, self._hung_up, child)

    def _start(self) -> None:
        self._ready = asyncio.Event()
        self._zygote, self._control = launch(self._environment)
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control, self._listen, self._control)

    def _listen(self, control: socket.socket) -> None:
        while control is self._control:
            try:
                received = receive(control)
            except BlockingIOError:
                return
            if received is None:
                worked = self._ready.is_set()
                self._hang_up()
                # one that can't even start is tried again by the next run, which tells what happened
                if worked and not self._closed:
                    self.begin()
                return
            self._hear(received[0])

    def _hear(self, frame: Frame) -> None:
        if frame.op is Op.READY:
            self._ready.set()
        child = self._living.get(frame.number)
        if child is None:
            return
        if frame.op is Op.STARTED:
            child.pid = frame.pid
            child.started.set()
        elif frame.op is Op.EXITED:
            self._forget(child, frame.value)

    def _hang_up(self) -> None:
        """Let go of a zygote that died or hangs. Its children live on, with this process as their parent."""
        control, self._control = self._control, None
        zygote, self._zygote = self._zygote, None
        if control is None or zygote is None:
            return
        asyncio.get_running_loop().remove_reader(control)
        control.close()
        # killed too: a zygote whose worker hung up kills its children after a while
        zygote.kill()
        zygote.wait()
        self._ready.set()
        for child in self.living:
            if child.pid == 0:
                self._forget(child, _UNKNOWN)
        self.look()

    def _hung_up(self, child: Child) -> None:
        """A child's lifeline is closed: it is dead, and its parent will say how it died."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(child.lifeline)
        self._settle(child, loop.time() + _REPORT_SECONDS)

    def _settle(self, child: Child, until: float) -> None:
        self.look()
        if child.number not in self._living:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < until:
            loop.call_later(0.05, self._settle, child, until)
            return
        self._hang_up()
        if child.number in self._living:
            self._forget(child, _UNKNOWN)

    def look(self) -> None:
        """Reap children that fell to this process when their zygote died."""
        for child in self.living:
            with suppress(ChildProcessError):
                if child.pid and (status := reap(child.pid)) is not None:
                    self._forget(child, status)

    def _forget(self, child: Child, status: int) -> None:
        if self._living.pop(child.number, None) is None:
            return
        with suppress(ValueError, RuntimeError):
            asyncio.get_running_loop().remove_reader(child.lifeline)
        child.lifeline.close()
        child.status = status
        child.started.set()
        child.ended.set()
