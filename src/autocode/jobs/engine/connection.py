"""Which Prefect server a process talks to: one by URL, or the home's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from autocode.jobs.engine.server import Address, private_server
from autocode.jobs.errors import UsageError
from autocode.jobs.settings import Home

__all__ = ["prefect_address"]


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
