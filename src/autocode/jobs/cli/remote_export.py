"""``autocode-jobs export`` with a service at ``AUTOCODE_URL``: upload, let it export, fetch the bundle."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autocode.jobs.cli.desk import remote
from autocode.jobs.cli.outlook import why_dead
from autocode.jobs.cli.progress import JobView, bytes_bar
from autocode.jobs.cli.screen import Screen, bytes_text, plural
from autocode.jobs.cli.served import handed_over
from autocode.jobs.cli.views import folder_made
from autocode.jobs.client import Client
from autocode.jobs.errors import JobsError
from autocode.jobs.operations.export import EXPORT, ExportPayload, Source
from autocode.jobs.operations.export.views import bag_name
from autocode.jobs.redaction import CustomRules
from autocode.jobs.resource import Job

__all__ = ["Remote", "export_elsewhere"]


@dataclass(frozen=True, slots=True)
class Remote:
    """What a service is to export.

    Args:
        sources: folders that it knows.
        files: files of this machine, by the paths that they get in a snapshot.
        redact: replace secrets.
        rules: the user's own rules.
        rehash: read files anew that nobody seems to have touched.
        wait: follow the job to its end.
        output: the folder that gets the zip file; ``None`` for none.
    """

    sources: tuple[Source, ...]
    files: Mapping[str, Path]
    redact: bool
    rules: CustomRules | None
    rehash: bool
    wait: bool
    output: Path | None


def export_elsewhere(screen: Screen, asked: Remote) -> int:
    """Let the service that ``AUTOCODE_URL`` names export; show the job and its digest.

    Raises:
        KeyboardInterrupt: Ctrl-C; what was uploaded is kept for a week, and a job goes on.
        PayloadInvalid: the service refuses the payload.
        UsageError: ``AUTOCODE_TOKEN`` is missing.
    """
    with remote() as client:
        uploaded = _upload(screen, client, asked.files) if asked.files else ()
        payload = ExportPayload(
            sources=asked.sources + uploaded,
            redact=asked.redact,
            rules=asked.rules,
            rehash=asked.rehash,
        )
        job = client.enqueue(EXPORT.name, payload.model_dump(mode="json")).job
        if not asked.wait:
            handed_over(screen, job)
            return 0
        job = _followed(screen, client, job)
        try:
            written = None
            if job.result is not None and asked.output is not None:
                written = _fetched(screen, client, job, asked.output / f"{bag_name(job.result.digest)}.zip")
            return _told(screen, client, job, written)
        finally:
            if screen.json_mode and sys.exc_info()[0] is not KeyboardInterrupt:
                screen.emit(job)


def _upload(screen: Screen, client: Client, files: Mapping[str, Path]) -> tuple[Source, ...]:
    try:
        with bytes_bar(screen, "uploading") as move:
            sent = client.upload(files, progress=move)
    except KeyboardInterrupt:
        screen.note(
            "Interrupted. What was uploaded is kept for a week; the same command goes on with the rest."
        )
        raise
    told = f"{bytes_text(sent.sent)} of {bytes_text(sent.bytes)}" if sent.sent else "nothing, it has them all"
    screen.note(f"Uploaded {plural(sent.files, 'file')} to {client.url}: sent {told}.")
    return tuple(Source(snapshot=digest) for digest in sent.snapshots)


def _followed(screen: Screen, client: Client, job: Job) -> Job:
    seen = job
    try:
        with JobView(screen, waiting_for="the service") as view:
            for seen in client.follow(job.job_id):
                view.update(seen)
    except KeyboardInterrupt:
        screen.note(
            f"No longer following job {job.job_id}: the service goes on with it. To see it: "
            f"autocode-jobs jobs show {job.job_id}"
        )
        raise
    return seen


def _fetched(screen: Screen, client: Client, job: Job, path: Path) -> Path:
    """Fetch the bundle of a complete job.

    Raises:
        JobsError: it didn't come; the job stays complete, and the hint says how to go on.
    """
    try:
        with folder_made(path.parent), bytes_bar(screen, "fetching the bundle") as move:
            return client.download(job.job_id, path, view="zip", progress=move)
    except JobsError as error:
        raise JobsError(
            f"The export is complete, but its bundle could not be fetched: {error.detail}",
            hint=f"Fetch it from {client.url}/v1/jobs/{job.job_id}/result.zip, or export again.",
        ) from error


def _told(screen: Screen, client: Client, job: Job, written: Path | None) -> int:
    if job.result is None:
        detail, step = why_dead(job, None)
        screen.fail(f"Job {job.job_id} is dead ({job.reason}): {detail}", step)
        return 1
    if not screen.json_mode:
        screen.say(f"Exported by {client.url}.", style="bold green")
        if written is not None:
            screen.row("bundle", str(written))
        screen.row("digest", job.result.digest)
        screen.row("job", job.job_id)
        screen.row("read it", f"{client.url}/v1/jobs/{job.job_id}/result.html", wrap=True)
    return 0
