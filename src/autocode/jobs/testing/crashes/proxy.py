"""A way to PostgreSQL that can be cut for some processes while it works for all others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import psutil

__all__ = ["Proxy"]

_LOOK_SECONDS: Final = 0.05
_CHUNK: Final = 1 << 16

_FAREWELL_SECONDS: Final = 1.0
"""How long the last words on a line may take."""


class Proxy:
    """Hands on bytes between local clients and one server, as a context manager with a thread.

    A line that is cut is a black hole, as in a network that lost its way: nothing is refused, nothing closed,
    and nothing arrives. What was on its way arrives once it is mended.

    Args:
        port: where the server listens on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self._server_port = port
        self._cut: Callable[[], Collection[int]] | None = None
        self._lines: set[int] = set()
        self._known: object = None
        self._dark: frozenset[int] = frozenset()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._ended is not None
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def cut(self, owners: Callable[[], Collection[int]]) -> None:
        """Let nothing through any more for the processes whose ids *owners* returns, also new ones."""
        self._cut = owners

    def mend(self) -> None:
        """Let everything through again. Idempotent."""
        self._cut = None

    async def _run(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        server.close()
        # what still hangs on a line ends with the loop
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        self._lines.add(port)
        try:
            with suppress(OSError):
                server = await asyncio.open_connection("127.0.0.1", self._server_port)
                try:
                    await _either(self._carry(reader, server[1], port), self._carry(server[0], writer, port))
                finally:
                    await _closed(server[1])
        finally:
            self._lines.discard(port)
            await _closed(writer)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, port: int) -> None:
        # each direction of each line waits by itself: one that is full must not hold up another
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                while self._is_cut(port):  # noqa: ASYNC110 - other processes' lines come and go untold
                    await asyncio.sleep(_LOOK_SECONDS)
                target.write(data)
                await target.drain()

    def _is_cut(self, port: int) -> bool:
        """Say whether a line is cut; whose each is is looked up where that may have changed."""
        owners = self._cut
        known = None if owners is None else (owners, frozenset(self._lines))
        if known != self._known:
            self._known = known
            self._dark = frozenset() if owners is None else _ports(owners(), self.port)
        return port in self._dark


async def _either(*ways: Coroutine[Any, Any, None]) -> None:
    """Go both ways until one has ended."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await writer.wait_closed()
    finally:
        # what nobody reads is for nobody any more; the socket is closed in the loop's next turn
        writer.transport.abort()
        await asyncio.sleep(0)


def _ports(owners: Collection[int], to: int) -> frozenset[int]:
    """Return the local ports of the connections that these processes have to port *to*."""
    found: set[int] = set()
    for pid in owners:
        with suppress(psutil.Error):
            found |= {
                connection.laddr.port
                for connection in psutil.Process(pid).net_connections("tcp4")
                if connection.raddr[1:] == (to,)
            }
    return frozenset(found)
