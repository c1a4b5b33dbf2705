"""Webhooks, signed as Standard Webhooks has it (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import ssl
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import httpcore
import httpx

from autocode.jobs._version import __version__
from autocode.jobs.ledger.deliveries import Message, Verdict
from autocode.jobs.notifications.address import AddressRefused, Allowed, Resolver, judged, resolve
from autocode.jobs.notifications.event import body_of
from autocode.jobs.notifications.pauses import pause_after, told_to_wait
from autocode.jobs.notifications.pinned import TOTAL_SECONDS, Answer, post

__all__ = ["Webhooks", "sign"]

_GONE: Final = 410
_PREFIX: Final = "whsec_"
_PORTS: Final = {"http": 80, "https": 443}


def sign(secret: str, delivery_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of ``webhook-signature``: HMAC-SHA256 over id, time and body, keyed by the secret."""
    key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    signed = hmac.new(key, f"{delivery_id}.{timestamp}.".encode("ascii") + body, hashlib.sha256)
    return "v1," + base64.b64encode(signed.digest()).decode("ascii")


class Webhooks:
    """Sends webhooks.

    Args:
        allowed: what may be sent to although it isn't public.
        resolver: finds the addresses of a host.
        total: seconds that one try may take in all.
        now: the time that a signature names, in seconds since 1970.
    """

    def __init__(
        self,
        allowed: Allowed,
        *,
        resolver: Resolver = resolve,
        total: float = TOTAL_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._allowed = allowed
        self._resolver = resolver
        self._total = total
        self._now = now

    def send(self, message: Message) -> Verdict:
        """Send *message* once, and say what came of it. Raises nothing that a receiver can cause."""
        try:
            return _judge(self._post(message), message)
        except AddressRefused as error:
            told = error.detail
        except httpcore.TimeoutException:
            told = "no answer in time"
        except (httpcore.NetworkError, OSError) as error:
            told = _why(error)
        except (httpcore.ProtocolError, httpcore.UnsupportedProtocol, ValueError):
            told = "the connection ended without an HTTP answer"
        return Verdict(done=False, error=told, retry_in=pause_after(message.tries))

    def _post(self, message: Message) -> Answer:
        assert message.secret is not None, "a webhook has a secret until it is removed"
        parts = urlsplit(message.target)
        assert parts.hostname is not None, "checked when it was subscribed"
        port = parts.port or _PORTS[parts.scheme]
        addresses = judged(parts.hostname, port, self._allowed, self._resolver)
        body, timestamp = body_of(message), int(self._now())
        headers = [
            ("Host", parts.netloc),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("User-Agent", f"autocode-jobs/{__version__}"),
            ("Connection", "close"),
            ("webhook-id", message.delivery_id),
            ("webhook-timestamp", str(timestamp)),
            ("webhook-signature", sign(message.secret, message.delivery_id, timestamp, body)),
        ]
        return post(message.target, headers, body, addresses=addresses, tls=_tls, total=self._total)


def _judge(answer: Answer, message: Message) -> Verdict:
    if 200 <= answer.status < 300:
        return Verdict(done=True)
    told = f"answered {answer.status}"
    if answer.status == _GONE:
        return Verdict(done=False, error=f"{told}: the receiver is gone", gone=True)
    if 300 <= answer.status < 400:
        told = f"{told}, and redirects aren't followed"
    return Verdict(
        done=False, error=told, retry_in=told_to_wait(answer.retry_after, pause_after(message.tries))
    )


def _why(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "the receiver's certificate isn't good for its name"
        if isinstance(cause, ssl.SSLError):
            return "no agreement on TLS"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        cause = cause.__cause__ or cause.__context__
    return "there was no connection, or it broke"


@functools.cache
def _tls() -> ssl.SSLContext:
    # reading the certificates takes 25-50 ms
    return httpx.create_ssl_context()
