"""``autocode-jobs export``: accept the job, bring it to its end, deliver its bundle."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from autocode.jobs.cli.desk import elsewhere
from autocode.jobs.cli.export_report import show_attached, show_bundle, show_dead, show_interrupted
from autocode.jobs.cli.follow import follow
from autocode.jobs.cli.preview_report import show_allow_list, show_preview
from autocode.jobs.cli.progress import counting
from autocode.jobs.cli.questions import confirmed
from autocode.jobs.cli.remote_export import Remote, export_elsewhere
from autocode.jobs.cli.runtime import opened
from autocode.jobs.cli.screen import Screen, bytes_text, plural
from autocode.jobs.cli.served import handed_over, is_served
from autocode.jobs.cli.sources import (
    Place,
    Selection,
    as_sources,
    everything_in,
    files_of,
    selected_by,
    usual_places,
)
from autocode.jobs.cli.views import check_writable, chosen_views, deliver
from autocode.jobs.engine.reconcile import sweep_ledger
from autocode.jobs.engine.system import System
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.ledger import audit, jobs, queries
from autocode.jobs.ledger.jobs import NewJob
from autocode.jobs.model import JobStatus
from autocode.jobs.operations.export import EXPORT, ExportPayload, Source
from autocode.jobs.operations.export import preview as operation
from autocode.jobs.redaction import CustomRules, read_rules
from autocode.jobs.resource import Job
from autocode.jobs.settings import Home

__all__ = ["Options", "export", "preview"]


@dataclass(frozen=True, slots=True)
class Options:
    """What was said on the command line."""

    paths: tuple[Path, ...] = ()
    roots: tuple[str, ...] = ()
    redact: bool = True
    rules: Path | None = None
    allow_list: bool = False
    output: Path | None = None
    zipped: bool = False
    views: tuple[str, ...] = ()
    rehash: bool = False
    yes: bool = False
    wait: bool = True
    json: bool = False


def export(options: Options) -> int:
    """Export what *options* select, and return the exit status.

    Nothing is written before everything that was said makes sense.
    """
    screen = Screen(json_mode=options.json)
    if elsewhere():
        return _elsewhere(screen, options)
    if options.roots:
        raise UsageError(
            "--root names folders of a service that AUTOCODE_URL points to, and it isn't set.",
            hint="Name the folder itself: autocode-jobs export PATH",
        )
    if not options.wait:
        _refuse_to_write(options)
    views = chosen_views(options.views, zipped=options.zipped)
    output = options.output or Path()
    check_writable(output)
    rules = _rules(options)
    selections = _selections(screen, options)
    if options.wait:
        _warn_of_itself(screen, selections, output)
    with opened() as system:
        asked = ExportPayload(
            sources=as_sources(selections, system.home.add_root),
            redact=options.redact,
            rules=rules,
            rehash=options.rehash,
        )
        if not options.wait and not is_served(system):
            raise UsageError(
                "No service runs on this data folder, so nobody would run the job.",
                hint="Leave out --no-wait, or start one: autocode-jobs up",
            )
        job = _run(screen, system, asked, wait=options.wait)
        if not options.wait:
            handed_over(screen, job)
            return 0
        try:
            if job.status is not JobStatus.COMPLETE:
                show_dead(screen, job, audit.called_off(system.db, job.job_id))
                return 1
            written = deliver(screen, system.store, job, output, views)
            show_bundle(screen, system.store, job, written)
        except KeyboardInterrupt:
            show_interrupted(screen, job)
            raise
        finally:
            if options.json and sys.exc_info()[0] is not KeyboardInterrupt:
                screen.emit(job)
    return 0


def preview(options: Options) -> int:
    """Say what an export would redact, lose and leave out, by place; write nothing at all.

    Raises:
        UsageError: a view was asked for, too.
    """
    if options.views or options.zipped:
        raise UsageError(
            "A preview writes nothing, so it takes neither --as nor --zip.",
            hint="Leave out --preview to export, or the view to preview.",
        )
    screen = Screen(json_mode=options.json)
    rules = _rules(options)
    selections = _selections(screen, options, ask=False)
    names = {
        folder: str(number) for number, folder in enumerate(dict.fromkeys(each.folder for each in selections))
    }
    folders = {name: folder for folder, name in names.items()}
    payload = ExportPayload(
        sources=as_sources(selections, names.__getitem__), redact=options.redact, rules=rules
    )
    with counting(screen, "scanning", "files") as looked_at:
        found = operation.preview(
            folders.__getitem__,
            payload.sources,
            policy=payload.policy,
            digests=options.allow_list,
            looked_at=looked_at,
        )
    if options.allow_list:
        show_allow_list(screen, found)
    elif options.json:
        screen.emit(found.to_json() | {"rules": None if rules is None else rules.model_dump(mode="json")})
    else:
        show_preview(screen, found)
    return 0


def _refuse_to_write(options: Options) -> None:
    """Refuse what nobody would do: a command that doesn't wait for the bundle can't write it anywhere."""
    said = [
        name
        for name, given in (("-o", options.output), ("--as", options.views), ("--zip", options.zipped))
        if given
    ]
    if said:
        raise UsageError(
            f"With --no-wait nothing is written here, so {' and '.join(said)} would do nothing.",
            hint=f"Leave out {' and '.join(said)}, and write the bundle when the job is complete: "
            "autocode-jobs artifacts get DIGEST -o FOLDER",
        )


def _selections(screen: Screen, options: Options, *, ask: bool = True) -> list[Selection]:
    if options.paths:
        return selected_by(options.paths)
    with counting(screen, "looking into the agents' usual folders", "files") as looked_at:
        places = usual_places(looked_at)
    selections = everything_in(places)
    _show(screen, places)
    if ask and not options.yes:
        _ask(screen)
    return selections


def _show(screen: Screen, places: Sequence[Place]) -> None:
    shown = [(place.name, str(place.path), place.files, place.size) for place in places]
    if len(shown) > 1:
        shown.append(
            ("in all", "", sum(place.files for place in places), sum(place.size for place in places))
        )
    width = max(len(path) for _, path, _, _ in shown)
    for name, path, files, size in shown:
        screen.err.print(
            f"  {name:<13} {path:<{width}}  {plural(files, 'file'):>12}, {bytes_text(size)}", markup=False
        )


def _ask(screen: Screen) -> None:
    if not confirmed(
        screen,
        "Export all of this?",
        nobody="Nobody is there to ask whether to export these folders.",
        hint="Say --yes, or name the folders to export.",
    ):
        raise UsageError("Nothing was exported.", hint="Name what to export: autocode-jobs export PATH")


def _warn_of_itself(screen: Screen, selections: Sequence[Selection], output: Path) -> None:
    target = output.resolve()
    for each in selections:
        inside = each.folder if not each.select else None
        if inside is not None and target.is_relative_to(inside):
            screen.note(
                f"The bundle will lie inside {inside}, which is exported: the next export finds it there. "
                "Give another folder after --output to avoid that."
            )
            return


def _rules(options: Options) -> CustomRules | None:
    """Return the user's rules: of the file that was named, else of the one in the data folder, if any.

    From here on they are the payload's; whoever edits the file meanwhile changes the next export.
    """
    if not options.redact:
        if options.rules is not None:
            raise UsageError("--rules and --no-redact contradict each other.", hint="Leave out one of them.")
        return None
    if options.rules is not None:
        return read_rules(options.rules)
    usual = Home.from_environment().redaction_rules
    return read_rules(usual) if usual.exists() else None


def _elsewhere(screen: Screen, options: Options) -> int:
    if not options.roots and not options.paths:
        raise UsageError(
            "AUTOCODE_URL points to a service, which knows nothing of this machine's folders.",
            hint="Name a PATH to upload, or a folder of the service's own with --root.",
        )
    output = _zip_wanted(options)
    rules = _rules(options)
    selections = selected_by(options.paths)
    return export_elsewhere(
        screen,
        Remote(
            sources=tuple(Source(root=name) for name in options.roots),
            files=files_of(selections),
            redact=options.redact,
            rules=rules,
            rehash=options.rehash,
            wait=options.wait,
            output=output,
        ),
    )


def _zip_wanted(options: Options) -> Path | None:
    """Return the folder that gets the zip file; ``None`` where nothing is to be written here."""
    views = set(options.views) | ({"zip"} if options.zipped else set())
    if others := sorted(views - {"zip"}):
        raise UsageError(
            f"A service hands a bundle out as a zip file, not as {', '.join(others)}.",
            hint="Say --zip; the pages are at the job's result.html.",
        )
    if not views and options.output is None:
        return None
    if not options.wait:
        _refuse_to_write(options)
    output = options.output or Path()
    check_writable(output)
    return output


def _run(screen: Screen, system: System, payload: ExportPayload, *, wait: bool) -> Job:
    served = is_served(system)
    if not served:
        finished = _finish_old(screen, system, payload)
        if finished is not None:
            return finished
    new = NewJob(
        job_id=f"export-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        kind=EXPORT.name,
        payload=payload.model_dump(mode="json"),
        max_attempts=EXPORT.max_attempts,
        backoff=EXPORT.backoff,
        time_limit=EXPORT.time_limit,
    )
    job_id, created = jobs.attach_or_enqueue(system.db, new)
    if not wait:
        return queries.get(system.db, job_id)
    try:
        if not created:
            show_attached(screen, queries.get(system.db, job_id))
        return follow(screen, system, job_id)
    except KeyboardInterrupt:
        with suppress(JobsError):
            show_interrupted(screen, queries.get(system.db, job_id), served=served)
        raise


def _finish_old(screen: Screen, system: System, payload: ExportPayload) -> Job | None:
    """Bring what earlier commands left up to date; return this request's own job if it turns out complete."""
    unfinished = jobs.find_unfinished(system.db, EXPORT.name, payload.model_dump(mode="json"))
    # a job whose every process died is over, and one that died with its result committed is complete
    sweep_ledger(system)
    if unfinished is not None and queries.get(system.db, unfinished).status is JobStatus.COMPLETE:
        # nothing is left to run, but Prefect hasn't heard of the end yet
        return follow(screen, system, unfinished)
    return None
