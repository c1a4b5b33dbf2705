"""``autocode-jobs login``: a way into the running service for a browser."""

from __future__ import annotations

from autocode.jobs import locks
from autocode.jobs.cli.screen import Screen
from autocode.jobs.engine.system import open_system
from autocode.jobs.errors import ServiceAbsent
from autocode.jobs.ledger import access
from autocode.jobs.service.assembly import announced
from autocode.jobs.settings import Home

__all__ = ["login", "login_url"]


def login() -> int:
    """Print a link that works once.

    Raises:
        ServiceAbsent: no API runs on the home.
    """
    home = Home.from_environment()
    pid = locks.owner(home.run / "api.lock")
    said = None if pid is None else announced(home, "api")(pid)
    if said is None or said.url is None:
        raise ServiceAbsent(f"No service answers on {home.path}.")
    with open_system(home) as system:
        code = access.create_login(system.db)
    Screen().say(login_url(said.url, code))
    return 0


def login_url(url: str, code: str) -> str:
    """Return the address that redeems *code* at the service at *url*."""
    return f"{url}/login?code={code}"
