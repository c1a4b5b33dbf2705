"""``autocode-jobs artifacts``: finished artifacts out of the store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from autocode.jobs.canonical import is_digest
from autocode.jobs.cli.runtime import opened
from autocode.jobs.cli.screen import Screen, plural
from autocode.jobs.cli.views import check_writable, chosen_views, write_views
from autocode.jobs.engine.system import System
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import queries

__all__ = ["full_digest", "get", "known_artifacts"]

_SHORT: Final = re.compile(r"(?:sha256:)?([0-9a-f]{8,64})(?:…|\.\.\.)?")

_JOBS: Final = 1000
"""How many of the newest jobs are asked for their results."""


def get(digest: str, output: Path, views: Sequence[str] | None = None, *, zipped: bool = False) -> int:
    """Write *views* of the artifact *digest* below *output* and print where they are, one a line."""
    screen = Screen()
    chosen = chosen_views(views, zipped=zipped)
    check_writable(output)
    with opened() as system:
        written = write_views(screen, system.store, full_digest(system, digest), output, chosen)
    for each in written:
        screen.say(str(each.path))
    return 0


def full_digest(system: System, text: str) -> str:
    """Return the whole digest that *text* means: itself, or the one artifact or object that begins so.

    Raises:
        UsageError: nothing begins so, or more than one thing does.
    """
    match = _SHORT.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text!r} is no digest.", hint="Give sha256: and at least 8 hexadecimal digits; see jobs list."
        )
    short = f"sha256:{match[1]}"
    found = {each for each in known_artifacts(system) if each.startswith(short)}
    if is_digest(short):
        found |= {short} if system.store.stat(short) is not None else set()
    elif not found:
        found = {each for each in system.store.list() if each.startswith(short)}
    if len(found) != 1:
        told = plural(len(found), "artifact begins", "artifacts begin") if found else "No artifact begins"
        raise UsageError(f"{told} with {short}.", hint="`autocode-jobs jobs list --json` has whole digests.")
    return found.pop()


def known_artifacts(system: System) -> list[str]:
    """Return the digests of the newest jobs' results, without those that retention removed."""
    jobs = queries.list_jobs(system.db, limit=_JOBS)
    results = [job.result for job in jobs if job.result is not None and job.result.expired_at is None]
    return list(dict.fromkeys(result.digest for result in results))
