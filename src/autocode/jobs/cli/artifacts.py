"""``autocode-jobs artifacts`` and ``autocode-jobs verify``."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from autocode.jobs.canonical import is_digest
from autocode.jobs.cli.runtime import opened
from autocode.jobs.cli.screen import Screen, bytes_text, plural
from autocode.jobs.cli.views import write_view
from autocode.jobs.engine.system import System
from autocode.jobs.errors import ObjectCorrupt, ObjectMissing, UsageError
from autocode.jobs.operations.export.views import load_manifest
from autocode.jobs.settings import write_durably
from autocode.jobs.store import VerifyReport, verify_store

__all__ = ["artifacts_app", "verify"]

artifacts_app = App(name="artifacts", help="Get finished artifacts out of the store.")

Digest = Annotated[
    str, Parameter(name="DIGEST", help="sha256:… of the artifact, or its first 8 digits or more.")
]


@artifacts_app.command
def get(
    digest: Digest,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="Folder that gets the bundle.")] = Path(),
    zipped: Annotated[bool, Parameter(name="--zip", negative="", help="Write one .zip file.")] = False,
) -> int:
    """Write an exported bundle to a folder; every byte is checked on the way.

    Examples:
        autocode-jobs artifacts get sha256:1f0c… -o /tmp
    """
    screen = Screen()
    with opened() as system:
        where = write_view(screen, system.store, _full(system, digest), output, zipped=zipped)
    screen.say(str(where))
    return 0


def verify(
    digests: Annotated[
        list[str] | None, Parameter(name="DIGEST", help="Artifacts to check; the whole store if none.")
    ] = None,
    /,
    *,
    json: Annotated[bool, Parameter(negative="", help="Print the findings as one line of JSON.")] = False,
) -> int:
    """Check stored objects against their digests.

    A check of the whole store that was interrupted goes on where it stopped. Damaged objects are moved to
    quarantine, and the steps that made them run again when they are next needed. Exit status: 0 all sound,
    1 damage was found.

    Examples:
        autocode-jobs verify

        autocode-jobs verify sha256:1f0c…
    """
    screen = Screen(json_mode=json)
    with opened() as system:
        if digests:
            return _verify_artifacts(screen, system, digests)
        report = _verify_all(screen, system)
    screen.say(f"Checked {plural(report.checked, 'object')}, {bytes_text(report.bytes)}.")
    for found in report.damaged:
        screen.row("damaged", found.digest, style="red")
    if report.ok:
        screen.say("[green]Every object matches its digest.[/]")
    else:
        screen.note("Damaged objects are in quarantine; run the same job again to rebuild them.")
    if json:
        screen.emit(report.as_dict())
    return 0 if report.ok else 1


def _verify_all(screen: Screen, system: System) -> VerifyReport:
    cursor_file = system.home.run / "verify-cursor.json"
    after = None
    if cursor_file.exists():
        after = jsonlib.loads(cursor_file.read_text("utf-8"))["after"]
        screen.note(f"Going on after {after}, where the last check was interrupted.")
    seen = after

    def progress(report: VerifyReport) -> None:
        nonlocal seen
        seen = report.cursor

    try:
        report = verify_store(system.store, after=after, progress=progress)
    except KeyboardInterrupt:
        if seen is not None:
            write_durably(cursor_file, jsonlib.dumps({"after": seen}).encode())
        raise
    cursor_file.unlink(missing_ok=True)
    return report


def _verify_artifacts(screen: Screen, system: System, digests: list[str]) -> int:
    damaged: list[str] = []
    checked = 0
    for digest in digests:
        full = _full(system, digest)
        members = [member.sha256 for member in load_manifest(system.store, full).members]
        for each in [full, *members]:
            checked += 1
            try:
                system.store.verify(each)
            except (ObjectCorrupt, ObjectMissing) as error:
                damaged.append(each)
                screen.fail(error)
    screen.say(
        f"Checked {plural(checked, 'object')}: {plural(len(damaged), 'is', 'are')} damaged or missing."
    )
    if screen.json_mode:
        screen.emit({"checked": checked, "damaged": damaged, "ok": not damaged})
    return 1 if damaged else 0


def _full(system: System, digest: str) -> str:
    """Complete a shortened digest from what the store has."""
    if is_digest(digest):
        return digest
    short = "sha256:" + digest.removeprefix("sha256:").rstrip("….")
    if len(short) < len("sha256:") + 8:
        raise UsageError(f"{digest!r} is too short for a digest.", hint="Give at least 8 hexadecimal digits.")
    found = [each for each in system.store.list() if each.startswith(short)]
    if len(found) != 1:
        count = plural(len(found), "object")
        raise UsageError(
            f"{count} in the store begin with {short}.",
            hint="`autocode-jobs jobs list --json` has whole digests.",
        )
    return found[0]
