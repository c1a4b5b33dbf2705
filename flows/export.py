"""Export coding-agent sessions into a bundle that proves what is in it.

Each step is a Prefect task with retries; one done before shows as ``Cached``. The work itself is in
``autocode.jobs.operations.export``.
"""

from __future__ import annotations

from prefect import flow

from autocode.jobs.engine.attempt import run_attempt
from autocode.jobs.engine.steps import step_task
from autocode.jobs.operations.export import EXPORT, ExportPayload, Source
from autocode.jobs.operations.export import bundle as bundle_step
from autocode.jobs.operations.export import read as read_step
from autocode.jobs.operations.export import scan as scan_step
from autocode.jobs.redaction import CustomRules

scan = step_task(scan_step)
read = step_task(read_step)
bundle = step_task(bundle_step)


@flow(name=EXPORT.name, persist_result=False, log_prints=False)
async def export(
    sources: list[Source], redact: bool = True, rules: CustomRules | None = None, rehash: bool = False
) -> str:
    """Export the sessions that *sources* select; return the digest of the bundle's manifest."""
    asked = ExportPayload(sources=tuple(sources), redact=redact, rules=rules, rehash=rehash)
    return await run_attempt(EXPORT, asked.model_dump(mode="json"), (scan, read, bundle))
