"""Where webhooks may go: the form of a URL, and the addresses that its host's name may mean.

Whoever subscribes chooses where this machine sends requests to, and must not reach by that what only this
machine or its network can. So a name is resolved once for each try, all of its addresses are judged, and the
connection goes to one of those that were judged: a name that changes its mind in between changes nothing.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from autocode.jobs.errors import Transient, UsageError
from autocode.jobs.urls import hosts_and_networks

__all__ = ["AddressRefused", "Allowed", "Resolver", "check_url", "judged", "resolve"]

Resolver: TypeAlias = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host for a port."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_LONGEST: Final = 2_000
_PLAIN: Final = re.compile(r"[!-~]+")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]+\]")
_RESOLVE_SECONDS: Final = 5.0


class AddressRefused(Transient):
    """The receiver's name leads to an address that nothing is sent to, or to none."""

    type = "address-refused"
    title = "Nothing is sent to that address"
    default_hint = "Allow the host or its network in the setting notify_allow, if it is yours."


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be sent to although it isn't public.

    Args:
        hosts: names, in small letters.
        networks: networks and single addresses.
    """

    hosts: frozenset[str] = frozenset()
    networks: tuple[_Network, ...] = ()

    @classmethod
    def of(cls, text: str) -> Allowed:
        """Read a list of hosts and networks, separated by commas.

        Raises:
            ValueError: a part of it is neither.
        """
        return cls(*hosts_and_networks(text))

    def covers(self, address: _Address) -> bool:
        """Say whether the address is in one of the networks."""
        return any(address in network for network in self.networks)


def check_url(text: str) -> str:
    """Return *text* if a webhook may be sent there, as far as its form tells.

    Raises:
        UsageError: it isn't an http or https URL, has a user or a password in it, or no host.
    """
    hint = "Write it as https://HOST/PATH, without a user, a password and a fragment."
    if len(text) > _LONGEST or not _PLAIN.fullmatch(text):
        raise UsageError("The webhook's URL is too long, or has characters that no URL has.", hint=hint)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"The webhook's URL can't be read: {error}.", hint=hint) from None
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError("The webhook's URL doesn't begin with https:// or http:// and a host.", hint=hint)
    if "@" in parts.netloc or parts.fragment:
        raise UsageError("The webhook's URL has a user, a password or a fragment in it.", hint=hint)
    if not _HOST.fullmatch(f"[{host}]" if ":" in host else host):
        raise UsageError("The webhook's URL has no host that a name server knows.", hint=hint)
    return text


def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of *host*, as the machine's resolver has them; it is waited for 5 s.

    Raises:
        OSError: there are none.
        TimeoutError: the resolver doesn't answer.
    """
    found: list[str] = []
    trouble: list[OSError] = []

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            trouble.append(error)
        except UnicodeError as error:
            trouble.append(OSError(str(error)))
        else:
            found.extend(dict.fromkeys(str(answer[4][0]) for answer in answers))

    # the call itself takes no time limit
    thread = threading.Thread(target=ask, name="resolver", daemon=True)
    thread.start()
    thread.join(_RESOLVE_SECONDS)
    if thread.is_alive():
        raise TimeoutError
    if trouble:
        raise trouble[0]
    return found


def judged(host: str, port: int, allowed: Allowed, resolver: Resolver = resolve) -> Sequence[str]:
    """Resolve *host* once, and return the addresses that may be connected to.

    Raises:
        AddressRefused: there are none, or one of them isn't public and nobody allowed it. Which one it is
            isn't said: the answer would map a network for whoever asks.
    """
    try:
        found = resolver(host, port)
        addresses = [ipaddress.ip_address(text) for text in found]
    except TimeoutError:
        raise AddressRefused("the name server didn't answer in time") from None
    except (OSError, ValueError):
        raise AddressRefused("the host has no address") from None
    if not addresses:
        raise AddressRefused("the host has no address")
    if host.lower() not in allowed.hosts:
        for address in addresses:
            if not (_is_public(address) or allowed.covers(_plain(address))):
                raise AddressRefused("the host has an address that isn't public, and isn't allowed")
    return [str(address) for address in addresses]


def _plain(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address only wraps, else the address itself."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_public(address: _Address) -> bool:
    plain = _plain(address)
    if isinstance(plain, ipaddress.IPv6Address) and (plain.sixtofour or plain.teredo or plain.scope_id):
        # tunnels that end at an IPv4 address of the sender's choice
        return False
    # reserved: with the addresses that a translator turns into IPv4 ones
    return plain.is_global and not (plain.is_multicast or plain.is_reserved or plain.is_unspecified)
