"""The job resource as this interface shows it: with a link to the run in Prefect's UI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from autocode.jobs.api.problems import JsonResponse
from autocode.jobs.errors import JobNotFound
from autocode.jobs.ledger import glances, queries, scopes
from autocode.jobs.ledger.access import Principal
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import TERMINAL, JobStatus
from autocode.jobs.resource import Job

__all__ = ["answer", "etag", "load", "run_page", "with_runs"]

_PAUSES: Final = {JobStatus.QUEUED: 1, JobStatus.RUNNING: 2, JobStatus.RETRY: 5}
"""Seconds after which looking again may be worth it."""


def load(db: Database, caller: Principal, job_id: str, ui: str | None) -> Job:
    """Return the job as it was last persisted.

    Raises:
        JobNotFound: no job has this id, or *caller* may not see it; the two can't be told apart.
    """
    with db.read() as tx:
        job = queries.get_within(tx, job_id)
        if not caller.sees(scopes.of_job(tx, job_id)):
            raise JobNotFound(f"There is no job {job_id!r}.")
    return with_runs(db, [job], ui)[0]


def with_runs(db: Database, jobs: Sequence[Job], ui: str | None) -> list[Job]:
    """Return *jobs* with the link to the run of the attempt that each of them tells of.

    That attempt is fixed by the revision, and so is its run: the link moves with ``rev``, as everything does.
    """
    told = {(job.job_id, job.attempts) for job in jobs if job.attempts > 0}
    if ui is None or not told:
        return list(jobs)
    runs = glances.runs_of(db, told)
    return [
        _linked(job, run_page(ui, runs[job.job_id, job.attempts]))
        if (job.job_id, job.attempts) in runs
        else job
        for job in jobs
    ]


def run_page(ui: str, run: str) -> str:
    """Return where Prefect's UI shows a flow run."""
    return f"{ui}/runs/flow-run/{run}"


def etag(job: Job) -> str:
    """Return the entity tag of the job's revision."""
    return f'"{job.rev}"'


def answer(job: Job, *, status: int = 200, created: bool | None = None) -> Response:
    """Return the resource as a response, with its ETag and, while it isn't terminal, ``Retry-After``.

    Args:
        job: what to show.
        status: the status of the response.
        created: for a request that may make a job: whether it did.
    """
    headers = {
        "ETag": etag(job),
        "Cache-Control": "private, no-cache",
        "Vary": "Authorization, Cookie, Prefer",
    }
    if job.status not in TERMINAL:
        headers["Retry-After"] = str(_PAUSES[job.status])
    if created is not None:
        headers["Location"] = f"/v1/jobs/{job.job_id}"
    if created is False:
        headers["Idempotency-Replayed"] = "true"
    if status == 304:
        return Response(status_code=status, headers=headers)
    return JsonResponse(job.to_json(), status_code=status, headers=headers)


def _linked(job: Job, href: str) -> Job:
    return job.model_copy(update={"links": {**job.links, "prefect": href}})
