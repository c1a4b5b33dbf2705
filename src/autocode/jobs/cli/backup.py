"""``autocode-jobs backup`` and ``restore``: a data folder in one file, and back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from autocode.jobs.cli.desk import actor, elsewhere
from autocode.jobs.cli.interrupts import deferred
from autocode.jobs.cli.progress import bytes_bar
from autocode.jobs.cli.runtime import opened
from autocode.jobs.cli.screen import Screen, bytes_text, local_time, plural
from autocode.jobs.engine import databases
from autocode.jobs.errors import BackupIncomplete, UsageError
from autocode.jobs.operations import backup as work
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore

__all__ = ["backup", "check", "restore"]

_SHOWN: Final = 20
"""How many missing objects are listed; JSON has all."""


def backup(target: Path, *, force: bool, allow_missing: bool, json: bool) -> int:
    """Write a backup of the data folder, and return the exit status."""
    screen = Screen(json_mode=json)
    home = Home.from_environment()
    if elsewhere():
        raise UsageError(
            "AUTOCODE_URL sends commands to a service, and a backup is made where its data folder is.",
            hint="Run this on that machine, or unset AUTOCODE_URL.",
        )
    if not home.exists():
        raise UsageError(f"There is no data folder at {home.path}.", hint="AUTOCODE_HOME names another one.")
    file = _file(target)
    work.check_place(file, force=force)
    with opened() as system, deferred() as stop, bytes_bar(screen, "backing up") as move:
        try:
            made = work.back_up(
                home,
                system.db,
                LocalStore(home.store),
                file,
                force=force,
                allow_missing=allow_missing,
                progress=_interruptible(stop, move),
            )
        except BackupIncomplete as error:
            _list_missing(screen, error.data["missing"])
            if json:
                screen.emit({"file": None, "missing": error.data["missing"]})
            raise
    screen.row("backup", str(made.file))
    _tell(screen, made.to_json(), size=made.size)
    screen.row("not in", f"{', '.join(work.LEFT_OUT)}", wrap=True)
    if json:
        screen.emit(made.to_json())
    return 0


def check(file: Path, *, json: bool) -> int:
    """Verify a backup, and return the exit status."""
    screen = Screen(json_mode=json)
    with deferred() as stop, bytes_bar(screen, "checking") as move:
        found = work.check(file, progress=_interruptible(stop, move))
    screen.row("backup", f"{file} is sound", style="green")
    _tell(screen, found.to_json())
    if json:
        screen.emit({"file": str(file), **found.to_json()})
    return 0


def restore(file: Path, *, json: bool) -> int:
    """Make the data folder of a backup, and return the exit status."""
    screen = Screen(json_mode=json)
    home = Home.from_environment()
    with deferred() as stop, bytes_bar(screen, "restoring") as move:
        done = work.restore(file, home, actor=actor(), progress=_interruptible(stop, move))
    screen.row("restored", str(home.path))
    _tell(screen, done.to_json())
    if os.environ.get(databases.VARIABLE):
        screen.note(
            f"{databases.VARIABLE} is set: commands look for the ledger there and not in what was restored."
        )
    if json:
        screen.emit({"home": str(home.path), **done.to_json(), "restored_epoch": done.epoch})
    return 0


def _file(target: Path) -> Path:
    if not target.is_dir():
        return target
    return target / f"autocode-backup-{datetime.now(UTC):%Y%m%d-%H%M%S}.tar"


def _interruptible(stop: Callable[[], None], move: Callable[[int, int], None]) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        stop()
        move(done, total)

    return progress


def _tell(screen: Screen, told: Mapping[str, Any], *, size: int | None = None) -> None:
    screen.row("as of", local_time(told["created_at"]))
    screen.row("ledger", f"{plural(told['rows'].get('jobs', 0), 'job')}, schema {told['schema']}")
    objects = f"{plural(told['objects'], 'object')}, {bytes_text(told['object_bytes'])}"
    screen.row("store", objects)
    if size is not None:
        screen.row("size", bytes_text(size))
    _list_missing(screen, told["missing"])


def _list_missing(screen: Screen, missing: Sequence[Mapping[str, Any]]) -> None:
    for each in missing[:_SHOWN]:
        screen.row("missing", each["digest"], style="red")
        if each["jobs"]:
            screen.row("", f"needed by {', '.join(each['jobs'])}")
    if len(missing) > _SHOWN:
        screen.row("", f"and {len(missing) - _SHOWN} more; --json names all")
