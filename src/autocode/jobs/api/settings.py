"""What an API process can be told; every value has a default that is safe on one machine."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final

__all__ = ["REQUEST_BURST", "REQUEST_RATE", "EventLimits", "Settings", "is_loopback"]

REQUEST_RATE: Final = 50.0
"""Changes that one token may ask for in a second, in the long run."""

REQUEST_BURST: Final = 200
"""Changes that it may ask for at once."""


@dataclass(frozen=True, slots=True)
class EventLimits:
    """What following events may cost.

    Args:
        sockets: how many may follow at once; who comes beyond that is sent away with 1013.
        kept: how many of the newest events are kept for all of them. Who is further behind than that, and
            takes nothing, is closed with 1013.
        kept_bytes: how many bytes these may take together.
        stuck_seconds: who takes nothing for so long is closed with 1013, however few events there are.
        ping_seconds: how often each is told the cursor that it has reached.
        check_seconds: how soon a socket is closed whose token has ended.
    """

    sockets: int = 1_000
    kept: int = 2_000
    kept_bytes: int = 8 << 20
    stuck_seconds: float = 30.0
    ping_seconds: float = 15.0
    check_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one API process.

    Args:
        hosts: names beside the loopback ones by which clients may call the service, without a port.
        public: the origin that a proxy in front of the service has, ``https://jobs.example``.
        request_rate: changes that one token may ask for in a second, in the long run; 0: as many as it likes.
        request_burst: changes that it may ask for at once.
        body_limit: bytes that the body of a request may have.
        object_limit: bytes that one uploaded object may have.
        upload_seconds: how long an upload may stop before it is given up.
        uploads: how many objects may be uploaded at once; more are told to come again.
        view_seconds: how long a request waits for a view that is being made before it is told to come again.
        view_bytes: room that made views may take; those that were asked for last are kept.
        ledger_seconds: how long a request waits for the database before it is answered with 503.
        wait_limit: seconds that ``Prefer: wait`` may hold a request at most.
        waiters: how many requests may be held so at once; more are answered without waiting.
        prefect_ui: where the Prefect UI answers, for links to runs; ``None`` where there is none.
        prefect_api: where Prefect's API answers, for ``/readyz``; ``None`` where it isn't known.
        prefect_auth: what lets us in there, ``user:password``.
        mail: e-mail can be sent, so that people may subscribe to it.
        work_pool: the Prefect work pool whose workers run the jobs.
        events: the limits of those who follow events.
    """

    hosts: frozenset[str] = frozenset()
    public: str | None = None
    request_rate: float = REQUEST_RATE
    request_burst: int = REQUEST_BURST
    body_limit: int = 1 << 20
    object_limit: int = 2 << 30
    upload_seconds: float = 30.0
    uploads: int = 32
    view_seconds: float = 20.0
    view_bytes: int = 4 << 30
    ledger_seconds: float = 4.0
    wait_limit: float = 30.0
    waiters: int = 200
    prefect_ui: str | None = None
    prefect_api: str | None = None
    prefect_auth: str | None = None
    mail: bool = False
    work_pool: str = "autocode"
    events: EventLimits = field(default_factory=EventLimits)

    def __repr__(self) -> str:
        # the password mustn't reach a log
        return f"Settings(hosts={sorted(self.hosts)}, prefect_api={self.prefect_api!r})"


def is_loopback(host: str) -> bool:
    """Say whether *host* (a name or an address, without a port) can only mean this machine."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
