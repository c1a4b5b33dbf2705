"""How often a caller may ask: token buckets on a monotonic clock, in memory of bounded size.

They protect the database and the log, of one process each: several processes on one database allow several
times as much. Nobody is asked for a forwarded address, since anybody can write one.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection

from autocode.jobs.api.settings import Settings
from autocode.jobs.canonical import digest_of
from autocode.jobs.ledger.access import Principal
from autocode.jobs.request_errors import TooManyRequests

__all__ = ["Buckets", "Limits", "address_of"]

_MOST: Final = 10_000
"""How many callers are remembered; the one that was quiet for longest is forgotten first."""

_KNOWN: Final = 1_000
"""How many tokens are remembered as good."""

_SAY_SECONDS: Final = 60.0
"""Of the refusals of one caller the audit has one in this time, with the number of the others."""


class Buckets:
    """A bucket for each key: it holds up to *burst* and fills with *rate* a second; each request takes one.

    Args:
        rate: requests a second in the long run; 0: no limit at all.
        burst: requests at once.
        monotonic: a clock in seconds.
        most: how many keys are remembered.
    """

    def __init__(
        self, rate: float, burst: int, monotonic: Callable[[], float] = time.monotonic, most: int = _MOST
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._monotonic = monotonic
        self._most = most
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, key: Hashable = None) -> float:
        """Take one; return 0, or the seconds until there is one again, and then nothing was taken."""
        wait = self.wait(key)
        if self._rate and not wait:
            self._levels[key] = (self._level(key) - 1.0, self._monotonic())
            self._levels.move_to_end(key)
            if len(self._levels) > self._most:
                self._levels.popitem(last=False)
        return wait

    def wait(self, key: Hashable = None) -> float:
        """Return the seconds until there is one to take; 0 where there is one now. Takes nothing."""
        if not self._rate:
            return 0.0
        level = self._level(key)
        # the sums of a clock's small steps are never quite whole
        return 0.0 if level > 1.0 - 1e-9 else (1.0 - level) / self._rate

    def _level(self, key: Hashable) -> float:
        level, at = self._levels.get(key, (float(self._burst), 0.0))
        return min(float(self._burst), level + (self._monotonic() - at) * self._rate)


@dataclass(slots=True)
class _Said:
    at: float
    since: int = 0


class Limits:
    """The limits of one application.

    Args:
        settings: how many changes a token may ask for.
        monotonic: a clock in seconds.
    """

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._changes = Buckets(settings.request_rate, settings.request_burst, monotonic)
        self._failures = Buckets(1.0, 60, monotonic)
        self._logins = Buckets(0.5, 20, monotonic)
        self._all_logins = Buckets(10.0, 100, monotonic)
        self._good: OrderedDict[str, None] = OrderedDict()
        self._said: OrderedDict[str, _Said] = OrderedDict()

    def change(self, caller: Principal) -> None:
        """Let *caller* ask for a change.

        Raises:
            TooManyRequests: it asked for too many.
        """
        _check(self._changes.take(caller.token_id), "This token asked for more changes than it may.")

    def attempt(self, address: str, token: str) -> None:
        """Let somebody at *address* try *token*.

        Raises:
            TooManyRequests: too many tokens from there were wrong, and this one wasn't good before.
        """
        # others behind the same address go on with the tokens that they have
        if digest_of(token.encode("utf-8", "surrogatepass")) not in self._good:
            _check(self._failures.wait(address), "Too many wrong tokens came from this address.")

    def tried(self, address: str, token: str, *, good: bool) -> None:
        """Remember how a try went; what was good is forgotten once it isn't any more."""
        digest = digest_of(token.encode("utf-8", "surrogatepass"))
        if good:
            self._good[digest] = None
            self._good.move_to_end(digest)
            if len(self._good) > _KNOWN:
                self._good.popitem(last=False)
        else:
            self._good.pop(digest, None)
            self._failures.take(address)

    def login(self, address: str) -> None:
        """Let somebody at *address* try a login code.

        Raises:
            TooManyRequests: there were too many tries from there, or in all.
        """
        _check(self._logins.take(address), "Too many logins were tried from this address.")
        _check(self._all_logins.take(), "Too many logins were tried.")

    def say(self, caller: Principal) -> int | None:
        """Return how many refusals of *caller* went unsaid, where one is to be said now; else ``None``."""
        now = self._monotonic()
        said = self._said.get(caller.token_id)
        if said is not None and now - said.at < _SAY_SECONDS:
            said.since += 1
            return None
        self._said[caller.token_id] = _Said(now)
        self._said.move_to_end(caller.token_id)
        if len(self._said) > _MOST:
            self._said.popitem(last=False)
        return 0 if said is None else said.since


def address_of(connection: HTTPConnection) -> str:
    """Return where a request comes from: the address of the connection, of IPv6 the network of a host."""
    host = connection.client.host if connection.client is not None else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host


def _check(wait: float, detail: str) -> None:
    if wait:
        raise TooManyRequests(detail, retry_after=math.ceil(wait))
