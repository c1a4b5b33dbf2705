"""Events for many: one reader of the ledger, and everybody who follows goes through what it read.

What was read is kept once, in a ring, and not once for each. Who falls out of the ring because the other end
doesn't take what is sent is closed; who does because this process has too much to do reads the ledger by
itself until the ring has what is next.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from autocode.jobs.api.listening import Listening
from autocode.jobs.api.resources import run_page
from autocode.jobs.api.ring import Entry, Ring
from autocode.jobs.api.settings import Settings
from autocode.jobs.api.threads import RequestCalls, Threads
from autocode.jobs.clock import rfc3339
from autocode.jobs.errors import JobsError
from autocode.jobs.ledger import access, feed, glances
from autocode.jobs.ledger.access import Principal
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.feed import Scope, Told

__all__ = ["PROCESS_ENDS", "Ending", "Hub", "Subscriber"]

_log = logging.getLogger("autocode.jobs.api")

_PAGE: Final = 200
_OWN_PAGE: Final = 50
"""Events that one who catches up holds at once; there may be hundreds of them."""

_READERS: Final = 4
"""How many may read for themselves at once."""

_PAUSE_SECONDS: Final = 0.01
"""The least time between two looks, however much happens."""

_ANYWAY_SECONDS: Final = 1.0
"""How soon the ledger is asked without having been heard: a wake-up may be lost with its connection."""

_LINGER_SECONDS: Final = 10.0
"""How long to go on after the last one left."""

_SETTLE_SECONDS: Final = 2.0
"""How long to wait for those who take what is sent, before more is read."""

_ANSWER_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a socket is closed: a code of the contract, and a few words."""

    code: int
    reason: str


TOO_SLOW: Final = Ending(1013, "too slow: connect again with the last cursor")
TOKEN_ENDED: Final = Ending(4401, "the token is unknown, has expired or was revoked")
ACCESS_MOVED: Final = Ending(1012, "what the token may see has changed: connect again")
PROCESS_ENDS: Final = Ending(1012, "the service ends or starts again: connect again")
FAILED: Final = Ending(1011, "an error that nobody expected: connect again")


@dataclass(eq=False, slots=True)
class Subscriber:
    """One who follows.

    Args:
        caller: whose token let it in.
        scope: the jobs whose events it gets.
        position: the cursor up to which it has everything.
        ended: set to what the socket is to be closed with.
        is_live: it takes from the ring, and not from the ledger.
        sending_since: the loop's time at which what is being sent met a full socket; ``None``: nothing did.
    """

    caller: Principal
    scope: Scope
    position: int
    ended: asyncio.Future[Ending]
    is_live: bool = True
    sending_since: float | None = field(default=None)

    def end(self, ending: Ending) -> None:
        """Let the socket be closed with *ending*, unless it is being closed already."""
        if not self.ended.done():
            self.ended.set_result(ending)


class Hub:
    """Reads events while somebody follows them, and looks after those who do.

    Args:
        db: the ledger.
        threads: where it is read.
        listening: what wakes.
        epoch: the name of the ledger, which goes with every cursor.
        settings: the limits.
    """

    def __init__(
        self, db: Database, threads: Threads, listening: Listening, epoch: str, settings: Settings
    ) -> None:
        self._db = db
        self._threads = threads
        self._listening = listening
        self._epoch = epoch
        self._ui = settings.prefect_ui
        self._limits = settings.events
        self._subscribers: set[Subscriber] = set()
        self._readers = asyncio.Semaphore(_READERS)
        self._woken = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self.ring = Ring(self._limits.kept, self._limits.kept_bytes)
        self.moved = asyncio.Event()
        """Set when the ring has moved on; another one stands here from then on."""
        self.is_away = False
        """Whether the ledger didn't answer when it was last asked."""

    @property
    def following(self) -> int:
        """How many follow now."""
        return len(self._subscribers)

    @property
    def is_full(self) -> bool:
        """Whether nobody else can be let in."""
        return self._closed or len(self._subscribers) >= self._limits.sockets

    def cursor(self, number: int) -> str:
        """Return a cursor as it is written."""
        return f"{self._epoch}:{number}"

    @contextmanager
    def joined(self, subscriber: Subscriber, newest: int) -> Iterator[None]:
        """Let *subscriber* follow within the block; *newest* is the newest cursor that it was told of."""
        self._subscribers.add(subscriber)
        if self._closed:
            subscriber.end(PROCESS_ENDS)
        elif self._running is None or self._running.done():
            self.ring.begin(newest)
            self._running = asyncio.create_task(self._run())
        # the ring may be behind what this one knows
        self._woken.set()
        try:
            yield
        finally:
            self._subscribers.discard(subscriber)

    async def read_for(self, subscriber: Subscriber) -> tuple[list[Entry], int]:
        """Return what comes next for one who isn't in the ring, and how far that reaches.

        Of progress reports of one job the last is enough, since this one is late.

        Raises:
            LedgerUnavailable: the ledger doesn't answer.
        """
        async with self._readers:
            calls = RequestCalls(self._threads, _ANSWER_SECONDS)
            entries, reached, _ = await calls(
                self._page, subscriber.position, scope=subscriber.scope, limit=_OWN_PAGE
            )
        last = {entry.job_id: entry.number for entry in entries}
        return [
            each for each in entries if not (each.is_progress and last[each.job_id] > each.number)
        ], reached

    def close(self) -> None:
        """Let every socket be closed, and let nobody else in."""
        self._closed = True
        self._end_all(PROCESS_ENDS)
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        try:
            await self._follow()
        except Exception:  # noqa: BLE001 - whatever it is
            # sockets that stay open and silent would be worse than closed ones
            _log.exception("the reader of events failed")
            self._end_all(FAILED)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _LINGER_SECONDS
        check = loop.time() + self._limits.check_seconds
        with self._listening.to(self._woken):
            while self._subscribers or loop.time() < until:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(_ANYWAY_SECONDS, self._limits.check_seconds)):
                        await self._woken.wait()
                self._woken.clear()
                if self._subscribers:
                    until = loop.time() + _LINGER_SECONDS
                    await self._read()
                if loop.time() >= check:
                    await self._check()
                    check = loop.time() + self._limits.check_seconds
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _read(self) -> None:
        """Read what is new, no faster than those can follow who take what is sent."""
        newest = self.ring.top + 1
        while self.ring.top < newest and self._subscribers:
            try:
                calls = RequestCalls(self._threads, _ANSWER_SECONDS)
                entries, reached, newest = await calls(self._page, self.ring.top, limit=_PAGE)
            except JobsError as error:
                if not self.is_away:
                    _log.warning("events wait for the ledger: %s", error.detail)
                self.is_away = True
                return
            self.is_away = False
            if reached > self.ring.top:
                self.ring.append(entries, reached)
                self._tell()
                await self._settled()

    def _page(self, after: int, *, scope: Scope = feed.EVERY_JOB, limit: int) -> tuple[list[Entry], int, int]:
        found = feed.stretch(self._db, after, scope=scope, limit=limit)
        tried = {(each.job_id, each.data["attempts"]) for each in found.events if each.data["attempts"] > 0}
        runs = glances.runs_of(self._db, tried) if self._ui is not None and tried else {}
        entries = [self._entry(each, runs.get((each.job_id, each.data["attempts"]))) for each in found.events]
        return entries, found.reached, found.newest

    def _entry(self, told: Told, run: str | None) -> Entry:
        data = told.data
        if run is not None and self._ui is not None:
            data = {**data, "links": {**data["links"], "prefect": run_page(self._ui, run)}}
        message = {
            "specversion": "1.0",
            "id": self.cursor(told.cursor),
            "source": "/v1/jobs",
            "type": told.type,
            "subject": told.job_id,
            "time": rfc3339(told.at),
            "datacontenttype": "application/json",
            "data": data,
        }
        text = json.dumps(message, allow_nan=False, separators=(",", ":"))
        is_progress = told.type == "job.progress"
        return Entry(told.cursor, told.job_id, data["session_id"], told.sessions, is_progress, text)

    def _tell(self) -> None:
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()
        for each in self._subscribers:
            if each.is_live and each.sending_since is not None and each.position < self.ring.floor:
                each.end(TOO_SLOW)

    async def _settled(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _SETTLE_SECONDS
        while any(self._lags(each) for each in self._subscribers) and loop.time() < until:  # noqa: ASYNC110 - an event for each of thousands of messages would cost more
            await asyncio.sleep(_PAUSE_SECONDS)

    def _lags(self, subscriber: Subscriber) -> bool:
        """Say whether it is this process, and not the other end, that somebody waits for."""
        return (
            subscriber.is_live
            and subscriber.sending_since is None
            and subscriber.position < self.ring.top
            and not subscriber.ended.done()
        )

    async def _check(self) -> None:
        """End those whose token has ended, and those whose socket took nothing for long."""
        now = asyncio.get_running_loop().time()
        for each in self._subscribers:
            since = each.sending_since
            if since is not None and now - since > self._limits.stuck_seconds:
                each.end(TOO_SLOW)
        known = await self._working({each.caller.token_id for each in self._subscribers})
        for each in list(self._subscribers):
            expires_at = each.caller.expires_at
            if expires_at is not None and expires_at <= self._db.clock.now():
                each.end(TOKEN_ENDED)
            elif known is not None and known.get(each.caller.token_id, each.caller) != each.caller:
                each.end(TOKEN_ENDED if known[each.caller.token_id] is None else ACCESS_MOVED)

    async def _working(self, token_ids: set[str]) -> dict[str, Principal | None] | None:
        """Return the caller behind each of these tokens as it is now; ``None``: the ledger doesn't say."""
        if not token_ids:
            return {}
        try:
            calls = RequestCalls(self._threads, _ANSWER_SECONDS)
            found = await calls(access.working, self._db, token_ids)
        except JobsError:
            return None
        return {token_id: found.get(token_id) for token_id in token_ids}

    def _end_all(self, ending: Ending) -> None:
        subscribers: Sequence[Subscriber] = list(self._subscribers)
        for each in subscribers:
            each.end(ending)
