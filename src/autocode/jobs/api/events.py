"""``WS /v1/events``: what happens to jobs, told as it happens, from a cursor on."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from autocode.jobs.api.access import authenticate, require
from autocode.jobs.api.hub import PROCESS_ENDS, Ending, Hub, Subscriber
from autocode.jobs.api.ring import Entry
from autocode.jobs.api.service import Service
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.errors import JobsError, UsageError
from autocode.jobs.ledger import feed
from autocode.jobs.ledger.access import TOKEN, Principal, Role
from autocode.jobs.ledger.feed import Scope
from autocode.jobs.ledger.jobs import JOB_ID
from autocode.jobs.request_errors import NotAllowed, RequestRefused, TokenInvalid, TooManyRequests

__all__ = ["router"]

router: Final = APIRouter(tags=["jobs"])

_log = logging.getLogger("autocode.jobs.api")

_PARAMETERS: Final = frozenset({"after", "job_id", "session_id"})
_BATCH: Final = 50
"""Events after which others get their turn."""

_MERGE: Final = 20
"""Events that somebody may be behind and still get every progress report."""

_CLOSE_SECONDS: Final = 10.0
_END_SECONDS: Final = 1.0
"""How long the other end may take to read that it is closed, before its connection is cut; the second number
is for when the process ends."""

_AWAY_SECONDS: Final = 1.0
"""Pause after which somebody who reads the ledger tries again."""

_NO_TOKEN: Final = Ending(4401, "a valid token is needed")
_IN_ADDRESS: Final = Ending(4401, "a token is never part of an address: send Authorization, or the cookie")
_NOT_YOURS: Final = Ending(4403, "no such job or session that this token may see")
_FOREIGN: Final = Ending(4403, "the request doesn't say which page sent it")
_FULL: Final = Ending(1013, "too many connections: try again later")
_TOO_MANY: Final = Ending(1013, "too many wrong tokens came from this address: try again later")
_AWAY: Final = Ending(1013, "the ledger doesn't answer: try again later")


class _Refused(Exception):
    """The socket is closed at once.

    Args:
        ending: with what.
        type_: the type of the error, as which it is counted where the caller isn't known.
    """

    def __init__(self, ending: Ending, type_: str | None = None) -> None:
        super().__init__(ending.reason)
        self.ending = ending
        self.type = type_


@router.websocket("/v1/events")
async def events(websocket: WebSocket) -> None:
    """Tell of what happens from ``after`` on, or from now on; see ``docs/api.md``."""
    service: Service = websocket.app.state.service
    # the code of a close is seen by a browser only if the socket was open
    await websocket.accept()
    try:
        subscriber, newest, first = await _admitted(websocket, service)
    except _Refused as refusal:
        if refusal.type is not None:
            service.denied[refusal.type] += 1
        await _close(websocket, refusal.ending)
        return
    hub = service.hub
    with hub.joined(subscriber, newest):
        ending = await _served(websocket, hub, subscriber, first, service.settings.events.ping_seconds)
    if ending is not None:
        await _close(websocket, ending)


async def _admitted(websocket: WebSocket, service: Service) -> tuple[Subscriber, int, str]:
    """Return who follows from where, the newest cursor, and the first message.

    Raises:
        _Refused: nobody is let in.
    """
    query = websocket.query_params
    if any(TOKEN.search(text) for pair in query.multi_items() for text in pair):
        raise _Refused(_IN_ADDRESS, TokenInvalid.type)
    calls = RequestCalls(service.threads, service.settings.ledger_seconds)
    try:
        caller = await _caller(websocket, service, calls)
        scope = _scope(websocket, caller)
        if service.hub.is_full:
            raise _Refused(_FULL)
        kept = await calls(feed.opening, service.db, scope)
    except JobsError as error:
        _log.warning("a follower of events was sent away: %s", error.detail)
        raise _Refused(_AWAY) from None
    if kept is None:
        raise _Refused(_NOT_YOURS)
    if service.hub.is_full:
        # others came in the meantime
        raise _Refused(_FULL)
    after = query.get("after")
    resumed = kept.newest if after is None else feed.resume(after, service.epoch, kept)
    position = kept.newest if resumed is None else resumed
    ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
    first = {"type": "reset" if resumed is None else "resumed", "cursor": service.hub.cursor(position)}
    return Subscriber(caller, scope, position, ended), kept.newest, json.dumps(first)


async def _caller(websocket: WebSocket, service: Service, calls: RequestCalls) -> Principal:
    try:
        caller = await authenticate(websocket, service, calls)
        require(caller, Role.VIEWER)
    except TokenInvalid:
        raise _Refused(_NO_TOKEN, TokenInvalid.type) from None
    except TooManyRequests:
        raise _Refused(_TOO_MANY, TooManyRequests.type) from None
    except RequestRefused:
        raise _Refused(_FOREIGN, RequestRefused.type) from None
    except NotAllowed:
        raise _Refused(_NOT_YOURS) from None
    return caller


def _scope(websocket: WebSocket, caller: Principal) -> Scope:
    query = websocket.query_params
    unknown = sorted(set(query) - _PARAMETERS)
    if unknown or len(query.multi_items()) != len(query):
        known = ", ".join(sorted(_PARAMETERS))
        raise _Refused(Ending(1008, f"the query has another parameter than {known}, or one twice"))
    session_id, job_id = query.get("session_id"), query.get("job_id")
    if session_id is not None and not caller.sees(frozenset({session_id})):
        raise _Refused(_NOT_YOURS)
    if job_id is not None and not JOB_ID.fullmatch(job_id):
        raise _Refused(_NOT_YOURS)
    try:
        return Scope(sessions=caller.sessions, session_id=session_id, job_id=job_id)
    except UsageError:
        raise _Refused(_NOT_YOURS) from None


async def _served(
    websocket: WebSocket, hub: Hub, subscriber: Subscriber, first: str, ping_seconds: float
) -> Ending | None:
    """Send until the socket is to be closed, and return why; ``None``: the other end has gone."""
    sending = asyncio.create_task(_send(websocket, hub, subscriber, first, ping_seconds))
    receiving = asyncio.create_task(_receive(websocket))
    try:
        waited: set[asyncio.Future[Any]] = {sending, receiving, subscriber.ended}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, receiving):
            task.cancel()
        told = await asyncio.gather(sending, receiving, return_exceptions=True)
    for error in told:
        if isinstance(error, Exception) and not isinstance(error, WebSocketDisconnect):
            raise error
    return subscriber.ended.result() if subscriber.ended.done() else None


async def _receive(websocket: WebSocket) -> None:
    """Drop what the other end says, until it goes."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


async def _send(
    websocket: WebSocket, hub: Hub, subscriber: Subscriber, first: str, ping_seconds: float
) -> None:
    loop = asyncio.get_running_loop()

    async def send(text: str) -> None:
        subscriber.sending_since = loop.time()
        await websocket.send_text(text)
        subscriber.sending_since = None

    await send(first)
    ping_at = loop.time() + ping_seconds
    while True:
        moved = hub.moved
        if loop.time() >= ping_at:
            await send(_ping(hub, subscriber))
            ping_at = loop.time() + ping_seconds
        try:
            entries, reached = await _next(hub, subscriber)
        except JobsError:
            # the socket stays open: what is missed now is read later
            await asyncio.sleep(_AWAY_SECONDS)
            continue
        if reached == subscriber.position:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(ping_at):
                    await moved.wait()
            continue
        for entry in entries:
            admitted = subscriber.scope.admits(entry.job_id, entry.session_id, entry.sessions)
            if admitted and not _is_merged(hub, entry):
                await send(entry.text)
            subscriber.position = entry.number
        subscriber.position = reached
        await asyncio.sleep(0)


async def _next(hub: Hub, subscriber: Subscriber) -> tuple[list[Entry], int]:
    """Return what comes next, and how far that reaches: the same as now, where nothing does."""
    subscriber.is_live = subscriber.position >= hub.ring.floor
    if not subscriber.is_live:
        return await hub.read_for(subscriber)
    entries = hub.ring.after(subscriber.position, _BATCH)
    if len(entries) == _BATCH:
        return entries, entries[-1].number
    return entries, max(subscriber.position, hub.ring.top)


def _is_merged(hub: Hub, entry: Entry) -> bool:
    return hub.ring.top - entry.number > _MERGE and hub.ring.is_overtaken(entry)


def _ping(hub: Hub, subscriber: Subscriber) -> str:
    cursor = None if hub.is_away else hub.cursor(subscriber.position)
    return json.dumps({"type": "ping", "cursor": cursor})


async def _close(websocket: WebSocket, ending: Ending) -> None:
    """Close the socket; where the other end doesn't read even that, cut the connection."""
    seconds = _END_SECONDS if ending is PROCESS_ENDS else _CLOSE_SECONDS
    cut: Callable[[], None] | None = websocket.scope.get("state", {}).get("cut")
    if cut is not None:
        asyncio.get_running_loop().call_later(seconds, cut)
    # the other end may have gone, and the server has no way to close once more
    with suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
        async with asyncio.timeout(seconds):
            await websocket.close(ending.code, ending.reason)
