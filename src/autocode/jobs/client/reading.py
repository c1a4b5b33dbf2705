"""The calls that change nothing: jobs, lists, counts, the audit and health."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import httpx

from autocode.jobs.client.transport import Transport
from autocode.jobs.errors import JobNotFound
from autocode.jobs.model import TERMINAL, JobStatus
from autocode.jobs.resource import AuditEntry, AuditPage, Counts, Job, JobPage, RetryPreview

__all__ = ["Reading", "path_of"]

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_HOLD_SECONDS: Final = 25.0
"""How long the service is asked to hold an answer; less than proxies and it itself allow."""


class Reading:
    """What a client reads; each call is repeated while the service is away.

    Args:
        transport: to the service.
        sleep: waits for some seconds.
        monotonic: the clock of its patience, in seconds.
    """

    def __init__(
        self, transport: Transport, *, sleep: Callable[[float], None], monotonic: Callable[[], float]
    ) -> None:
        self._transport = transport
        self._sleep = sleep
        self._monotonic = monotonic

    def get(self, job_id: str) -> Job:
        """Return a job as it is now.

        Raises:
            JobNotFound: there is none of this id that the token may see.
        """
        return Job.model_validate(self._transport.send("GET", path_of(job_id), again=True).json())

    def follow(self, job_id: str, *, timeout: float | None = None) -> Iterator[Job]:
        """Yield the job now and after every change that is seen, until it is complete or dead.

        Revisions that come in quick succession may be skipped; the last one never is.

        Args:
            job_id: the job.
            timeout: seconds for all of it; for ever where none is given.

        Raises:
            JobNotFound: there is none of this id that the token may see.
            TimeoutError: the job is still under way after *timeout* seconds.
        """
        until = None if timeout is None else self._monotonic() + timeout
        job = self.get(job_id)
        yield job
        while job.status not in TERMINAL:
            left = _HOLD_SECONDS if until is None else until - self._monotonic()
            if left <= 0:
                raise TimeoutError(f"Job {job_id} is still {job.status} after {timeout:g} s.")
            hold = max(1, min(int(left), int(_HOLD_SECONDS)))
            asked = self._monotonic()
            answer = self._transport.send(
                "GET",
                path_of(job_id),
                again=True,
                headers={"If-None-Match": f'"{job.rev}"', "Prefer": f"wait={hold}"},
                wait=hold,
                within=left,
            )
            if answer.status_code != httpx.codes.NOT_MODIFIED:
                job = Job.model_validate(answer.json())
                yield job
            elif self._monotonic() - asked < hold / 2:
                # the service holds too many already, or is about to end
                self._sleep(min(1.0, left))

    def wait(self, job_id: str, *, timeout: float | None = None) -> Job:
        """Return the job when it is complete or dead; see :meth:`follow`.

        Raises:
            JobNotFound: there is none of this id that the token may see.
            TimeoutError: the job is still under way after *timeout* seconds.
        """
        job = None
        for job in self.follow(job_id, timeout=timeout):  # noqa: B007 - the last one is wanted
            pass
        assert job is not None
        return job

    def list_jobs(
        self,
        *,
        status: Sequence[JobStatus | str] = (),
        kind: str | None = None,
        session_id: str | None = None,
        q: str | None = None,
        origin: str | None = None,
        page_size: int = 50,
    ) -> Iterator[Job]:
        """Yield the jobs that fit, newest first, page by page.

        Args:
            status: any of these; all where none are given.
            kind: only of this kind.
            session_id: only of this session.
            q: only those with this text in an id.
            origin: only from there: ``cli``, ``api`` or ``prefect``.
            page_size: jobs fetched at a time; the service gives 200 at most.

        Raises:
            UsageError: the filter makes no sense.
        """
        query = _filter(status, kind, session_id, q, origin)
        token: str | None = None
        while True:
            page = self.page({**query, "page_size": page_size, "page_token": token})
            yield from page.jobs
            token = page.next_page_token
            if token is None:
                return

    def page(self, query: Mapping[str, Any]) -> JobPage:
        """Return one page, by the parameters of the HTTP interface.

        Raises:
            UsageError: the filter or the page's token makes no sense.
        """
        return JobPage.model_validate(self._transport.send("GET", "/v1/jobs", again=True, query=query).json())

    def counts(
        self,
        *,
        status: Sequence[JobStatus | str] = (),
        kind: str | None = None,
        session_id: str | None = None,
        q: str | None = None,
        origin: str | None = None,
    ) -> Counts:
        """Return how many jobs are in each state, for the same filter as :meth:`list_jobs`.

        Raises:
            UsageError: the filter makes no sense.
        """
        query = _filter(status, kind, session_id, q, origin)
        return Counts.model_validate(
            self._transport.send("GET", "/v1/counts", again=True, query=query).json()
        )

    def retry_preview(self, job_id: str) -> RetryPreview:
        """Return what a manual retry would reuse and do again, and which effects may repeat.

        Raises:
            JobNotFound: there is none of this id that the token may see.
        """
        answer = self._transport.send("GET", path_of(job_id, "/retry"), again=True)
        return RetryPreview.model_validate(answer.json())

    def audit(
        self, *, target: str | None = None, actor: str | None = None, action: str | None = None
    ) -> Iterator[AuditEntry]:
        """Yield the entries of the audit that the token may see, newest first, page by page.

        Args:
            target: only about this, such as a job's id.
            actor: only with this text in the actor's name.
            action: only of this action.
        """
        query = {"target": target, "actor": actor, "action": action, "page_size": 500}
        token: str | None = None
        while True:
            answer = self._transport.send(
                "GET", "/v1/audit", again=True, query={**query, "page_token": token}
            )
            page = AuditPage.model_validate(answer.json())
            yield from page.entries
            token = page.next_page_token
            if token is None:
                return

    def health(self) -> dict[str, Any]:
        """Return what the service knows of its parts, as ``/readyz`` says it.

        Raises:
            ServiceUnavailable: it doesn't answer; where only its ledger is away, that is part of the answer.
        """
        away = (httpx.codes.SERVICE_UNAVAILABLE,)
        found: dict[str, Any] = self._transport.send("GET", "/readyz", again=False, also=away).json()
        return found


def path_of(job_id: str, rest: str = "") -> str:
    """Return the path of a job, or of something below it.

    Raises:
        JobNotFound: no job can have this id.
    """
    if not _ID.fullmatch(job_id):
        # a dot or a slash in it would lead to another address
        raise JobNotFound(f"There is no job {job_id!r}.")
    return f"/v1/jobs/{job_id}{rest}"


def _filter(
    status: Sequence[JobStatus | str],
    kind: str | None,
    session_id: str | None,
    q: str | None,
    origin: str | None,
) -> dict[str, Any]:
    return {
        "status": [str(each) for each in status],
        "kind": kind,
        "session_id": session_id,
        "q": q,
        "origin": origin,
    }
