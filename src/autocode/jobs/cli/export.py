"""``autocode-jobs export``."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.prompt import Confirm

from autocode.jobs.cli.export_report import show_bundle, show_preview, show_resumed
from autocode.jobs.cli.follow import follow
from autocode.jobs.cli.runtime import opened
from autocode.jobs.cli.screen import Screen, bytes_text, plural
from autocode.jobs.cli.sources import all_sources, sources_of, usual_places
from autocode.jobs.cli.views import deliver
from autocode.jobs.engine.reconcile import sweep_ledger
from autocode.jobs.engine.system import System
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.ledger import jobs, queries
from autocode.jobs.ledger.jobs import NewJob
from autocode.jobs.model import JobStatus
from autocode.jobs.operations.export import EXPORT, ExportPayload, Source
from autocode.jobs.operations.export.preview import preview
from autocode.jobs.resource import Job
from autocode.jobs.settings import Home

__all__ = ["export"]


def export(
    paths: Annotated[
        list[Path] | None,
        Parameter(name="PATH", help="Folders or files with sessions; the agents' usual folders if none."),
    ] = None,
    /,
    *,
    redact: Annotated[bool, Parameter(help="Replace secrets by markers; leave raw bytes out.")] = True,
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="Folder that gets the bundle.")] = Path(),
    zipped: Annotated[
        bool, Parameter(name="--zip", negative="", help="Write one .zip file and no folder.")
    ] = False,
    preview_only: Annotated[
        bool, Parameter(name="--preview", negative="", help="List redactions and losses; write nothing.")
    ] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="", help="Don't ask.")] = False,
    json: Annotated[bool, Parameter(negative="", help="Print the job resource as the last line.")] = False,
) -> int:
    """Export agent sessions into a bundle that proves what is in it.

    The same command after Ctrl-C, a crash or a kill goes on where it stopped. Exit status: 0 complete,
    1 dead, 2 usage, 130 interrupted.

    Examples:
        autocode-jobs export

        autocode-jobs export ~/.claude/projects/-home-ada-parser -o /tmp

        autocode-jobs export session.jsonl --preview
    """
    screen = Screen(json_mode=json)
    with opened() as system:
        sources = _sources(screen, system.home, paths, yes=yes or preview_only)
        payload = EXPORT.parse(
            {"sources": [source.model_dump(mode="json") for source in sources], "redact": redact}
        )
        if preview_only:
            return _preview(screen, system.home, payload)
        _writable(output)
        job = _run(screen, system, payload)
        if job.status is JobStatus.COMPLETE:
            show_bundle(screen, system, job, deliver(screen, system.store, job, output, zipped=zipped))
        else:
            _show_dead(screen, job)
        if json:
            screen.emit(job)
        return 0 if job.status is JobStatus.COMPLETE else 1


def _sources(screen: Screen, home: Home, paths: Sequence[Path] | None, *, yes: bool) -> Sequence[Source]:
    if paths:
        return sources_of(home, paths)
    places = usual_places()
    sources = all_sources(places)
    for place in places:
        size = f"{plural(place.files, 'file')}, {bytes_text(place.size)}"
        screen.err.print(f"  {place.name:<14} {place.path}  ({size})", markup=False)
    if yes:
        return sources
    if not sys.stdin.isatty():
        raise UsageError(
            "Nobody is there to ask whether to export these folders.",
            hint="Say --yes, or name the folders to export.",
        )
    if not Confirm.ask("Export all of this?", console=screen.err, default=True):
        raise UsageError(
            "Nothing was exported.", hint="Name the folders to export: autocode-jobs export PATH."
        )
    return sources


def _run(screen: Screen, system: System, payload: ExportPayload) -> Job:
    # a job whose every process died is over, and not something to attach to
    sweep_ledger(system)
    new = NewJob(
        job_id=f"export-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        kind=EXPORT.name,
        payload=payload.model_dump(mode="json"),
        max_attempts=EXPORT.max_attempts,
        backoff=EXPORT.backoff,
        time_limit=EXPORT.time_limit,
    )
    job_id, created = jobs.attach_or_enqueue(system.db, new)
    if not created:
        show_resumed(screen, queries.get(system.db, job_id))
    try:
        return follow(screen, system, job_id)
    except KeyboardInterrupt:
        screen.note(f"Interrupted. Job {job_id} keeps its finished steps; the same command goes on with it.")
        raise


def _preview(screen: Screen, home: Home, payload: ExportPayload) -> int:
    found = preview(home, payload)
    show_preview(screen, found)
    if screen.json_mode:
        screen.emit(found.to_json())
    return 0


def _writable(folder: Path) -> None:
    """Find out before the work, and not after it, that the bundle can't be written."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder.", hint="Name a folder after --output.")


def _show_dead(screen: Screen, job: Job) -> None:
    told = job.error
    screen.note(f"Job {job.job_id} is dead: {job.reason}, after {plural(job.attempts, 'attempt')}.")
    detail = told.detail if told else "no attempt left an error"
    screen.fail(JobsError(detail, hint=told.hint if told else None))
