"""``autocode-jobs verify``: what the store holds against what it should hold."""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autocode.jobs.cli.artifacts import full_digest, known_artifacts
from autocode.jobs.cli.runtime import opened
from autocode.jobs.cli.screen import Screen, bytes_text, plural
from autocode.jobs.errors import ObjectCorrupt, ObjectMissing, UsageError
from autocode.jobs.operations.export.views import load_manifest
from autocode.jobs.settings import write_durably
from autocode.jobs.store import ObjectStore, verify_objects

__all__ = ["verify_artifacts", "verify_everything"]

_SAVE_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Findings:
    checked: int = 0
    bytes: int = 0
    artifacts: int = 0
    damaged: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """What isn't in the store, and the artifact that needs it."""
    cursor: str | None = None

    @property
    def ok(self) -> bool:
        return not self.damaged and not self.missing

    def to_json(self) -> dict[str, Any]:
        return {
            "checked": self.checked,
            "bytes": self.bytes,
            "artifacts": self.artifacts,
            "damaged": self.damaged,
            "missing": sorted(self.missing),
            "ok": self.ok,
        }


def verify_everything(*, json: bool) -> int:
    """Verify every object of the store, and that no artifact misses one; return the exit status.

    Where it is and what it found is kept in the home, so that an interrupted check goes on.
    """
    screen = Screen(json_mode=json)
    with opened() as system:
        cursor_file = system.home.run / "verify.json"
        findings = _resumed(cursor_file)
        if findings.cursor is not None:
            screen.note(f"Going on after {findings.cursor}, where the last check stopped.")
        _check_objects(screen, system.store, findings, cursor_file)
        for digest in known_artifacts(system):
            _check_members(system.store, digest, findings, verify=False)
        cursor_file.unlink(missing_ok=True)
    return _tell(screen, findings)


def verify_artifacts(digests: list[str], *, json: bool) -> int:
    """Verify artifacts with all that they hold, or single objects; return the exit status."""
    screen = Screen(json_mode=json)
    findings = _Findings()
    with opened() as system:
        for digest in [full_digest(system, each) for each in digests]:
            _check_members(system.store, digest, findings, verify=True)
    return _tell(screen, findings)


def _check_objects(screen: Screen, store: ObjectStore, findings: _Findings, cursor_file: Path) -> None:
    left = sum(1 for _ in store.list(findings.cursor))
    with _bar(screen, left) as bar, _saved(cursor_file, findings) as save:
        for verdict in verify_objects(store, after=findings.cursor):
            findings.checked += 1
            findings.bytes += verdict.size
            findings.cursor = verdict.digest
            if verdict.state == "damaged":
                findings.damaged.append(verdict.digest)
            bar.advance(bar.task_ids[0])
            save(force=verdict.state == "damaged")


def _check_members(store: ObjectStore, artifact: str, findings: _Findings, *, verify: bool) -> None:
    """Look for the artifact and everything it names; with *verify* read it all."""
    findings.artifacts += 1
    _check(store, artifact, artifact, findings, verify=verify)
    if artifact in (*findings.missing, *findings.damaged):
        return
    try:
        members = {member.sha256 for member in load_manifest(store, artifact).members}
    except UsageError:
        # a single object that is no artifact; it was looked at itself
        return
    except (ObjectMissing, ObjectCorrupt):
        findings.damaged.append(artifact)
        return
    for digest in sorted(members):
        _check(store, artifact, digest, findings, verify=verify)


def _check(store: ObjectStore, artifact: str, digest: str, findings: _Findings, *, verify: bool) -> None:
    if digest in findings.damaged or digest in findings.missing:
        return
    try:
        if verify:
            findings.checked += 1
            findings.bytes += store.verify(digest).size
        elif store.stat(digest) is None:
            findings.missing[digest] = artifact
    except ObjectCorrupt:
        findings.damaged.append(digest)
    except ObjectMissing:
        findings.missing[digest] = artifact


def _tell(screen: Screen, findings: _Findings) -> int:
    checked = f"{plural(findings.checked, 'object')}, {bytes_text(findings.bytes)}"
    screen.say(f"Checked {checked}, and {plural(findings.artifacts, 'artifact')}.")
    for digest in findings.damaged:
        screen.row("damaged", digest, style="red")
    for digest, artifact in findings.missing.items():
        screen.row("missing", digest, style="red")
        screen.row("", f"needed by {artifact}")
    if findings.ok:
        screen.say("Every object matches its digest, and no artifact misses one.", style="green")
    else:
        screen.note("Run the same export again: it makes anew what is missing or was moved to quarantine.")
    if screen.json_mode:
        screen.emit(findings.to_json())
    return 0 if findings.ok else 1


def _resumed(cursor_file: Path) -> _Findings:
    try:
        kept = jsonlib.loads(cursor_file.read_text("utf-8"))
        return _Findings(
            checked=int(kept["checked"]),
            bytes=int(kept["bytes"]),
            damaged=[str(each) for each in kept["damaged"]],
            cursor=str(kept["cursor"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return _Findings()


@contextmanager
def _saved(cursor_file: Path, findings: _Findings) -> Iterator[Any]:
    """Give a function that keeps the findings now and then; they are kept when the block is left early."""
    due = time.monotonic() + _SAVE_SECONDS

    def save(*, force: bool = False) -> None:
        nonlocal due
        now = time.monotonic()
        if force or now >= due:
            due = now + _SAVE_SECONDS
            kept = {**findings.to_json(), "cursor": findings.cursor}
            write_durably(cursor_file, jsonlib.dumps(kept).encode())

    try:
        yield save
    except KeyboardInterrupt:
        if findings.cursor is not None:
            save(force=True)
        raise


@contextmanager
def _bar(screen: Screen, total: int) -> Iterator[Progress]:
    bar = Progress(
        TextColumn("verifying"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TextColumn("objects"),
        TimeElapsedColumn(),
        console=screen.err,
        transient=True,
        disable=not screen.live,
    )
    bar.add_task("", total=total)
    with bar:
        yield bar
