"""A way to PostgreSQL that can be cut for some processes while it works for all others."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import psutil

__all__ = ["Proxy"]

_LOOK_SECONDS: Final = 0.1
_CHUNK: Final = 1 << 16


@dataclass
class _Line:
    """One connection: the client's end, the server's end, and who made it."""

    client: socket.socket
    server: socket.socket
    port: int

    def close(self) -> None:
        self.client.close()
        self.server.close()


class Proxy:
    """Hands on bytes between local clients and one server, as a context manager with a thread.

    A line that is cut is a black hole, as in a network that lost its way: nothing is refused, nothing closed,
    and nothing arrives. What was on its way arrives once it is mended.

    Args:
        port: where the server listens on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._lines: list[_Line] = []
        self._known: object = None
        self._ports: frozenset[int] = frozenset()
        self._cut: Callable[[], Collection[int]] | None = None
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._listener.close()
        for line in self._lines:
            line.close()

    def cut(self, owners: Callable[[], Collection[int]]) -> None:
        """Let nothing through any more for the processes whose ids *owners* returns, also new ones."""
        with self._lock:
            self._cut = owners

    def mend(self) -> None:
        """Let everything through again. Idempotent."""
        with self._lock:
            self._cut = None

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        while not self._ending.is_set():
            dark = self._dark()
            self._listen_to(dark)
            for key, _ in self._selector.select(_LOOK_SECONDS):
                if key.data is None:
                    self._accept()
                    # whose it is isn't known yet, and nothing may pass before that
                    break
                if key.data.port not in dark:
                    self._carry(key.data, key.fileobj)

    def _dark(self) -> frozenset[int]:
        """Return the ports of the lines that are cut; whose each is is looked up where that may change."""
        with self._lock:
            owners = self._cut
        known = None if owners is None else (owners, tuple(line.port for line in self._lines))
        if known != self._known:
            self._known = known
            self._ports = frozenset() if owners is None else _ports(owners(), self.port)
        return self._ports

    def _listen_to(self, dark: frozenset[int]) -> None:
        """Read from the lines that aren't cut, and from no other."""
        known = {id(key.data) for key in self._selector.get_map().values() if key.data is not None}
        for line in self._lines:
            if line.port in dark and id(line) in known:
                self._selector.unregister(line.client)
                self._selector.unregister(line.server)
            elif line.port not in dark and id(line) not in known:
                self._selector.register(line.client, selectors.EVENT_READ, line)
                self._selector.register(line.server, selectors.EVENT_READ, line)

    def _accept(self) -> None:
        client, (_, port) = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        self._lines.append(_Line(client, server, port))

    def _carry(self, line: _Line, readable: object) -> None:
        source, target = (line.client, line.server) if readable is line.client else (line.server, line.client)
        with suppress(OSError):
            if data := source.recv(_CHUNK):
                target.sendall(data)
                return
        for end in (line.client, line.server):
            with suppress(KeyError, ValueError):
                self._selector.unregister(end)
        line.close()
        self._lines = [each for each in self._lines if each is not line]


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
