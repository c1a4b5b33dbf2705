"""Following events: one stream over as many connections as it takes, without a gap."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from pydantic import ValidationError
from websockets.asyncio import client as asynchronous
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync import client as synchronous

from autocode.jobs.client.transport import is_loopback
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.request_errors import NotAllowed, RequestRefused, ServiceUnavailable, TokenInvalid
from autocode.jobs.resource import Job

__all__ = ["Event", "Reset", "Stream"]

_SILENCE_SECONDS: Final = 60.0
"""A connection that says nothing for so long is given up; the service says something every 15 s."""

_OPEN_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 1.0
_LARGEST: Final = 16 << 20
_PAUSES: Final = (0.1, 0.3, 1.0, 2.0)
_ENDINGS: Final[Mapping[int, type[JobsError]]] = {1008: UsageError, 4401: TokenInvalid, 4403: NotAllowed}
"""Codes of a close after which another connection is no use."""

_LOST: Final = (WebSocketException, OSError, TimeoutError, EOFError)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job, and is committed.

    Args:
        cursor: where to go on after it.
        type: ``job.queued``, ``job.running``, ``job.checkpoint`` …
        job_id: which job.
        time: when it happened.
        job: the job right after it, with an empty history.
    """

    cursor: str
    type: str
    job_id: str
    time: str
    job: Job


@dataclass(frozen=True, slots=True)
class Reset:
    """Events are missing: fetch everything again. What happened after *cursor* follows."""

    cursor: str


class Stream:
    """The events of one service from a cursor on. Use one of its two iterators, once.

    A connection that is lost is made again, after a pause, from the last event that was handed out; who takes
    events too slowly for the service loses none.

    Args:
        url: where the service is.
        token: what lets you in.
        after: the cursor to begin after; from now on where none is given.
        job_id: only events of this job.
        session_id: only events of this session.
        patience: seconds for which a service that is away is tried again.
        sleep: how the synchronous iterator pauses.
        monotonic: a clock in seconds.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        after: str | None = None,
        job_id: str | None = None,
        session_id: str | None = None,
        patience: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        self._url = url
        self._address = f"{'wss' if parts.scheme == 'https' else 'ws'}://{parts.netloc}/v1/events"
        self._options: dict[str, Any] = {
            "additional_headers": {"Authorization": f"Bearer {token}"},
            # proxies of the environment are for other hosts than this one
            "proxy": None if is_loopback(parts.hostname or "") else True,
            "compression": None,
            "max_size": _LARGEST,
            "open_timeout": _OPEN_SECONDS,
            "close_timeout": _CLOSE_SECONDS,
        }
        self._scope = {"job_id": job_id, "session_id": session_id}
        self._patience = patience
        self._sleep = sleep
        self._monotonic = monotonic
        self._failures = 0
        self._failing_since: float | None = None
        self.cursor = after
        """Up to where everything was handed out; ``None`` before the first word of the service."""

    def __iter__(self) -> Iterator[Event | Reset]:
        """Yield what happens, for ever.

        Raises:
            TokenInvalid: the token doesn't work, or doesn't any more.
            NotAllowed: there is no such job or session that the token may see.
            UsageError: the service doesn't understand the request.
            RequestRefused: the service doesn't answer to the name it was called by.
            ServiceUnavailable: it didn't answer for as long as the patience lasts.
        """
        while True:
            try:
                with closing(synchronous.connect(self._where(), **self._options)) as connection:
                    while True:
                        found = self._take(connection.recv(timeout=_SILENCE_SECONDS))
                        if found is not None:
                            yield found
            except _LOST as error:
                self._sleep(self._pause(error))

    async def __aiter__(self) -> AsyncIterator[Event | Reset]:
        """Yield what happens, for ever; raises what the synchronous iterator does."""
        while True:
            try:
                async with asynchronous.connect(self._where(), **self._options) as connection:
                    while True:
                        async with asyncio.timeout(_SILENCE_SECONDS):
                            message = await connection.recv()
                        found = self._take(message)
                        if found is not None:
                            yield found
            except _LOST as error:
                await asyncio.sleep(self._pause(error))

    def _where(self) -> str:
        asked = {**self._scope, "after": self.cursor}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return f"{self._address}?{query}" if query else self._address

    def _take(self, message: str | bytes) -> Event | Reset | None:
        """Return what a message says, and remember how far it leads."""
        try:
            body = json.loads(message)
            found = _read(body)
            cursor = found.cursor if found is not None else body["cursor"]
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise ServiceUnavailable(
                f"{self._url} sent a message that isn't one of its own: {type(error).__name__}.",
                hint="Check that the address is that of an autocode-jobs service of this version.",
            ) from error
        self._failures, self._failing_since = 0, None
        # a ping has none while the ledger is away
        self.cursor = cursor if cursor is not None else self.cursor
        return found

    def _pause(self, error: Exception) -> float:
        """Return how long to wait before the next connection.

        Raises:
            JobsError: there is no use in another.
        """
        refusal = _refusal(error)
        if refusal is not None:
            raise refusal from error
        now = self._monotonic()
        if self._failing_since is None:
            self._failing_since = now
        # not all at once: a service that comes back has many who were waiting
        pause = _PAUSES[min(self._failures, len(_PAUSES) - 1)] * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._failures += 1
        if now + pause > self._failing_since + self._patience:
            said = f"{type(error).__name__}: {error}".rstrip(": ")
            raise ServiceUnavailable(f"{self._url} doesn't tell of events: {said}.") from error
        return pause


def _read(body: dict[str, Any]) -> Event | Reset | None:
    if "specversion" in body:
        job = Job.model_validate(body["data"])
        return Event(body["id"], body["type"], body["subject"], body["time"], job)
    return Reset(body["cursor"]) if body["type"] == "reset" else None


def _refusal(error: Exception) -> JobsError | None:
    """Return the error that the end of a connection stands for; ``None`` where another one may help."""
    if isinstance(error, InvalidStatus):
        code = error.response.status_code
        if code == 403:
            return RequestRefused("The service refused the connection before it was open.")
        return (
            None if code >= 500 else ServiceUnavailable(f"The service answered {code}, and opened no socket.")
        )
    if not isinstance(error, ConnectionClosed) or error.rcvd is None:
        return None
    refusal = _ENDINGS.get(error.rcvd.code)
    if refusal is None:
        return None
    return refusal(f"The service closed the connection: {error.rcvd.reason}.")
