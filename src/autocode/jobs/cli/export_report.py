"""What an export tells its user: when it attaches to a job, when it is interrupted, and at the end."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from autocode.jobs.cli.outlook import why_dead
from autocode.jobs.cli.screen import Screen, bytes_text, plural
from autocode.jobs.cli.views import Written
from autocode.jobs.ledger.audit import CalledOff
from autocode.jobs.model import JobStatus
from autocode.jobs.operations.export.views import load_manifest
from autocode.jobs.resource import HistoryEntry, Job
from autocode.jobs.sessions import is_kept
from autocode.jobs.store import ObjectStore

__all__ = ["counts_text", "show_attached", "show_bundle", "show_dead", "show_interrupted", "steps_text"]


def show_attached(screen: Screen, job: Job) -> None:
    """Say that an unfinished job of the same request goes on, and what of it is done already."""
    if job.status is JobStatus.RUNNING:
        screen.note(f"Job {job.job_id} exports the same and is running: following it.")
    elif job.history:
        screen.note(f"Going on with job {job.job_id}: {_done(job.history)} will be reused.")
    else:
        screen.note(f"Going on with job {job.job_id}; no step of it is done yet.")


def show_interrupted(screen: Screen, job: Job, *, served: bool = False) -> None:
    """Say what an interrupted export leaves, and how to go on."""
    if served and job.result is None and job.status is not JobStatus.DEAD:
        screen.note(
            f"No longer following job {job.job_id}: the service goes on with it. The same command follows it "
            f"again; to call it off: autocode-jobs jobs cancel {job.job_id} --reason TEXT"
        )
        return
    if job.result is not None:
        screen.note(
            f"Interrupted. Job {job.job_id} is complete; the same command writes its bundle, and so does "
            f"autocode-jobs artifacts get {job.result.digest}"
        )
    elif job.status is JobStatus.RUNNING:
        screen.note(f"Interrupted. Another command still runs job {job.job_id}.")
    else:
        kept = f"keeps {_done(job.history)}" if job.history else "has no finished step yet"
        screen.note(f"Interrupted. Job {job.job_id} {kept}; the same command goes on with it.")


def show_dead(screen: Screen, job: Job, called_off: CalledOff | None = None) -> None:
    """Say why a job is dead, or who called it off, and what to do next."""
    screen.note(f"Job {job.job_id} is dead ({job.reason}) after {plural(job.attempts, 'attempt')}.")
    screen.fail(*why_dead(job, called_off))


def show_bundle(screen: Screen, store: ObjectStore, job: Job, written: Sequence[Written]) -> None:
    """Say what was exported, what was lost, where it is, and how to check it."""
    assert job.result is not None
    manifest = load_manifest(store, job.result.digest)
    totals = manifest.totals
    lost: Counter[str] = Counter()
    redacted: Counter[str] = Counter()
    for source in manifest.sources:
        lost.update(source.lost)
        redacted.update(source.redacted)
    told = f"{plural(totals['sessions'], 'session')}, {plural(totals['records'], 'record')}"
    files = f"{bytes_text(totals['source_bytes'])} in {plural(len(manifest.sources), 'file')}"
    screen.say(f"Exported {told}, from {files}.", style="bold green")
    for each in written:
        screen.row("bundle" if each.view.checkable else each.view.name, str(each.opens))
    screen.row("digest", job.result.digest)
    size = f"{bytes_text(totals['member_bytes'])} in {plural(totals['members'], 'file')}"
    zipped = [each.path.stat().st_size for each in written if each.view.name == "zip"]
    screen.row("size", size + "".join(f", zipped {bytes_text(each)}" for each in zipped))
    screen.row(
        "redacted", counts_text(redacted) if manifest.redaction else "nothing, as you asked", wrap=True
    )
    show_losses(screen, "lost", lost)
    if totals["damaged"]:
        screen.row("damaged", f"{plural(totals['damaged'], 'span')}, listed in the .report.json files")
    if manifest.unread:
        kinds = Counter(each.kind for each in manifest.unread)
        screen.row("not read", f"{counts_text(kinds)}; listed in manifest.json", wrap=True)
    if manifest.left_out:
        screen.row("left out", counts_text(manifest.left_out), wrap=True)
    screen.row("job", f"{job.job_id}, {plural(job.attempts, 'attempt')}")
    screen.row("steps", steps_text(job), wrap=True)
    for each in written:
        if each.view.checkable:
            screen.row("check it", _check(each.path))


def show_losses(screen: Screen, label: str, lost: Mapping[str, int]) -> None:
    """Say what is gone, and apart from it what was counted because it is odd."""
    kept = {name: count for name, count in lost.items() if is_kept(name)}
    screen.row(label, counts_text({name: lost[name] for name in lost if name not in kept}), wrap=True)
    if kept:
        screen.row("odd", f"{counts_text(kept)}; kept all the same", wrap=True)


def steps_text(job: Job) -> str:
    """Return how many steps the last attempt did, and which were reused from where, by name and number."""
    now = [entry for entry in job.history if entry.attempt == job.attempts and not entry.reused]
    before = [entry for entry in job.history if entry.attempt != job.attempts and not entry.reused]
    memo = [entry for entry in job.history if entry.reused]
    parts = [f"{len(now):,} done in attempt {job.attempts}"]
    if before:
        parts.append(f"{len(before):,} reused from earlier attempts ({_named(before)})")
    if memo:
        parts.append(f"{len(memo):,} reused from earlier jobs ({_named(memo)})")
    return ", ".join(parts)


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts with their sum before them: ``5: jwt 2, password 3``."""
    if not counts:
        return "nothing"
    named = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    return named if len(counts) == 1 else f"{sum(counts.values()):,}: {named}"


def _done(history: Sequence[HistoryEntry]) -> str:
    return f"{plural(len(history), 'finished step')} ({_named(history)})"


def _named(entries: Iterable[HistoryEntry]) -> str:
    kinds = Counter(entry.step.partition(" ")[0] for entry in entries)
    return ", ".join(name if count == 1 else f"{name} x{count:,}" for name, count in kinds.items())


def _check(where: Path) -> str:
    program = "sha256sum" if shutil.which("sha256sum") else "shasum -a 256"
    check = f"{program} -c manifest-sha256.txt"
    if where.suffix == ".zip":
        folder, name = shlex.quote(str(where.parent)), shlex.quote(where.name)
        return f"cd {folder} && unzip -q {name} && cd {shlex.quote(where.stem)} && {check}"
    return f"cd {shlex.quote(str(where))} && {check}"
