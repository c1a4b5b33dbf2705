"""What an API process can be told; every value has a default that is safe on one machine."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

__all__ = ["Settings", "is_loopback"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one API process.

    Args:
        hosts: names beside the loopback ones by which clients may call the service, without a port.
        body_limit: bytes that the body of a request may have.
        ledger_seconds: how long a request waits for the database before it is answered with 503.
        wait_limit: seconds that ``Prefer: wait`` may hold a request at most.
        waiters: how many requests may be held so at once; more are answered without waiting.
        prefect_ui: where the Prefect UI answers, for links to runs; ``None`` where there is none.
        prefect_api: where Prefect's API answers, for ``/readyz``; ``None`` where it isn't known.
        prefect_auth: what lets us in there, ``user:password``.
        mail: e-mail can be sent, so that people may subscribe to it.
        work_pool: the Prefect work pool whose workers run the jobs.
    """

    hosts: frozenset[str] = frozenset()
    body_limit: int = 1 << 20
    ledger_seconds: float = 4.0
    wait_limit: float = 30.0
    waiters: int = 200
    prefect_ui: str | None = None
    prefect_api: str | None = None
    prefect_auth: str | None = None
    mail: bool = False
    work_pool: str = "autocode"

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
