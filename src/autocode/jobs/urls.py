"""Addresses in settings: checked, brought into one form, and shown without their passwords."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

__all__ = [
    "Network",
    "hosts_and_networks",
    "http_url",
    "listening_host",
    "mail_address",
    "masked",
    "plain_url",
    "prefect_url",
    "public_origin",
    "sqlalchemy_url",
]

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_DRIVER: Final = "postgresql+psycopg"
_SCHEMES: Final = frozenset({"postgres", "postgresql", _DRIVER})
_LONGEST_ADDRESS: Final = 254
_ADDRESS: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63})*"
)
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.(?!-)[A-Za-z0-9-]{1,63})*")


def sqlalchemy_url(text: str) -> str:
    """Return the PostgreSQL URL *text* with the driver that this program uses.

    Raises:
        ValueError: it is the URL of something else, or of nothing.
    """
    scheme, separator, rest = text.partition("://")
    if scheme not in _SCHEMES or not separator or not _split(text).path.strip("/"):
        raise ValueError("no URL of a PostgreSQL database")
    return f"{_DRIVER}://{rest}"


def plain_url(url: str) -> str:
    """Return a database's URL as people write it: without the driver that :func:`sqlalchemy_url` puts in."""
    return url.replace(_DRIVER, "postgresql", 1)


def http_url(text: str) -> str:
    """Return the HTTP URL *text* without a slash at its end.

    Raises:
        ValueError: it is none.
    """
    parts = _split(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("no HTTP URL")
    return text.rstrip("/")


def prefect_url(text: str) -> str:
    """Return the URL *text* of a Prefect server's API, without a slash at its end.

    Raises:
        ValueError: it is none, or that of the server's pages, which don't end with ``/api``.
    """
    url = http_url(text)
    if not _split(url).path.endswith("/api"):
        raise ValueError("no URL of a Prefect API")
    return url


def public_origin(text: str) -> str:
    """Return the origin *text* of a service behind a proxy in the form in which browsers write it.

    Raises:
        ValueError: it is none, isn't https, or has more than a name and a port.
    """
    parts = _split(text.rstrip("/"))
    name = parts.hostname or ""
    if parts.scheme != "https" or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("no origin of pages with TLS")
    listening_host(name)
    shown = f"[{name}]" if ":" in name else name
    return f"https://{shown}" + (f":{parts.port}" if parts.port not in {None, 443} else "")


def listening_host(text: str) -> str:
    """Return *text* if it is an IP address or could be a host's name.

    Raises:
        ValueError: it is neither.
    """
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # four numbers with dots are meant as an address, also when one of them is too large
        if not _HOST_NAME.fullmatch(text) or text.rpartition(".")[2].isdecimal():
            raise
    return text


def hosts_and_networks(text: str) -> tuple[frozenset[str], tuple[Network, ...]]:
    """Return the host names, in small letters, and the networks that *text* lists, separated by commas.

    Raises:
        ValueError: a part of it is neither.
    """
    hosts: set[str] = set()
    networks: list[Network] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError:
            hosts.add(listening_host(part).lower())
    return frozenset(hosts), tuple(networks)


def mail_address(text: str) -> str:
    """Return *text* if it is a mail address alone, without a name beside it.

    Raises:
        ValueError: it isn't, or has characters that not every mail server takes.
    """
    if len(text) > _LONGEST_ADDRESS or not _ADDRESS.fullmatch(text):
        raise ValueError("no mail address")
    return text


def masked(url: str) -> str:
    """Return *url* with ``***`` for its password and for the values of its query."""
    parts = _split(url)
    shown = parts
    if parts.password is not None:
        shown = shown._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}")
    if parts.query:
        shown = shown._replace(query=re.sub(r"=[^&]*", "=***", parts.query))
    return shown.geturl()


def _split(text: str) -> SplitResult:
    parts = urlsplit(text)
    # read for the errors they raise: a port that is no number, brackets that don't match
    _ = parts.port
    return parts
