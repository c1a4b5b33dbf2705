"""The export kind: its steps, and the order in which they run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from autocode.jobs.errors import NoSessions
from autocode.jobs.kinds import Call, JobContext, Kind, Produced, StepContext, register
from autocode.jobs.operations.export.bundle import write_manifest
from autocode.jobs.operations.export.payload import (
    BundleInputs,
    ExportPayload,
    FilePart,
    FoundFile,
    ReadInputs,
    ScanInputs,
    ScanResult,
)
from autocode.jobs.operations.export.read import read_session
from autocode.jobs.operations.export.scan import scan_sources
from autocode.jobs.operations.export.summary import summarize_export
from autocode.jobs.redaction import DEFAULT_POLICY, CustomRules, Policy, Redactor

__all__ = ["EXPORT", "bundle", "read", "scan"]


def _sessions(payload: ExportPayload) -> frozenset[str] | None:
    """Return none beside the job's own where all is snapshots, which are of that or of no session.

    Whose sessions lie in the folder of a root nobody knows before it was read.
    """
    return frozenset() if all(source.snapshot is not None for source in payload.sources) else None


EXPORT: Final = register(
    Kind(
        "export",
        payload=ExportPayload,
        flow="export.py:export",
        max_attempts=5,
        time_limit=6 * 3600.0,
        # a payload sorts its sources, so where each stood in the request isn't known
        roots=lambda payload: [("/sources", source.root) for source in payload.sources if source.root],
        snapshots=lambda payload: [
            ("/sources", source.snapshot) for source in payload.sources if source.snapshot is not None
        ],
        sessions=_sessions,
    )
)

_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")


@EXPORT.step(per_job=True)
def scan(context: StepContext, inputs: ScanInputs) -> Produced:
    """Freeze the input."""
    return scan_sources(context, inputs)


def _after(inputs: ReadInputs, before: Produced) -> ReadInputs:
    return inputs.model_copy(update={"before": before.digest})


@EXPORT.step(revision=2, apart=True, follow=_after)
def read(context: StepContext, inputs: ReadInputs) -> Produced:
    """Turn one session into the normal form."""
    return read_session(context, inputs)


@EXPORT.step(revision=2)
def bundle(context: StepContext, inputs: BundleInputs) -> Produced:
    """Write the manifest."""
    return write_manifest(context, inputs)


EXPORT.summarize(summarize_export)


@EXPORT.main
async def run(job: JobContext[ExportPayload]) -> Produced:
    """Export what the payload selects.

    Raises:
        NoSessions: no file in the selection is a session that a reader understands.
    """
    payload = job.payload
    policy = payload.policy
    scanned = await job.step(scan, ScanInputs(sources=payload.sources, rehash=payload.rehash))
    found = ScanResult.model_validate_json(job.read(scanned.digest))
    _some_session(found)
    # the same bytes under two names are one session
    files = {file.sha256: file for file in reversed(found.files)}
    wanted = [files[sha256] for sha256 in sorted(files)]
    # by digest: a file is a model, and comparing each with each takes as long as reading them
    exported = {file.sha256: file for file in wanted if file.reader is not None or not payload.redact}
    chains = [list(_parts_of(file, policy, payload.rules)) for file in exported.values()]
    entries = [
        entry.digest for entry in await job.steps(read, chains, label="read {} sessions", unit="bytes")
    ]
    return await job.step(
        bundle,
        BundleInputs(
            entries=tuple(sorted(entries)),
            unread=tuple(
                sorted((file.label, file.sha256, file.size) for file in wanted if file.sha256 not in exported)
            ),
            left_out=found.reasons,
            policy=None if policy is None else _described(policy),
        ),
    )


def _parts_of(
    file: FoundFile, policy: Policy | None, rules: CustomRules | None
) -> Iterator[Call[ReadInputs]]:
    """Yield the call for each part, but for what the part before left."""
    parts = file.cut()
    offset = 0
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        yield Call(
            _label(file, number, len(parts), policy or DEFAULT_POLICY),
            ReadInputs(
                size=part.size,
                sha256=part.sha256,
                last=last,
                before=None,
                whole=FilePart(size=file.size, sha256=file.sha256) if last and number > 1 else None,
                reader=file.reader,
                revision=file.revision,
                policy=None if policy is None else policy.digest,
                raw=policy is None,
                rules=rules,
                path=file.path,
                name=file.name,
                offset=offset,
            ),
            part.size,
        )
        offset += part.size


def _described(policy: Policy) -> dict[str, str | int]:
    return {"name": policy.name, "revision": policy.revision, "digest": policy.digest}


def _label(file: FoundFile, number: int, parts: int, policy: Policy = DEFAULT_POLICY) -> str:
    # the label is shown, and stored by Prefect: a secret in a file's name must not get there
    stem = str(Redactor(policy).redact(file.name.rpartition("/")[2].removesuffix(".jsonl")))
    label = f"read {_ODD.sub('_', stem)[:48]} {file.sha256.removeprefix('sha256:')[:12]}"
    return label if parts == 1 else f"{label} part {number}/{parts}"


def _some_session(found: ScanResult) -> None:
    if any(file.reader is not None for file in found.files):
        return
    kinds = Counter(file.label for file in found.files)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "no file at all"
    left = f"; left out: {sum(found.reasons.values())}" if found.reasons else ""
    raise NoSessions(f"The selection holds no session that a reader understands: {told}{left}.")
