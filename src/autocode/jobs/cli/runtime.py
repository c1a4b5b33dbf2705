"""Opening the home for a command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from autocode.jobs import crash
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.settings import Home

__all__ = ["opened"]


@contextmanager
def opened() -> Iterator[System]:
    """Open the home that the environment names, and arm the crash point that it names, if any.

    Raises:
        HomeUnusable: the home can't be written, or a newer version wrote it.
        DiskFull: there is no room.
        UsageError: ``AUTOCODE_CRASH`` names no crash point; nothing was written.
    """
    home = Home.from_environment()
    crash.arm(os.environ.get("AUTOCODE_CRASH"), tokens=home.run / "crash")
    with open_system(home) as system:
        yield system
