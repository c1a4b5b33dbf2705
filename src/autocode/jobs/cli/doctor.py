"""``autocode-jobs doctor``: what this installation stands on, and what is wrong with it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from rich.text import Text

import autocode
from autocode.jobs import configuration
from autocode.jobs._version import __version__
from autocode.jobs.cli.screen import Screen, bytes_text, plural, visible
from autocode.jobs.cli.sources import usual_places
from autocode.jobs.engine.announce import lives
from autocode.jobs.engine.databases import chosen, shown
from autocode.jobs.engine.flows import flows_folder
from autocode.jobs.engine.server import server_log
from autocode.jobs.engine.system import open_system
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger import audit, queries
from autocode.jobs.postgres.orphans import orphans
from autocode.jobs.service.single import running
from autocode.jobs.settings import Home
from autocode.jobs.urls import masked

__all__ = ["doctor"]

_LOW_SPACE: Final = 1_000_000_000
_MARKS: Final = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@dataclass(frozen=True, slots=True)
class _Finding:
    state: Literal["ok", "warn", "fail"]
    what: str
    hint: str = ""


def doctor(*, json: bool) -> int:
    """Print what was found, with what to do about it; return 1 if something is wrong."""
    screen = Screen(json_mode=json)
    findings = [*_installation(), *_home(), *_service(), *_places(), *_orphans()]
    for finding in findings:
        mark, style = _MARKS[finding.state]
        screen.say(Text(f"{mark}  ", style=style).append(visible(finding.what), style="default"))
        if finding.hint:
            screen.say(f"      next: {finding.hint}")
    ok = all(finding.state != "fail" for finding in findings)
    if json:
        screen.emit({"ok": ok, "findings": [asdict(finding) for finding in findings]})
    return 0 if ok else 1


def _installation() -> Iterator[_Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    prefect = importlib.metadata.version("prefect")
    yield _Finding(
        "ok",
        f"autocode-jobs {__version__}, Python {python}, Prefect {prefect}, SQLite {sqlite3.sqlite_version}",
    )
    if not prefect.startswith("3.9."):
        yield _Finding(
            "fail", f"Prefect {prefect} is not the version that this release knows.", "Install prefect 3.9."
        )
    if getattr(autocode, "__file__", None):
        yield _Finding(
            "warn",
            f"Another package claims the name autocode: {autocode.__file__}",
            "Uninstall it, or install autocode-jobs in an environment of its own.",
        )
    try:
        yield _Finding("ok", f"flows are in {flows_folder()}")
    except JobsError as error:
        yield _Finding("fail", error.detail, error.hint)


def _home() -> Iterator[_Finding]:
    home = Home.from_environment()
    try:
        os.environ.update(configuration.load(home).environ())
        database = shown(home, chosen(home))
        with open_system(home) as system:
            count = len(queries.list_jobs(system.db, limit=1000))
            broken = audit.broken_link(system.db)
    except JobsError as error:
        yield _Finding("fail", error.detail, error.hint)
        return
    yield _Finding("ok", f"data folder {home.path}: {plural(count, 'job')}")
    yield _Finding("ok", f"the ledger is in {database}")
    if broken is not None:
        yield _Finding(
            "fail", f"The audit log was altered at entry {broken}.", "Keep a copy and ask who had access."
        )
    free = shutil.disk_usage(home.path).free
    if free < _LOW_SPACE:
        yield _Finding(
            "warn", f"Only {bytes_text(free)} are free.", "Free some space, or move AUTOCODE_HOME."
        )
    else:
        yield _Finding("ok", f"{bytes_text(free)} free")


def _service() -> Iterator[_Finding]:
    home = Home.from_environment()
    if url := os.environ.get("AUTOCODE_URL"):
        yield _Finding("ok", f"commands go to the service at {masked(url)}, as AUTOCODE_URL says")
    supervisor = running(home)
    if supervisor is not None:
        yield _Finding("ok", f"a service runs on this data folder, as process {supervisor.pid}")
        yield from _addresses(supervisor.url, supervisor.prefect_url, home)
        return
    parts = [part for part in ("api", "reconcile", "worker") if lives(home, part)]
    if parts:
        yield _Finding("ok", f"parts of a service run on this data folder: {', '.join(parts)}")
    else:
        yield _Finding("ok", "no service runs on this data folder (autocode-jobs up starts one)")


def _addresses(api: str | None, prefect: str | None, home: Home) -> Iterator[_Finding]:
    if api is None:
        yield _Finding(
            "warn", "its API doesn't answer yet", f"Wait for it, or look at {home.logs / 'api.log'}."
        )
    else:
        yield _Finding("ok", f"its API is at {api} (autocode-jobs login prints a link for a browser)")
    if prefect is None:
        yield _Finding(
            "warn", "its Prefect server doesn't answer yet", f"Wait for it, or look at {server_log(home)}."
        )
    else:
        yield _Finding("ok", f"its Prefect UI is at {prefect.removesuffix('/api')}")


def _orphans() -> Iterator[_Finding]:
    for each in orphans(Home.from_environment()):
        yield _Finding(
            "warn",
            f"{each.folder} has the PostgreSQL data of {each.home}, which isn't there any more or has others",
            "If that data folder was neither moved nor is on a disk that is away: "
            f"rm -r {shlex.quote(str(each.folder))}",
        )


def _places() -> Iterator[_Finding]:
    places = usual_places()
    for place in places:
        size = f"{plural(place.files, 'file')}, {bytes_text(place.size)}"
        yield _Finding("ok", f"root {place.name}: {place.path} ({size})")
    home = Home.from_environment()
    for name, folder in sorted(home.roots().items()) if home.exists() else ():
        if folder.is_dir():
            yield _Finding("ok", f"root {name}: {folder}")
        else:
            yield _Finding("warn", f"root {name}: {folder} is gone", "Exports of it fail until it is back.")
    if not places:
        yield _Finding(
            "warn",
            f"No agent's usual folder exists below {Path.home()}.",
            "Name a folder with sessions: autocode-jobs export PATH",
        )
