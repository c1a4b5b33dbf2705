"""One HTTP request to an address that was chosen beforehand, within a time that nothing can stretch."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpcore

__all__ = ["CONNECT_SECONDS", "TOTAL_SECONDS", "Answer", "post"]

CONNECT_SECONDS: Final = 5.0
TOTAL_SECONDS: Final = 15.0
_MOST_BYTES: Final = 65_536
"""How much of an answer is read; nobody looks at it, but a connection that is cut looks like a failure."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver answered."""

    status: int
    retry_after: str | None


def post(
    url: str,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    *,
    addresses: Sequence[str],
    tls: Callable[[], ssl.SSLContext],
    total: float = TOTAL_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
) -> Answer:
    """Send a POST request, and return the answer. Nothing is followed, and no proxy is asked.

    Args:
        url: where to; its host is in the ``Host`` header, and is what a certificate must be for.
        headers: the headers.
        body: the body.
        addresses: where that host is: the first that takes a connection gets the request.
        tls: gives the context for https.
        total: seconds for all of it, however slowly the receiver reads, or answers byte by byte.
        monotonic: a clock to measure with.

    Raises:
        httpcore.NetworkError, httpcore.ProtocolError: there is no connection, or no HTTP at its other end.
        httpcore.TimeoutException: the time is over.
    """
    network = _Network(addresses, monotonic() + total, monotonic)
    secure = httpcore.URL(url).scheme == b"https"
    with (
        httpcore.ConnectionPool(
            ssl_context=tls() if secure else None, network_backend=network, retries=0
        ) as pool,
        pool.stream(
            "POST",
            url,
            headers=list(headers),
            content=body,
            extensions={"timeout": {"connect": CONNECT_SECONDS, "read": total, "write": total}},
        ) as response,
    ):
        read = 0
        for chunk in response.iter_stream():
            read += len(chunk)
            if read >= _MOST_BYTES:
                break
        given = {name.lower(): value for name, value in response.headers}
        after = given.get(b"retry-after")
        return Answer(response.status, None if after is None else after.decode("latin-1").strip())


class _Network(httpcore.NetworkBackend):
    """Connects to the given addresses, whatever host is asked for."""

    def __init__(self, addresses: Sequence[str], until: float, monotonic: Callable[[], float]) -> None:
        self._addresses = addresses
        self._until = until
        self._monotonic = monotonic
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - it was resolved and judged before
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address that answers."""
        trouble: Exception = httpcore.ConnectError("no address")
        for address in self._addresses:
            left = min(timeout or CONNECT_SECONDS, self._until - self._monotonic())
            if left <= 0:
                break
            try:
                stream = self._sockets.connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                trouble = error
            else:
                return _Stream(stream, self._until, self._monotonic)
        raise trouble


class _Stream(httpcore.NetworkStream):
    """A connection whose every wait ends when the whole time is over."""

    def __init__(self, stream: httpcore.NetworkStream, until: float, monotonic: Callable[[], float]) -> None:
        self._stream = stream
        self._until = until
        self._monotonic = monotonic

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read some bytes."""
        return self._stream.read(max_bytes, self._left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all bytes."""
        self._stream.write(buffer, self._left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Agree on TLS with whoever can prove to be *server_hostname*."""
        left = self._left(timeout, httpcore.ConnectTimeout)
        return _Stream(
            self._stream.start_tls(ssl_context, server_hostname, left), self._until, self._monotonic
        )

    def get_extra_info(self, info: str) -> Any:
        """Return what the connection knows of itself."""
        return self._stream.get_extra_info(info)

    def _left(self, timeout: float | None, over: type[httpcore.TimeoutException]) -> float:
        left = self._until - self._monotonic()
        if left <= 0:
            raise over("the time for the whole request is over")
        return left if timeout is None else min(timeout, left)
