"""Who wants to be told of which endings: made, listed, disabled and removed by people, with their audit."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import sqlalchemy as sa

from autocode.jobs.clock import rfc3339
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import audit
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger import schema_notifications as n
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.words import storable
from autocode.jobs.notification_errors import SubscriptionExists, SubscriptionNotFound
from autocode.jobs.notification_resource import Channel, Ending, Subscription

__all__ = [
    "NewSubscription",
    "Watcher",
    "disable_in",
    "enable",
    "get",
    "get_in",
    "listed",
    "note_in",
    "place",
    "remove",
    "subscribe",
]

_SECRET_BYTES: Final = 32
_REMOVED: Final = "the subscription was removed"


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who acts on notifications, and what of them is this caller's to know.

    Args:
        actor: the caller as the audit names it.
        token_id: its token; ``None`` for a command on the data folder.
        sessions: the sessions whose jobs it may see; ``None``: all.
        request_id: the request that it sends, for the audit.
    """

    actor: str
    token_id: str | None = None
    sessions: frozenset[str] | None = None
    request_id: str | None = None

    def sees(self, row: sa.Row[Any]) -> bool:
        """Say whether the caller may know of a subscription: it reaches no further than the caller does."""
        if self.sessions is None:
            return True
        return row.sessions is not None and self.sessions.issuperset(row.sessions)


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """A wish to be told.

    Args:
        channel: how.
        target: the URL or the address; its form was checked by the caller.
        kind: only of jobs of this kind.
        session_id: only of jobs of this session.
        events: of which endings.
    """

    channel: Channel
    target: str
    kind: str | None = None
    session_id: str | None = None
    events: tuple[Ending, ...] = (Ending.COMPLETE, Ending.DEAD)


def subscribe(db: Database, wish: NewSubscription, watcher: Watcher) -> Subscription:
    """Make a subscription: one transaction, audit included. Endings from now on are told.

    A subscription reaches as far as its owner: jobs of sessions that the owner may not see are never told.

    Returns:
        The subscription, a webhook's with the secret that signs it: the only moment at which it is shown.

    Raises:
        SubscriptionExists: the same owner is told of the same already; nothing was written.
        UsageError: no event, or a text that no database can hold.
    """
    for name in ("target", "kind", "session_id"):
        storable(getattr(wish, name) or "", name)
    if not wish.events:
        raise UsageError("A subscription without an event is told of nothing.", hint="Name one.")
    secret = None
    if wish.channel is Channel.WEBHOOK:
        secret = "whsec_" + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode("ascii")
    values = {
        "channel": wish.channel.value,
        "target": wish.target,
        "kind": wish.kind,
        "session_id": wish.session_id,
        "events": sorted({event.value for event in wish.events}),
        "owner": watcher.actor,
        "token_id": watcher.token_id,
        "sessions": None if watcher.sessions is None else sorted(watcher.sessions),
    }
    with db.write() as tx:
        now = db.clock.now()
        # one at a time: of two equal wishes at once one is refused
        tx.execute(sa.select(t.counters).where(t.counters.c.name == "audit").with_for_update())
        _refuse_twin(tx, values)
        subscription_id = f"sub_{secrets.token_hex(16)}"
        tx.execute(
            sa.insert(n.subscriptions).values(
                subscription_id=subscription_id, secret=secret, created_at=now, **values
            )
        )
        row = tx.execute(_one(subscription_id)).one()
        target = f"subscription:{subscription_id}"
        note_in(tx, now, watcher, action="subscribe", target=target, row=row, after=_wish(row))
    return _resource(row, secret=secret)


def get(db: Database, subscription_id: str, watcher: Watcher) -> Subscription:
    """Return a subscription, without its secret.

    Raises:
        SubscriptionNotFound: there is none of this id that the caller may know of.
    """
    with db.read() as tx:
        return _resource(get_in(tx, subscription_id, watcher))


def get_in(tx: sa.Connection, subscription_id: str, watcher: Watcher) -> sa.Row[Any]:
    """Return a subscription's row in the caller's transaction; see :func:`get`."""
    row = None
    if subscription_id.isascii() and "\x00" not in subscription_id:
        row = tx.execute(_one(subscription_id)).first()
    if row is None or row.removed_at is not None or not watcher.sees(row):
        raise SubscriptionNotFound(f"There is no subscription {subscription_id[:100]!r}.")
    return row


def listed(db: Database, watcher: Watcher) -> list[Subscription]:
    """Return the subscriptions that the caller may know of, oldest first, the disabled ones as well."""
    query = (
        sa.select(n.subscriptions)
        .where(n.subscriptions.c.removed_at.is_(None))
        .order_by(n.subscriptions.c.created_at, n.subscriptions.c.subscription_id)
    )
    with db.read() as tx:
        return [_resource(row) for row in tx.execute(query) if watcher.sees(row)]


def remove(db: Database, subscription_id: str, watcher: Watcher) -> None:
    """Remove a subscription: its secret is forgotten, and what wasn't sent yet never is. Atomic.

    What was sent stays listed.

    Raises:
        SubscriptionNotFound: there is none of this id that the caller may know of.
    """
    with db.write() as tx:
        now = db.clock.now()
        row = get_in(tx, subscription_id, watcher)
        tx.execute(
            sa.update(n.subscriptions)
            .where(n.subscriptions.c.subscription_id == subscription_id)
            .values(removed_at=now, secret=None)
        )
        _give_up(tx, subscription_id, _REMOVED, now)
        target = f"subscription:{subscription_id}"
        note_in(tx, now, watcher, action="unsubscribe", target=target, row=row, before=_wish(row))


def enable(db: Database, subscription_id: str, watcher: Watcher) -> Subscription:
    """Let a disabled subscription be told again, of what ends from now on. Idempotent, atomic.

    Raises:
        SubscriptionNotFound: there is none of this id that the caller may know of.
    """
    with db.write() as tx:
        row = get_in(tx, subscription_id, watcher)
        if row.disabled_at is not None:
            tx.execute(
                sa.update(n.subscriptions)
                .where(n.subscriptions.c.subscription_id == subscription_id)
                .values(disabled_at=None, disabled_why=None)
            )
            target = f"subscription:{subscription_id}"
            note_in(
                tx,
                db.clock.now(),
                watcher,
                action="enable",
                target=target,
                row=row,
                before={"enabled": False, "why": row.disabled_why},
                after={"enabled": True},
            )
        return _resource(tx.execute(_one(subscription_id)).one())


def disable_in(tx: sa.Connection, subscription_id: str, why: str, now: datetime) -> None:
    """Stop telling, in the caller's transaction: the receiver is gone. What wasn't sent is given up."""
    tx.execute(
        sa.update(n.subscriptions)
        .where(n.subscriptions.c.subscription_id == subscription_id, n.subscriptions.c.disabled_at.is_(None))
        .values(disabled_at=now, disabled_why=why)
    )
    _give_up(tx, subscription_id, why, now)


def note_in(
    tx: sa.Connection,
    now: datetime,
    watcher: Watcher,
    *,
    action: str,
    target: str,
    row: Any,
    reason: str = "",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """Write into the audit what the caller did, in its transaction; *row* has a channel and a target."""
    audit.append_in(
        tx,
        now,
        actor=watcher.actor,
        action=action,
        target=target,
        reason=reason,
        outcome="accepted",
        data={"channel": row.channel, "place": place(row.channel, row.target)},
        request_id=watcher.request_id,
        before=before,
        after=after,
    )


def place(channel: str, target: str) -> str:
    """Return *target* as logs and the audit may show it: of a URL its host, since a path may be a secret."""
    if channel != Channel.WEBHOOK:
        return target
    parts = urlsplit(target)
    return f"{parts.scheme}://{parts.netloc}"


def _wish(row: sa.Row[Any]) -> dict[str, Any]:
    """Return what the audit keeps of a subscription, beside its place."""
    return {name: getattr(row, name) for name in ("kind", "session_id", "events", "sessions")}


def _refuse_twin(tx: sa.Connection, values: dict[str, Any]) -> None:
    same = [n.subscriptions.c[name].is_not_distinct_from(value) for name, value in values.items()]
    query = sa.select(n.subscriptions.c.subscription_id).where(*same, n.subscriptions.c.removed_at.is_(None))
    found = tx.execute(query).scalar()
    if found is not None:
        raise SubscriptionExists(f"The subscription {found} is the same.", subscription_id=found)


def _give_up(tx: sa.Connection, subscription_id: str, why: str, now: datetime) -> None:
    # one that is being sent at this moment is given up as well: its end is no longer recorded as done
    tx.execute(
        sa.update(n.deliveries)
        .where(n.deliveries.c.subscription_id == subscription_id, n.deliveries.c.next_at.is_not(None))
        .values(state="dead", next_at=None, last_error=why, ended_at=now)
    )


def _one(subscription_id: str) -> sa.Select[Any]:
    return sa.select(n.subscriptions).where(n.subscriptions.c.subscription_id == subscription_id)


def _resource(row: sa.Row[Any], *, secret: str | None = None) -> Subscription:
    sessions: Sequence[str] | None = row.sessions
    return Subscription(
        subscription_id=row.subscription_id,
        channel=Channel(row.channel),
        target=row.target,
        kind=row.kind,
        session_id=row.session_id,
        events=tuple(map(Ending, row.events)),
        owner=row.owner,
        sessions=None if sessions is None else tuple(sessions),
        created_at=rfc3339(row.created_at) or "",
        disabled_at=rfc3339(row.disabled_at),
        disabled_why=row.disabled_why,
        secret=secret,
    )
