"""Blocking calls to the ledger from asynchronous routes: few threads, and nobody waits for long.

The threads are daemons of our own. A database that accepts a connection and then says nothing holds its
thread for as long as it likes; with an executor of the standard library it would hold up the process's end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, ParamSpec, TypeVar

from autocode.jobs.errors import LedgerUnavailable

__all__ = ["RequestCalls", "Threads"]

P = ParamSpec("P")
R = TypeVar("R")

_HINT: Final = (
    "Ask again in a moment, with the same job id or Idempotency-Key: what was accepted isn't accepted twice."
)


class Threads:
    """A bounded set of threads for calls that block.

    Args:
        size: how many calls run at once; no more than the database has connections.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._abandoned = 0
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"ledger call {number}", daemon=True)
            for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    async def call(self, deadline: float, work: Callable[[], R]) -> R:
        """Run *work* in a thread and return what it returns.

        A call that is given up goes on in its thread, and may still change what it was made to change.

        Args:
            deadline: the event loop's time at which the caller gives up.
            work: the call.

        Raises:
            LedgerUnavailable: it isn't done by the deadline, or calls that were given up hold every thread.
        """
        if self._abandoned >= self._size:
            raise LedgerUnavailable("The ledger's database doesn't answer.", hint=_HINT)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except TimeoutError:
            raise LedgerUnavailable(
                "The ledger is busy; no connection got free in time.", hint=_HINT
            ) from None
        done: asyncio.Future[R] = loop.create_future()
        done.add_done_callback(_consume)
        self._work.put(lambda: _run(loop, self._free, done, work))
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(done)
        except TimeoutError:
            if done.done():
                raise
            self._abandoned += 1
            done.add_done_callback(self._returned)
            raise LedgerUnavailable("The ledger's database did not answer in time.", hint=_HINT) from None

    def close(self) -> None:
        """Let the threads end once they are free; waits for none."""
        for _ in self._threads:
            self._work.put(None)

    def _returned(self, _done: asyncio.Future[R]) -> None:
        self._abandoned -= 1

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _consume(done: asyncio.Future[R]) -> None:
    # an error that nobody waits for any more was told as a time-out
    if not done.cancelled():
        done.exception()


def _run(
    loop: asyncio.AbstractEventLoop, free: asyncio.Semaphore, done: asyncio.Future[R], work: Callable[[], R]
) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - carried over to whoever waits
        _tell(loop, free, lambda caught=error: done.set_exception(caught))  # type: ignore[misc]
    else:
        _tell(loop, free, lambda: done.set_result(result))


def _tell(loop: asyncio.AbstractEventLoop, free: asyncio.Semaphore, finish: Callable[[], None]) -> None:
    def settle() -> None:
        free.release()
        finish()

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # the loop is closed: the process is ending, and nobody waits
        return


class RequestCalls:
    """The ledger calls of one request, which share one deadline.

    Args:
        threads: where they run.
        seconds: how long the request may wait for the database, in all.
    """

    def __init__(self, threads: Threads, seconds: float) -> None:
        self._threads = threads
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin the time anew: for a request that is held on purpose."""
        self._deadline = asyncio.get_running_loop().time() + self._seconds

    async def __call__(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a blocking *function* in a thread.

        Raises:
            LedgerUnavailable: the request's time is over.
        """
        return await self._threads.call(self._deadline, lambda: function(*args, **kwargs))
