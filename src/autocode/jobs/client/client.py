"""Every call of the HTTP interface as a method."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import httpx

from autocode.jobs.client.bulk import retry_many
from autocode.jobs.client.download import VIEWS, Progress, fetch
from autocode.jobs.client.notifications import Notifications
from autocode.jobs.client.reading import Reading, path_of
from autocode.jobs.client.transport import Transport
from autocode.jobs.client.upload import Uploaded, send_files
from autocode.jobs.errors import UsageError
from autocode.jobs.resource import BulkRetry, Job

if TYPE_CHECKING:
    from autocode.jobs.client.events import Event, Reset

__all__ = ["Accepted", "Client"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What came of a request for a job.

    Args:
        job: the job, as it was right after it was accepted.
        created: whether this request made it; ``False`` where the same request had been accepted before.
    """

    job: Job
    created: bool


class Client(Reading):
    """A client of one service. One thread at a time may use it.

    Every call raises ``ServiceUnavailable`` where the service doesn't answer, ``TokenInvalid`` and
    ``NotAllowed`` where the token doesn't do (all in :mod:`autocode.jobs.request_errors`); what else it
    raises stands with it.
    Reading, submitting and cancelling are repeated for *patience* seconds while the service is away: they
    can't happen twice.

    Args:
        url: where the service is, ``http://127.0.0.1:4280``.
        token: what lets you in; it is sent to no other host, and shown nowhere.
        patience: seconds for which calls are repeated while the service or its database is away.
        timeout: seconds that one answer may take.
        pinned: a file with the one certificate that the service has, whatever name it is called by.
        transport: httpx's transport, for tests.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience: float = 30.0,
        timeout: float = 10.0,
        pinned: str | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            Transport(
                url,
                token,
                patience=patience,
                timeout=timeout,
                pinned=pinned,
                transport=transport,
                sleep=sleep,
                monotonic=monotonic,
            ),
            sleep=sleep,
            monotonic=monotonic,
        )
        self._token = token
        self._patience = patience

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    @property
    def notifications(self) -> Notifications:
        """Who is told that jobs ended, and what came of it."""
        return Notifications(self._transport)

    @property
    def url(self) -> str:
        """Where the service is."""
        return self._transport.url

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def enqueue(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        job_id: str | None = None,
        key: str | None = None,
        session_id: str | None = None,
    ) -> Accepted:
        """Ask for a job; durable when this returns. Idempotent by id or key, and so repeated if need be.

        Args:
            kind: the job kind's name.
            payload: its payload, JSON values.
            job_id: the job's id; the service makes one where none is given.
            key: an idempotency key; a fresh one where neither it nor an id is given.
            session_id: whose session the job belongs to.

        Raises:
            KindUnknown: the service has no such kind.
            PayloadInvalid: the payload doesn't fit; ``data['fields']`` points at each field.
            JobConflict: the id or key belongs to another request; ``data['differs']`` names what differs.
            UsageError: an id isn't one that the contract allows.
        """
        if job_id is None and key is None:
            key = str(uuid.uuid4())
        body = {"kind": kind, "payload": dict(payload), "job_id": job_id, "session_id": session_id}
        answer = self._transport.send(
            "POST",
            "/v1/jobs",
            again=True,
            json={name: value for name, value in body.items() if value is not None},
            headers={} if key is None else {"Idempotency-Key": f'"{key}"'},
        )
        return Accepted(Job.model_validate(answer.json()), answer.status_code == httpx.codes.ACCEPTED)

    def events(
        self, after: str | None = None, *, job_id: str | None = None, session_id: str | None = None
    ) -> Iterator[Event | Reset]:
        """Yield what happens to jobs, for ever, over as many connections as it takes; nothing is left out.

        To show a list and keep it right: read a page, follow the events after its ``event_cursor``, and take
        each event's job where its ``rev`` isn't lower than that of the one shown. At a :class:`Reset` read
        the page again, and go on.

        Args:
            after: a cursor of a page, of counts or of an event; from now on where none is given.
            job_id: only events of this job.
            session_id: only events of this session.

        Raises:
            TokenInvalid: the token doesn't work, or doesn't any more.
            NotAllowed: there is no such job or session that the token may see.
            ServiceUnavailable: the service was away for longer than the client's patience.
        """
        # takes a while to load, and few calls need it
        from autocode.jobs.client.events import Stream  # noqa: PLC0415 - see above

        return iter(
            Stream(
                self.url,
                self._token,
                after=after,
                job_id=job_id,
                session_id=session_id,
                patience=self._patience,
                sleep=self._sleep,
                monotonic=self._monotonic,
            )
        )

    def retry(
        self,
        job_id: str,
        *,
        reason: str,
        rev: int,
        start: Literal["checkpoint", "start"] = "checkpoint",
        attempts: int | None = None,
    ) -> Job:
        """Give a dead job further attempts. Sent once: where the answer is lost, read the job.

        Args:
            job_id: the job.
            reason: why, for the audit.
            rev: the revision that this was decided on.
            start: ``checkpoint`` reuses what was done; ``start`` does every step again.
            attempts: how many more may fail; the service's default where none is given.

        Raises:
            JobNotDead: only dead jobs can be retried.
            JobNotFound: there is none of this id that the token may see.
            RevisionMoved: somebody else was first.
        """
        body: dict[str, Any] = {"reason": reason, "from": start}
        if attempts is not None:
            body["attempts"] = attempts
        answer = self._transport.send(
            "POST", path_of(job_id, "/retry"), again=False, json=body, headers={"If-Match": f'"{rev}"'}
        )
        return Job.model_validate(answer.json())

    def retry_many(
        self,
        *,
        ids: Sequence[str] | None = None,
        chosen: Mapping[str, Any] | None = None,
        seen: BulkRetry | None = None,
        reason: str | None = None,
        start: Literal["checkpoint", "start"] = "checkpoint",
        attempts: int | None = None,
        dry_run: bool = False,
    ) -> BulkRetry:
        """Retry many dead jobs, 500 at most; each is decided by itself.

        To retry exactly what was looked at: a dry run first, and then ``seen=`` with what it answered. A job
        that moved in between is refused, also where a lost answer made this send the request again.

        Args:
            ids: the jobs, as they are when the request comes.
            chosen: a filter, of ``kind``, ``session_id``, ``reason``, ``q`` and ``origin``: its dead letters.
            seen: the answer to a dry run: its jobs, at the revisions that it shows.
            reason: why, for the audit; a dry run needs none.
            start: ``checkpoint`` reuses what was done; ``start`` does every step again.
            attempts: how many more may fail; the service's default where none is given.
            dry_run: say what would be retried, and change nothing.

        Raises:
            NotAllowed: the token's role is too small.
            UsageError: not exactly one of *ids*, *chosen* and *seen*, no reason, or too many jobs.
        """
        return retry_many(
            self._transport,
            ids=ids,
            chosen=chosen,
            seen=seen,
            reason=reason,
            start=start,
            attempts=attempts,
            dry_run=dry_run,
        )

    def cancel(self, job_id: str, *, reason: str) -> Job:
        """Call a job off. Idempotent.

        Raises:
            JobFinished: its result is committed, or it is over.
            JobNotFound: there is none of this id that the token may see.
        """
        answer = self._transport.send("POST", path_of(job_id, "/cancel"), again=True, json={"reason": reason})
        return Job.model_validate(answer.json())

    def download(
        self, job_id: str, path: Path, *, view: str | None = None, progress: Progress | None = None
    ) -> Path:
        """Fetch a job's result into a file, and return its path. Atomic; replaces what is there.

        A connection that breaks is taken up where it broke. The bytes are compared with the digest that the
        job has, or that the service names for a view.

        Args:
            job_id: the job.
            path: the file; its folder must exist.
            view: ``zip``, ``html`` or ``markdown`` of an export; the result itself where none is given.
            progress: told the bytes done and in all; may raise to stop.

        Raises:
            JobNotFound: there is none of this id that the token may see.
            MemberNotFound: the result is no export, so it has no views.
            ResultDamaged: the bytes are damaged, there or on their way; nothing is left behind.
            ResultExpired: retention removed them.
            ResultNotReady: the job isn't complete.
            UsageError: there is no such view, or the file can't be written.
        """
        if view is not None and view not in VIEWS:
            raise UsageError(f"There is no view {view!r} to fetch.", hint=f"Fetch one of {', '.join(VIEWS)}.")
        address = path_of(job_id, f"/{'result' if view is None else VIEWS[view]}")
        result = self.get(job_id).result if view is None else None
        digest = None if result is None else result.digest
        return fetch(self._transport, address, path, digest=digest, progress=progress)

    def upload(
        self,
        source: Path | Mapping[str, Path],
        *,
        session_id: str | None = None,
        progress: Progress | None = None,
    ) -> Uploaded:
        """Send files to the service as a snapshot, which an export can name. Idempotent.

        Files that this token sent before aren't sent again, so an interrupted call is taken up by the next
        one. Name what is answered in a payload: ``{"sources": [{"snapshot": digest}]}``.

        Args:
            source: a folder, of which every file is sent; or files by the paths that the snapshot gives them.
            session_id: whose session the snapshot belongs to.
            progress: told the bytes done and in all; may raise to stop.

        Raises:
            RequestTooLarge: a file is larger than the service takes.
            SourceChanged: a file changes faster than it can be sent.
            SourceUnreadable: a file that was named can't be read.
            UsageError: the folder doesn't exist, or there is no file.
        """
        return send_files(self._transport, source, session_id=session_id, progress=progress)

    def login_link(self, role: str = "admin") -> str:
        """Return a link that opens one browser session; it works once, and for a quarter of an hour.

        Args:
            role: what the browser may do: ``viewer``, ``operator`` or ``admin``.

        Raises:
            NotAllowed: the token's role isn't admin.
        """
        answer = self._transport.send("POST", "/v1/logins", again=False, json={"role": role})
        return f"{self.url}{answer.json()['path']}"
