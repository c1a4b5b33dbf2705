"""Which Prefect server a process talks to: one by URL, or the home's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import httpx

from autocode.jobs.engine.server import Address, private_server
from autocode.jobs.errors import UsageError
from autocode.jobs.settings import Home
from autocode.jobs.urls import masked

__all__ = ["PASSWORD_HINT", "REFUSALS", "check_access", "prefect_address"]

REFUSALS: Final = frozenset({httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN})
"""What a Prefect server answers to those whom it doesn't let in."""

PASSWORD_HINT: Final = "Set PREFECT_API_AUTH_STRING to USER:PASSWORD of that server."  # noqa: S105 - no password

_ASK_SECONDS: Final = 5.0


@contextmanager
def prefect_address(home: Home, url: str | None = None, auth: str | None = None) -> Iterator[Address]:
    """Give the address of the Prefect server at *url*, or else of the home's own, started if nobody has.

    A server by URL is not asked anything: whoever uses it goes on without it until it answers.

    Args:
        home: whose server, where no URL is given.
        url: the API's URL; ``/api`` is added where it has no path.
        auth: ``user:password`` of that server, where it asks for one.

    Raises:
        UsageError: *url* is no URL of a server.
        ServerUnavailable: the home's own server did not start.
    """
    if url is None:
        with private_server(home) as address:
            yield address
        return
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(
            f"{url!r} is no address of a Prefect server.",
            hint="Give the URL of its API, for instance http://127.0.0.1:4200/api.",
        )
    path = parts.path.rstrip("/") or "/api"
    yield Address(f"{parts.scheme}://{parts.netloc}{path}", auth or "", pid=0)


def check_access(address: Address) -> None:
    """Ask the server at *address* whether it lets us in. One that is away or in trouble refuses nobody.

    Raises:
        UsageError: it asks for a password, and it isn't the one that is set.
    """
    user, _, password = address.auth.partition(":")
    try:
        # its /health is open to everybody
        answer = httpx.get(
            f"{address.url}/admin/version",
            auth=(user, password) if address.auth else None,
            timeout=_ASK_SECONDS,
        )
    except httpx.HTTPError:
        return
    if answer.status_code in REFUSALS:
        what = "refuses the password that is set" if address.auth else "asks for a password, and none is set"
        raise UsageError(
            f"The Prefect server at {masked(address.url)} {what} (status {answer.status_code}).",
            hint=PASSWORD_HINT,
        )
