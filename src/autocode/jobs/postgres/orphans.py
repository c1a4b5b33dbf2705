"""Folders of PostgreSQL data that belong to no home any more: those of root's homes lie apart from these."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.postgres.place import base_folder, folder_of
from autocode.jobs.settings import Home

__all__ = ["Orphan", "orphans"]


@dataclass(frozen=True, slots=True)
class Orphan:
    """A folder with the data of a home that isn't where it was, or has other data now.

    Args:
        folder: the data and programs.
        home: where the home was when the folder was made.
    """

    folder: Path
    home: Path


def orphans(known: Home) -> Iterator[Orphan]:
    """Find the folders that no home uses. Changes nothing.

    What can't be looked at is left out, and so is what a living PostgreSQL uses: a home that was moved has
    its data where they were.

    Args:
        known: a home that may have been moved since its folder was made.
    """
    try:
        folders = sorted(base_folder().glob("autocode-*"))
    except OSError:
        return
    for folder in folders:
        try:
            home = Path((folder / "home").read_text("utf-8", "surrogateescape").removesuffix("\n"))
            used = _in_use(folder) or any(_has(each, folder) for each in (known, Home(home)))
        except (OSError, LedgerUnavailable):
            continue
        if not used:
            yield Orphan(folder, home)


def _has(home: Home, folder: Path) -> bool:
    return folder_of(home) == folder


def _in_use(folder: Path) -> bool:
    """Say whether a keeper holds the lock of the data."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
