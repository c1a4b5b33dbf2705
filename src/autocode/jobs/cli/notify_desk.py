"""Where ``notify`` finds subscriptions: the ledger of this data folder, or a service at ``AUTOCODE_URL``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol

from autocode.jobs.cli.desk import actor, elsewhere, remote
from autocode.jobs.cli.runtime import opened
from autocode.jobs.client import Client
from autocode.jobs.configuration import load
from autocode.jobs.engine.announce import lives
from autocode.jobs.engine.system import System
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import delivery_desk, subscriptions
from autocode.jobs.ledger.delivery_desk import Chosen
from autocode.jobs.ledger.listing import LARGEST_PAGE
from autocode.jobs.ledger.subscriptions import NewSubscription, Watcher
from autocode.jobs.notification_resource import Channel, Delivery, DeliveryState, Ending, Subscription
from autocode.jobs.notifications.address import check_url
from autocode.jobs.urls import mail_address

__all__ = ["NotifyDesk", "at_notify_desk"]

_HINT: Final = "Write it alone and in ASCII, as ada@example.org."


class NotifyDesk(Protocol):
    """What a person can do with subscriptions and deliveries, wherever those are kept."""

    @property
    def served(self) -> bool:
        """Whether a service runs that sends."""
        ...

    def subscribe(
        self, channel: Channel, target: str, kind: str | None, session: str | None, events: Sequence[Ending]
    ) -> Subscription:
        """Make a subscription."""
        ...

    def subscriptions(self) -> list[Subscription]:
        """Return all of them."""
        ...

    def remove(self, subscription_id: str) -> None:
        """Remove one."""
        ...

    def enable(self, subscription_id: str) -> Subscription:
        """Let one that is disabled be told again."""
        ...

    def send_test(self, subscription_id: str) -> Delivery:
        """Plan a test."""
        ...

    def delivery(self, delivery_id: str) -> Delivery:
        """Return a delivery."""
        ...

    def deliveries(self, state: DeliveryState | None, job_id: str | None, limit: int) -> list[Delivery]:
        """Return the newest *limit* deliveries that fit, newest first."""
        ...

    def replay(self, delivery_id: str, reason: str) -> Delivery:
        """Send one again."""
        ...


@contextmanager
def at_notify_desk() -> Iterator[NotifyDesk]:
    """Give the desk that the environment names.

    Raises:
        HomeUnusable: the data folder can't be used.
        UsageError: ``AUTOCODE_URL`` is set without a token.
    """
    if elsewhere():
        with remote() as client:
            yield _Elsewhere(client)
        return
    with opened() as system:
        yield _Here(system)


class _Here:
    def __init__(self, system: System) -> None:
        self._system = system
        self._db = system.db
        self._watcher = Watcher(actor())

    @property
    def served(self) -> bool:
        return lives(self._system.home, "reconcile")

    def subscribe(
        self, channel: Channel, target: str, kind: str | None, session: str | None, events: Sequence[Ending]
    ) -> Subscription:
        if channel is Channel.WEBHOOK:
            check_url(target)
        elif load(self._system.home).values.smtp_host is None:
            raise UsageError("No e-mail is sent from here.", hint="Set smtp_host and smtp_from.")
        else:
            try:
                mail_address(target)
            except ValueError:
                raise UsageError("That isn't a mail address.", hint=_HINT) from None
        wish = NewSubscription(channel, target, kind, session, tuple(events))
        return subscriptions.subscribe(self._db, wish, self._watcher)

    def subscriptions(self) -> list[Subscription]:
        return subscriptions.listed(self._db, self._watcher)

    def remove(self, subscription_id: str) -> None:
        subscriptions.remove(self._db, subscription_id, self._watcher)

    def enable(self, subscription_id: str) -> Subscription:
        return subscriptions.enable(self._db, subscription_id, self._watcher)

    def send_test(self, subscription_id: str) -> Delivery:
        return delivery_desk.send_test(self._db, subscription_id, self._watcher)

    def delivery(self, delivery_id: str) -> Delivery:
        return delivery_desk.get(self._db, delivery_id, self._watcher)

    def deliveries(self, state: DeliveryState | None, job_id: str | None, limit: int) -> list[Delivery]:
        found: list[Delivery] = []
        token: str | None = None
        while len(found) < limit:
            page = delivery_desk.page(
                self._db,
                self._watcher,
                Chosen(state=state, job_id=job_id),
                size=min(limit - len(found), LARGEST_PAGE),
                token=token,
            )
            found += page.deliveries
            token = page.next_token
            if token is None:
                break
        return found

    def replay(self, delivery_id: str, reason: str) -> Delivery:
        return delivery_desk.replay(self._db, delivery_id, self._watcher, reason=reason)


class _Elsewhere:
    def __init__(self, client: Client) -> None:
        self._notifications = client.notifications

    @property
    def served(self) -> bool:
        return True

    def subscribe(
        self, channel: Channel, target: str, kind: str | None, session: str | None, events: Sequence[Ending]
    ) -> Subscription:
        return self._notifications.subscribe(
            webhook=target if channel is Channel.WEBHOOK else None,
            email=target if channel is Channel.EMAIL else None,
            kind=kind,
            session_id=session,
            events=events,
        )

    def subscriptions(self) -> list[Subscription]:
        return self._notifications.subscriptions()

    def remove(self, subscription_id: str) -> None:
        self._notifications.unsubscribe(subscription_id)

    def enable(self, subscription_id: str) -> Subscription:
        return self._notifications.enable(subscription_id)

    def send_test(self, subscription_id: str) -> Delivery:
        return self._notifications.send_test(subscription_id)

    def delivery(self, delivery_id: str) -> Delivery:
        return self._notifications.delivery(delivery_id)

    def deliveries(self, state: DeliveryState | None, job_id: str | None, limit: int) -> list[Delivery]:
        return list(islice(self._notifications.deliveries(state=state, job_id=job_id), limit))

    def replay(self, delivery_id: str, reason: str) -> Delivery:
        return self._notifications.replay(delivery_id, reason=reason)
