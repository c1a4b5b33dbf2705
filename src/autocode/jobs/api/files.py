"""Work on files from asynchronous routes: threads of its own, so that it holds no thread of the ledger.

The threads are daemons, as those of :mod:`~autocode.jobs.api.threads` are: a disk that doesn't answer must
not hold up the process's end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar, cast

__all__ = ["FileThreads", "Pieces"]

P = ParamSpec("P")
R = TypeVar("R")

_END: Final = object()


class FileThreads:
    """A bounded set of threads, begun when they are needed; calls beyond their number wait for their turn.

    Args:
        size: how many calls run at once.
        name: what the threads are called.
    """

    def __init__(self, size: int, name: str = "file work") -> None:
        self._size = size
        self._name = name
        self._begun = 0
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    async def __call__(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a blocking *function* in a thread. A caller that is cancelled leaves the call to its end."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[R] = loop.create_future()

        def settle(finish: Callable[[], None]) -> None:
            if not done.cancelled():
                finish()

        def work() -> None:
            try:
                result = function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - carried over to whoever waits
                finish = _raiser(done, error)
            else:
                finish = _giver(done, result)
            with suppress(RuntimeError):  # the loop is closed: the process is ending, and nobody waits
                loop.call_soon_threadsafe(settle, finish)

        self._put(work)
        return await done

    def later(self, function: Callable[[], object]) -> None:
        """Call *function* in a thread when one is free; nobody waits, and what it raises is nobody's."""

        def work() -> None:
            with suppress(Exception):
                function()

        self._put(work)

    def close(self) -> None:
        """Let the threads end once they are free; waits for none."""
        for _ in range(self._begun):
            self._work.put(None)

    def _put(self, work: Callable[[], None]) -> None:
        self._work.put(work)
        if self._begun < self._size:
            self._begun += 1
            name = f"{self._name} {self._begun}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()


class Pieces:
    """Blocks of bytes that are read in threads, one ahead of the network at most.

    Args:
        threads: where they are read.
        blocks: gives them; a generator, which is closed when the last one was taken or the reader goes.
    """

    def __init__(self, threads: FileThreads, blocks: Iterator[bytes]) -> None:
        self._threads = threads
        self._blocks = blocks
        self._lock = threading.Lock()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the blocks."""
        try:
            while (block := await self._threads(self._next)) is not _END:
                yield cast("bytes", block)
        finally:
            # not here: a read that was begun for somebody who has gone may still be under way
            self._threads.later(self._close)

    def _next(self) -> object:
        with self._lock:
            return next(self._blocks, _END)

    def _close(self) -> None:
        with self._lock:
            close = getattr(self._blocks, "close", None)
            if close is not None:
                close()


def _raiser(done: asyncio.Future[Any], error: BaseException) -> Callable[[], None]:
    return lambda: done.set_exception(error)


def _giver(done: asyncio.Future[R], result: R) -> Callable[[], None]:
    return lambda: done.set_result(result)
