"""``autocode-jobs login``: a way into the running service for a browser."""

from __future__ import annotations

import os

from autocode.jobs import configuration
from autocode.jobs.cli.screen import Screen
from autocode.jobs.client.discovery import discover
from autocode.jobs.request_errors import ServiceUnavailable
from autocode.jobs.settings import Home

__all__ = ["login"]


def login(role: str) -> int:
    """Print a link that works once.

    Raises:
        ServiceUnavailable: no service runs on the home, or the one that the settings name doesn't answer.
    """
    home = Home.from_environment()
    settings = configuration.load(home)
    os.environ.update(settings.environ())
    service = discover(home)
    if service is None:
        raise ServiceUnavailable(f"No service runs on {home.path}.", hint="Start it: autocode-jobs up")
    with service:
        link = service.login_link(role)
        if public := settings.values.behind_proxy:
            link = link.replace(service.url, public, 1)
        Screen().say(link)
    return 0
