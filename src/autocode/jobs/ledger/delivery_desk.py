"""What people see of deliveries, and do with them: lists, replays, tests. Each deed is in the audit."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.canonical import canonical_json
from autocode.jobs.clock import parse_time, rfc3339
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import schema_notifications as n
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.deliveries import ATTEMPTS, TEST_TYPE, new_id
from autocode.jobs.ledger.listing import LARGEST_PAGE
from autocode.jobs.ledger.subscriptions import Watcher, get_in, note_in
from autocode.jobs.ledger.words import storable
from autocode.jobs.notification_errors import DeliveryNotFound, DeliveryOpen, SubscriptionDisabled
from autocode.jobs.notification_resource import Channel, Delivery, DeliveryState

__all__ = ["Chosen", "Page", "get", "of_job", "page", "replay", "send_test"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which deliveries are meant; what isn't given leaves every one in.

    Raises:
        UsageError: a text that no database can hold.
    """

    state: DeliveryState | None = None
    subscription_id: str | None = None
    job_id: str | None = None

    def __post_init__(self) -> None:
        for name in ("subscription_id", "job_id"):
            storable(getattr(self, name) or "", name)

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Return them as conditions on ``deliveries``."""
        given = {
            "state": self.state,
            "subscription_id": self.subscription_id,
            "job_id": self.job_id,
        }
        return [n.deliveries.c[name] == str(value) for name, value in given.items() if value is not None]


@dataclass(frozen=True, slots=True)
class Page:
    """Deliveries, newest first; ``next_token`` asks for those after them."""

    deliveries: tuple[Delivery, ...]
    next_token: str | None


def page(
    db: Database,
    watcher: Watcher,
    chosen: Chosen | None = None,
    *,
    size: int = 50,
    token: str | None = None,
) -> Page:
    """Return up to *size* deliveries that the caller may know of, newest first, from where *token* says.

    Raises:
        UsageError: *size* isn't from 1 to 500, or *token* can't be read.
    """
    if not 1 <= size <= LARGEST_PAGE:
        raise UsageError(f"A page of {size} deliveries is none.", hint=f"Ask for 1 to {LARGEST_PAGE}.")
    conditions = (chosen or Chosen()).conditions()
    if token is not None:
        conditions.append(_after(*_read_token(token)))
    query = (
        _listed()
        .where(*conditions)
        .order_by(n.deliveries.c.created_at.desc(), n.deliveries.c.delivery_id.desc())
    )
    with db.read() as tx:
        if watcher.sessions is not None:
            query = query.where(n.deliveries.c.subscription_id.in_(_seen(tx, watcher)))
        found = tx.execute(query.limit(size + 1)).all()
    shown = found[:size]
    more = len(found) > size
    return Page(tuple(map(_resource, shown)), _write_token(shown[-1]) if more else None)


def get(db: Database, delivery_id: str, watcher: Watcher) -> Delivery:
    """Return a delivery.

    Raises:
        DeliveryNotFound: there is none of this id that the caller may know of.
    """
    with db.read() as tx:
        return _resource(_get_in(tx, delivery_id, watcher))


def of_job(tx: sa.Connection, job_id: str) -> Sequence[sa.Row[Any]]:
    """Return the rows of a job's deliveries that are over, in the order of their ends."""
    query = _listed().where(n.deliveries.c.job_id == job_id, n.deliveries.c.ended_at.is_not(None))
    return tx.execute(query.order_by(n.deliveries.c.ended_at, n.deliveries.c.delivery_id)).all()


def replay(db: Database, delivery_id: str, watcher: Watcher, *, reason: str = "") -> Delivery:
    """Send a delivery again that is over, under its old id, with a new budget. Atomic, audit included.

    A receiver that keeps to the id takes it for what it knows already, where it got it before.

    Raises:
        DeliveryNotFound: there is none of this id that the caller may know of.
        DeliveryOpen: it is still under way.
        SubscriptionDisabled: its receiver is gone, or its subscription was removed.
    """
    with db.write() as tx:
        now = db.clock.now()
        row = _get_in(tx, delivery_id, watcher)
        _refuse_closed(row)
        again = tx.execute(
            sa.update(n.deliveries)
            .where(n.deliveries.c.delivery_id == delivery_id, n.deliveries.c.next_at.is_(None))
            .values(
                state=DeliveryState.PLANNED.value,
                next_at=now,
                ended_at=None,
                max_attempts=n.deliveries.c.attempts + ATTEMPTS,
            )
        )
        if again.rowcount != 1:
            raise DeliveryOpen(f"The delivery {delivery_id} is {row.state}.")
        planned = _get_in(tx, delivery_id, watcher)
        note_in(
            tx,
            now,
            watcher,
            action="replay",
            target=f"delivery:{delivery_id}",
            row=row,
            reason=reason,
            before=_stand(row),
            after=_stand(planned),
        )
        return _resource(planned)


def send_test(db: Database, subscription_id: str, watcher: Watcher) -> Delivery:
    """Plan a delivery that is about no job, to see whether the receiver works. Atomic, audit included.

    Raises:
        SubscriptionDisabled: nothing is sent there.
        SubscriptionNotFound: there is none of this id that the caller may know of.
    """
    with db.write() as tx:
        now = db.clock.now()
        subscription = get_in(tx, subscription_id, watcher)
        _refuse_closed(subscription)
        delivery_id = new_id()
        tx.execute(
            sa.insert(n.deliveries).values(
                delivery_id=delivery_id,
                subscription_id=subscription_id,
                type=TEST_TYPE,
                state=DeliveryState.PLANNED.value,
                attempts=0,
                # somebody waits for the answer: it is tried once
                max_attempts=1,
                created_at=now,
                next_at=now,
            )
        )
        target = f"subscription:{subscription_id}"
        after = {"delivery_id": delivery_id}
        note_in(tx, now, watcher, action="test", target=target, row=subscription, after=after)
        return _resource(_get_in(tx, delivery_id, watcher))


def _refuse_closed(row: sa.Row[Any]) -> None:
    if row.removed_at is not None:
        raise SubscriptionDisabled(
            f"The subscription {row.subscription_id} was removed.",
            hint="Subscribe anew; what ends from then on is told.",
        )
    if row.disabled_at is not None:
        raise SubscriptionDisabled(
            f"The subscription {row.subscription_id} is disabled: {row.disabled_why}.",
            hint=f"Enable it: autocode-jobs notify enable {row.subscription_id}",
        )


def _listed() -> sa.Select[Any]:
    names = ("channel", "target", "sessions", "disabled_at", "disabled_why", "removed_at")
    return sa.select(n.deliveries, *(n.subscriptions.c[name] for name in names)).join(
        n.subscriptions, n.subscriptions.c.subscription_id == n.deliveries.c.subscription_id
    )


def _seen(tx: sa.Connection, watcher: Watcher) -> list[str]:
    return [row.subscription_id for row in tx.execute(sa.select(n.subscriptions)) if watcher.sees(row)]


def _get_in(tx: sa.Connection, delivery_id: str, watcher: Watcher) -> sa.Row[Any]:
    row = None
    if delivery_id.isascii() and "\x00" not in delivery_id:
        row = tx.execute(_listed().where(n.deliveries.c.delivery_id == delivery_id)).first()
    if row is None or not watcher.sees(row):
        raise DeliveryNotFound(f"There is no delivery {delivery_id[:100]!r}.")
    return row


def _stand(row: sa.Row[Any]) -> dict[str, Any]:
    """Return what the audit keeps of how a delivery stands."""
    return {name: getattr(row, name) for name in ("state", "attempts", "max_attempts")}


def _after(at: datetime, delivery_id: str) -> sa.ColumnElement[bool]:
    return sa.or_(
        n.deliveries.c.created_at < at,
        sa.and_(n.deliveries.c.created_at == at, n.deliveries.c.delivery_id < delivery_id),
    )


_TOKEN_HINT: Final = "Start again without a token."  # noqa: S105 - a sentence


def _write_token(row: sa.Row[Any]) -> str:
    text = canonical_json([rfc3339(row.created_at), row.delivery_id])
    return base64.urlsafe_b64encode(text).decode("ascii").rstrip("=")


def _read_token(token: str) -> tuple[datetime, str]:
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        at, delivery_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        moment = parse_time(at)
        storable(delivery_id, "token")
    except (ValueError, TypeError, RecursionError, binascii.Error, UsageError):
        moment, delivery_id = None, ""
    if moment is None:
        raise UsageError("The page's token can't be read.", hint=_TOKEN_HINT)
    return moment, delivery_id


def _resource(row: sa.Row[Any]) -> Delivery:
    return Delivery(
        delivery_id=row.delivery_id,
        subscription_id=row.subscription_id,
        channel=Channel(row.channel),
        target=row.target,
        job_id=row.job_id,
        cursor=row.cursor,
        type=row.type,
        rev=row.rev,
        state=DeliveryState(row.state),
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        created_at=rfc3339(row.created_at) or "",
        next_at=rfc3339(row.next_at),
        last_error=row.last_error,
        intent_at=rfc3339(row.intent_at),
        ended_at=rfc3339(row.ended_at),
    )
