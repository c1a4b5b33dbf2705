"""Opening the data folder for a command, with the settings that lie in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autocode.jobs import configuration, crash
from autocode.jobs.cli.screen import bytes_text
from autocode.jobs.configuration import FILE_NAME, load
from autocode.jobs.engine.databases import VARIABLE, chosen
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.errors import DiskFull, LedgerUnavailable, ServerUnavailable
from autocode.jobs.settings import ENOUGH_BYTES, Home

__all__ = ["configured", "opened"]


def configured() -> Home:
    """Return the data folder, once what its ``config.toml`` sets is in force for this process. Idempotent.

    Raises:
        UsageError: a setting is wrong; the detail names its place.
    """
    home = Home.from_environment()
    if (home.path / FILE_NAME).exists():
        os.environ.update(load(home).environ())
    return home


@contextmanager
def opened() -> Iterator[System]:
    """Open the home that the environment names, and arm the crash point that it names, if any.

    Raises:
        HomeUnusable: the home can't be written, or a newer version wrote it.
        DiskFull: there is no room.
        UsageError: ``AUTOCODE_CRASH`` names no crash point, a setting is wrong, or ``AUTOCODE_DATABASE_URL``
            doesn't name the database that the home's service has, or had; nothing was written.
    """
    home = Home.from_environment()
    # what the file says counts for everything that asks the environment alone
    os.environ.update(configuration.load(home).environ())
    crash.arm(os.environ.get("AUTOCODE_CRASH"), tokens=home.run / "crash")
    choice = chosen(home)
    if choice.kind == "url":
        # processes of this command go on with it, also when the service that named it has stopped meanwhile
        os.environ[VARIABLE] = choice.url
    with _full_disk_told(home.path), open_system(home) as system:
        yield system


@contextmanager
def _full_disk_told(home: Path) -> Iterator[None]:
    """Say that the disk is full where a database only says that it can't go on."""
    try:
        yield
    except (LedgerUnavailable, ServerUnavailable) as error:
        try:
            free = shutil.disk_usage(home).free
        except OSError:
            raise error from None
        if free >= ENOUGH_BYTES:
            raise
        raise DiskFull(f"{home} has {bytes_text(free)} of room left. {error.detail}") from error
