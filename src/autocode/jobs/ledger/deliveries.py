"""Deliveries: planned by the very transaction that tells of an ending, sent by the leader, each recorded.

A delivery has one id in all of its tries. Before a try its intent is recorded, after it what came of it, so a
sender that dies in between leaves ``sending``: the next one sends again under the same id.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger import schema_notifications as n
from autocode.jobs.ledger import scopes, subscriptions
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.notification_resource import Channel, DeliveryState, Ending

__all__ = [
    "ATTEMPTS",
    "TEST_TYPE",
    "Due",
    "Ended",
    "Message",
    "Verdict",
    "begin",
    "due",
    "new_id",
    "plan",
    "resume",
    "settle",
]

ATTEMPTS: Final = 14
"""How often a delivery is tried before it is given up; with the sender's pauses, about a day."""

TEST_TYPE: Final = "job.test"
"""The type of the event that a person sends to see whether a receiver works."""

_HELD: Final = timedelta(seconds=60)
"""When a try that nobody recorded the end of is due again in the same term: longer than any try takes."""

_REVOKED: Final = "the token that subscribed was revoked"
_DISABLED: Final = "the subscription is disabled"
_DEADLY: Final = "each try ended with the death of the process that made it"

_SPARE: Final = 3
"""How many deaths of the sender's process are taken for an accident, beyond the last try."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An event that ended a job, as it was stamped."""

    cursor: int
    rev: int
    status: str
    reason: str | None

    @property
    def type(self) -> str:
        """What a receiver is told: the end, also where the event is the request to call the job off."""
        return f"job.{self.status}"


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery whose time has come, the first of its subscription."""

    delivery_id: str
    subscription_id: str
    channel: Channel
    target: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Message:
    """What is to be sent in this try.

    Args:
        delivery_id: the same in every try.
        attempt: which try it is, from 1.
        max_attempts: which is the last.
        channel: how.
        target: where to.
        secret: what signs it.
        type: the event's type.
        cursor: the event's number; ``None`` for a test.
        epoch: the ledger, without which a cursor means nothing.
        job_id: the job; ``None`` for a test.
        at: when it happened.
        data: the job as it was right after it; ``None`` for a test.
    """

    delivery_id: str
    subscription_id: str
    attempt: int
    max_attempts: int
    channel: Channel
    target: str
    secret: str | None
    type: str
    cursor: int | None
    epoch: str
    job_id: str | None
    at: datetime
    data: dict[str, Any] | None

    @property
    def tries(self) -> int:
        """Which try it is since it was planned, or since somebody had it sent again."""
        return self.attempt - max(0, self.max_attempts - ATTEMPTS)

    def __repr__(self) -> str:
        # neither the secret nor a URL that is one may reach a log
        return f"Message({self.delivery_id}, attempt={self.attempt})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a try.

    Args:
        done: the receiver said that it got it.
        error: what went wrong, short and without secrets; empty where nothing did.
        retry_in: seconds after which to try again; ``None``: never.
        gone: the receiver doesn't want to be told anything any more.
    """

    done: bool
    error: str = ""
    retry_in: float | None = None
    gone: bool = False


def new_id() -> str:
    """Return an id for a delivery."""
    return f"msg_{secrets.token_hex(16)}"


def plan(tx: sa.Connection, job: sa.Row[Any], endings: Sequence[Ended], now: datetime) -> None:
    """Plan the deliveries of events that ended *job*, in the transaction that stamps them.

    So no ending is told that wasn't committed, and none that was is forgotten.
    """
    if not endings:
        return
    rows = [
        {
            "delivery_id": new_id(),
            "subscription_id": watcher.subscription_id,
            "job_id": job.job_id,
            "cursor": ending.cursor,
            "type": ending.type,
            "rev": ending.rev,
            "state": DeliveryState.PLANNED.value,
            "attempts": 0,
            "max_attempts": ATTEMPTS,
            "created_at": now,
            "next_at": now,
        }
        for watcher in _watchers(tx, job)
        for ending in endings
        if _event_of(ending) in watcher.events
    ]
    if rows:
        tx.execute(sa.insert(n.deliveries), rows)


def resume(db: Database) -> None:
    """Make every try that an earlier leader began and didn't record due at once. Idempotent.

    The caller leads, and sends nothing yet: whoever began them can't record anything any more.
    """
    with db.write() as tx:
        tx.execute(
            sa.update(n.deliveries)
            .where(n.deliveries.c.state == DeliveryState.SENDING.value)
            .values(next_at=db.clock.now())
        )


def due(db: Database, busy: Collection[str]) -> list[Due]:
    """Return for each subscription, but for those that are *busy*, the delivery that has waited longest."""
    turn = (
        sa.func.row_number()
        .over(
            partition_by=n.deliveries.c.subscription_id,
            order_by=(n.deliveries.c.next_at, n.deliveries.c.created_at, n.deliveries.c.delivery_id),
        )
        .label("turn")
    )
    waiting = (
        sa.select(
            n.deliveries.c.delivery_id,
            n.deliveries.c.subscription_id,
            n.deliveries.c.attempts,
            turn,
        )
        .where(
            n.deliveries.c.next_at.is_not(None),
            n.deliveries.c.next_at <= db.clock.now(),
            n.deliveries.c.subscription_id.not_in(sorted(busy)),
        )
        .subquery()
    )
    query = (
        sa.select(waiting, n.subscriptions.c.channel, n.subscriptions.c.target)
        .join(n.subscriptions, n.subscriptions.c.subscription_id == waiting.c.subscription_id)
        .where(waiting.c.turn == 1)
    )
    with db.read() as tx:
        return [
            Due(row.delivery_id, row.subscription_id, Channel(row.channel), row.target, row.attempts)
            for row in tx.execute(query)
        ]


def begin(db: Database, wanted: Due) -> Message | None:
    """Record the intent to send, and return what to send.

    Atomic: of several that begin the same try one does, and a leader whose term is over is refused by the
    guard of *db*. A delivery that has no receiver any more is given up here.

    Returns:
        The message; ``None`` where there is nothing (any more) to be sent.

    Raises:
        LeadershipLost: another leads; nothing was written.
    """
    with db.write() as tx:
        now = db.clock.now()
        moved = tx.execute(
            sa.update(n.deliveries)
            .where(
                n.deliveries.c.delivery_id == wanted.delivery_id,
                n.deliveries.c.attempts == wanted.attempts,
                n.deliveries.c.next_at.is_not(None),
            )
            .values(
                state=DeliveryState.SENDING.value,
                attempts=wanted.attempts + 1,
                intent_at=now,
                next_at=now + _HELD,
            )
        )
        if moved.rowcount != 1:
            return None
        row = tx.execute(_whole(wanted.delivery_id)).one()
        why = _hopeless(row)
        if why is not None:
            _end(tx, wanted.delivery_id, DeliveryState.DEAD, why, now)
            return None
        return _message(row)


def settle(db: Database, message: Message, verdict: Verdict) -> bool:
    """Record what came of the try *message*. Atomic.

    Returns:
        Whether it was recorded: a try that somebody else has begun meanwhile, or whose subscription was
        removed, isn't this one's to record.

    Raises:
        LeadershipLost: another leads; nothing was written.
    """
    with db.write() as tx:
        now = db.clock.now()
        mine = tx.execute(
            sa.update(n.deliveries)
            .where(
                n.deliveries.c.delivery_id == message.delivery_id,
                n.deliveries.c.attempts == message.attempt,
                n.deliveries.c.state == DeliveryState.SENDING.value,
            )
            .values(last_error=verdict.error or None)
        )
        if mine.rowcount != 1:
            return False
        if verdict.done:
            _end(tx, message.delivery_id, DeliveryState.DONE, None, now)
        elif verdict.retry_in is None or message.attempt >= message.max_attempts:
            _end(tx, message.delivery_id, DeliveryState.DEAD, verdict.error, now)
        else:
            tx.execute(
                sa.update(n.deliveries)
                .where(n.deliveries.c.delivery_id == message.delivery_id)
                .values(state=DeliveryState.PLANNED.value, next_at=now + timedelta(seconds=verdict.retry_in))
            )
        if verdict.gone:
            subscriptions.disable_in(tx, message.subscription_id, verdict.error, now)
    return True


def _watchers(tx: sa.Connection, job: sa.Row[Any]) -> list[sa.Row[Any]]:
    """Return the subscriptions that may, and want to, be told of this job."""
    query = (
        sa.select(n.subscriptions)
        .outerjoin(t.tokens, t.tokens.c.token_id == n.subscriptions.c.token_id)
        .where(
            n.subscriptions.c.removed_at.is_(None),
            n.subscriptions.c.disabled_at.is_(None),
            t.tokens.c.revoked_at.is_(None),
            sa.or_(n.subscriptions.c.kind.is_(None), n.subscriptions.c.kind == job.kind),
            sa.or_(n.subscriptions.c.session_id.is_(None), n.subscriptions.c.session_id == job.session_id),
        )
        .order_by(n.subscriptions.c.created_at, n.subscriptions.c.subscription_id)
    )
    sessions = scopes.of_job(tx, job.job_id)
    return [
        row
        for row in tx.execute(query)
        if scopes.covers(None if row.sessions is None else frozenset(row.sessions), sessions)
    ]


def _event_of(ending: Ended) -> str:
    if ending.status == JobStatus.COMPLETE:
        return Ending.COMPLETE.value
    return Ending.CANCELLED.value if ending.reason == DeadReason.CANCELLED else Ending.DEAD.value


def _hopeless(row: sa.Row[Any]) -> str | None:
    """Return why nothing is to be sent; ``None`` where something is."""
    if row.revoked_at is not None:
        return _REVOKED
    if row.disabled_at is not None:
        return _DISABLED
    # the end of a try is recorded with its number, so only a sender that died leaves one beyond the last
    return _DEADLY if row.attempts > row.max_attempts + _SPARE else None


def _whole(delivery_id: str) -> sa.Select[Any]:
    epoch = sa.select(t.meta.c.value).where(t.meta.c.key == "epoch").scalar_subquery()
    return (
        sa.select(
            n.deliveries,
            n.subscriptions.c.channel,
            n.subscriptions.c.target,
            n.subscriptions.c.secret,
            n.subscriptions.c.disabled_at,
            t.tokens.c.revoked_at,
            t.events.c.at,
            t.events.c.data,
            epoch.label("epoch"),
        )
        .join(n.subscriptions, n.subscriptions.c.subscription_id == n.deliveries.c.subscription_id)
        .outerjoin(t.tokens, t.tokens.c.token_id == n.subscriptions.c.token_id)
        .outerjoin(t.events, t.events.c.cursor == n.deliveries.c.cursor)
        .where(n.deliveries.c.delivery_id == delivery_id)
    )


def _message(row: sa.Row[Any]) -> Message:
    return Message(
        delivery_id=row.delivery_id,
        subscription_id=row.subscription_id,
        attempt=row.attempts,
        max_attempts=row.max_attempts,
        channel=Channel(row.channel),
        target=row.target,
        secret=row.secret,
        type=row.type,
        cursor=row.cursor,
        epoch=row.epoch,
        job_id=row.job_id,
        at=row.at if row.cursor is not None else row.created_at,
        data=row.data,
    )


def _end(tx: sa.Connection, delivery_id: str, state: DeliveryState, error: str | None, now: datetime) -> None:
    tx.execute(
        sa.update(n.deliveries)
        .where(n.deliveries.c.delivery_id == delivery_id)
        .values(state=state.value, next_at=None, last_error=error, ended_at=now)
    )
