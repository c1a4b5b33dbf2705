"""What an export tells its user: at the start of a resumed one, and at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from autocode.jobs.cli.screen import Screen, bytes_text, plural
from autocode.jobs.engine.system import System
from autocode.jobs.operations.export.preview import Preview
from autocode.jobs.operations.export.views import load_manifest
from autocode.jobs.resource import HistoryEntry, Job

__all__ = ["show_bundle", "show_preview", "show_resumed"]


def show_resumed(screen: Screen, job: Job) -> None:
    """Say that an unfinished job of the same request goes on, and from where."""
    done = plural(len(job.history), "finished step")
    screen.note(f"Going on with job {job.job_id} ({job.status}): {done} will be reused.")


def show_bundle(screen: Screen, system: System, job: Job, where: Path) -> None:
    """Say what was exported, what was lost, where it is, and how to check it."""
    assert job.result is not None
    manifest = load_manifest(system.store, job.result.digest)
    totals = manifest.totals
    lost: Counter[str] = Counter()
    redacted: Counter[str] = Counter()
    for source in manifest.sources:
        lost.update(source.lost)
        redacted.update(source.redacted)
    sessions = plural(totals["sessions"], "session")
    records = plural(totals["records"], "record")
    size = bytes_text(totals["source_bytes"])
    screen.say(f"[bold green]Exported[/] {sessions}, {records}, from {size} of sources.")
    screen.row(
        "bundle", f"{where}  ({plural(totals['members'], 'file')}, {bytes_text(totals['member_bytes'])})"
    )
    screen.row("digest", job.result.digest)
    screen.row("redacted", _counts(redacted) if manifest.redaction else "nothing: --no-redact was given")
    screen.row("lost", _counts(lost))
    if totals["damaged"]:
        screen.row("damaged", plural(totals["damaged"], "span") + ", listed in the *.report.json files")
    if manifest.unread:
        screen.row("not read", _counts(Counter(each.kind for each in manifest.unread)) + " (other tools)")
    if manifest.left_out:
        screen.row("left out", _counts(manifest.left_out))
    screen.row("job", f"{job.job_id}, {plural(job.attempts, 'attempt')}, {_steps(job)}")
    screen.row("check it", _check(where))


def show_preview(screen: Screen, found: Preview) -> None:
    """List what an export would redact, lose and leave out, by place."""
    for line in found.lines():
        screen.out.print(line, markup=False)


def _steps(job: Job) -> str:
    now = [entry for entry in job.history if entry.attempt == job.attempts and not entry.reused]
    before = [entry for entry in job.history if entry.attempt != job.attempts]
    memo = [entry for entry in job.history if entry.reused]
    parts = [plural(len(now), "step") + " done now"]
    if before:
        parts.append(f"{len(before)} reused from earlier attempts: {_named(before)}")
    if memo:
        parts.append(f"{len(memo)} reused from earlier jobs: {_named(memo)}")
    return "; ".join(parts)


def _named(entries: Iterable[HistoryEntry]) -> str:
    kinds = Counter(entry.step.partition(" ")[0] for entry in entries)
    return ", ".join(name if count == 1 else f"{name} x{count}" for name, count in kinds.items())


def _counts(counts: Mapping[str, int]) -> str:
    if not counts:
        return "nothing"
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _check(where: Path) -> str:
    if where.suffix == ".zip":
        return f"unzip {where.name} && cd {where.stem} && sha256sum -c manifest-sha256.txt"
    return f"cd {where} && sha256sum -c manifest-sha256.txt"
