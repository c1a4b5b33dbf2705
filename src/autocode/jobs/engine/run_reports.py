"""The report of an attempt as a Prefect artifact of its run: written when it is over, by whoever is left.

An attempt that ends by itself writes its own (:mod:`.run_page`); for one that died, was handed back or was
ended by somebody else, the reconciler does (:class:`Reports`). It is an aid for people: whatever goes wrong
with it is logged, and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
)

from autocode.jobs import kinds
from autocode.jobs.engine.naming import artifact_key
from autocode.jobs.engine.report_text import report_text
from autocode.jobs.engine.rescue import SeenRun
from autocode.jobs.engine.system import System
from autocode.jobs.engine.threads import in_daemon_thread
from autocode.jobs.ledger.reports import AttemptReport, attempt_report
from autocode.jobs.projection import Outcome

__all__ = ["REPORT", "Reports", "write_report"]

REPORT: Final = "report"
"""What the key of a report ends with."""

_WRITE_SECONDS: Final = 5.0
"""How long the reconciler tries; nobody waits for it meanwhile."""

_SUMMARY_SECONDS: Final = 1.0
"""How long a kind may take to tell its result in numbers."""

_SMALL: Final = 256 << 20
"""Bytes that may be read into memory at once, as for steps."""

_OWN: Final = {
    "COMPLETED": frozenset({Outcome.COMPLETED}),
    "FAILED": frozenset({Outcome.FAILED, Outcome.PERMANENT, Outcome.TIMED_OUT}),
    "CANCELLED": frozenset({Outcome.CANCELLED}),
}
"""States in which an attempt's own process leaves its run, after it wrote the report, by the outcome."""

_log = logging.getLogger(__name__)


def _read(system: System, digest: str) -> bytes:
    with system.store.open(digest) as reader:
        return reader.read_all(limit=_SMALL)


async def write_report(client: PrefectClient, system: System, job_id: str, n: int, run_id: UUID) -> None:
    """Write the report of attempt *n*, which is over, as an artifact of its run. Not idempotent.

    Raises:
        JobNotFound: no job has this id.
        LookupError: the job has no attempt *n*.
        LedgerUnavailable: the ledger's database can't be reached.
        httpx.HTTPError: Prefect is away, or refuses.
    """
    report = await in_daemon_thread(attempt_report, system.db, job_id, n)
    numbers = await _numbers(system, report)
    await client.create_artifact(
        ArtifactCreate(
            key=artifact_key(job_id, REPORT),
            type="markdown",
            description=f"What attempt {n} of job {job_id} left, and where to go on.",
            data=report_text(report, numbers),
            flow_run_id=run_id,
        )
    )


async def _numbers(system: System, report: AttemptReport) -> Mapping[str, int]:
    """Return the result in the kind's own numbers; empty where there are none, or not in time."""
    if report.result is None:
        return {}
    job = report.rows.job
    try:
        async with asyncio.timeout(_SUMMARY_SECONDS):
            kind = kinds.get(job.kind)
            return await in_daemon_thread(kind.summary_of, partial(_read, system), report.result)
    except Exception as error:  # noqa: BLE001 - it is a kind's own code, and only an aid
        _log.info("no summary: %s: %s", type(error).__name__, error, extra={"job_id": job.job_id})
        return {}


class Reports:
    """Sees to it that attempts which can't tell for themselves have a report.

    Args:
        system: the opened home.
        client: an open client.
        patience: seconds that a call waits for a report to be written; by default it doesn't.
    """

    def __init__(self, system: System, client: PrefectClient, *, patience: float = 0.0) -> None:
        self._system = system
        self._client = client
        self._patience = patience
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def settled(self, attempt: sa.Row[Any], seen: SeenRun) -> bool:
        """Say whether no report of *attempt*, which is over, has to be written (any more); never raises.

        Ask again until it is so: the report is written aside. A failure settles it, too.

        Args:
            attempt: the attempt's row.
            seen: what Prefect said of its run before the run was closed.
        """
        key = (attempt.job_id, attempt.n)
        if key not in self._tasks:
            own = Outcome(attempt.outcome) in _OWN.get(seen.state.type or "", ())
            if own or seen.state.gone or attempt.flow_run_id is None or attempt.begun_at is None:
                return True
            self._tasks[key] = asyncio.create_task(self._write(*key, UUID(attempt.flow_run_id)))
        await asyncio.wait({self._tasks[key]}, timeout=self._patience)
        if not self._tasks[key].done():
            return False
        del self._tasks[key]
        return True

    async def _write(self, job_id: str, n: int, run_id: UUID) -> None:
        about = {"job_id": job_id, "attempt": n}
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                if not await self._is_written(job_id, run_id):
                    await write_report(self._client, self._system, job_id, n, run_id)
        except Exception as error:  # noqa: BLE001 - an aid must not keep a job from going on
            _log.info("no report in Prefect: %s: %s", type(error).__name__, error, extra=about)

    async def _is_written(self, job_id: str, run_id: UUID) -> bool:
        wanted = ArtifactFilter(
            key=ArtifactFilterKey(any_=[artifact_key(job_id, REPORT)]),
            flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]),
        )
        return bool(await self._client.read_artifacts(artifact_filter=wanted, limit=1))
