"""Sockets that cost little, and that can be got rid of when the other end says nothing any more."""

from __future__ import annotations

import socket
from asyncio import Transport
from asyncio.transports import BaseTransport
from contextlib import suppress
from typing import Final, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

__all__ = ["SocketProtocol"]

_WAITING_BYTES: Final = 1 << 14
_KERNEL_BYTES: Final = 1 << 15
"""How much may be on its way to one reader, here and in the kernel, before sending to it waits. By itself a
kernel takes megabytes for each that doesn't read."""

_CUT_SECONDS: Final = 5.0
"""How long one that answers no ping may take to read that it is closed."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """Uvicorn's WebSocket protocol, with bounds.

    Closing is polite by itself: what was sent goes out first, and that takes for ever where nobody reads.
    ``scope["state"]["cut"]`` ends the connection at once.
    """

    def connection_made(self, transport: BaseTransport) -> None:
        """Take over a connection whose handshake begins."""
        super().connection_made(transport)
        open_transport = cast("Transport", transport)
        open_transport.set_write_buffer_limits(high=_WAITING_BYTES)
        its_socket = transport.get_extra_info("socket")
        with suppress(OSError):
            its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BYTES)
        self.app_state = {**self.app_state, "cut": open_transport.abort}

    def keepalive_timeout(self) -> None:
        """Close what answers no ping."""
        super().keepalive_timeout()
        self.loop.call_later(_CUT_SECONDS, self.transport.abort)
