"""The part of the client that is about notifications."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from autocode.jobs.client.transport import Transport
from autocode.jobs.notification_errors import DeliveryNotFound, SubscriptionNotFound
from autocode.jobs.notification_resource import Delivery, DeliveryPage, DeliveryState, Ending, Subscription

__all__ = ["Notifications"]

_ID: Final = re.compile(r"(sub|msg)_[0-9a-f]{32}")


class Notifications:
    """Subscriptions and deliveries of one service; :attr:`autocode.jobs.client.Client.notifications` has it.

    Args:
        transport: sends the requests.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def subscribe(
        self,
        *,
        webhook: str | None = None,
        email: str | None = None,
        kind: str | None = None,
        session_id: str | None = None,
        events: Sequence[Ending | str] = (Ending.COMPLETE, Ending.DEAD),
    ) -> Subscription:
        """Be told of endings from now on. Sent once: where the answer is lost, look at the list.

        Args:
            webhook: the URL that gets a signed POST request; this, or
            email: the address that gets a message.
            kind: only of jobs of this kind.
            session_id: only of jobs of this session.
            events: of which endings.

        Returns:
            The subscription, a webhook's with the ``secret`` that isn't shown again.

        Raises:
            NotAllowed: the token's role is too small, or the session isn't one of its own.
            SubscriptionExists: there is such a subscription already.
            UsageError: the address can't be one, or the service sends no e-mail.
        """
        body: dict[str, Any] = {
            "webhook": webhook,
            "email": email,
            "kind": kind,
            "session_id": session_id,
            "events": [str(event) for event in events],
        }
        given = {name: value for name, value in body.items() if value is not None}
        answer = self._transport.send("POST", "/v1/subscriptions", again=False, json=given)
        return Subscription.model_validate(answer.json())

    def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions that the token may know of, oldest first."""
        answer = self._transport.send("GET", "/v1/subscriptions", again=True)
        return [Subscription.model_validate(each) for each in answer.json()["subscriptions"]]

    def unsubscribe(self, subscription_id: str) -> None:
        """Remove a subscription. Sent once.

        Raises:
            SubscriptionNotFound: there is none of this id that the token may know of.
        """
        self._transport.send("DELETE", _subscription(subscription_id), again=False)

    def enable(self, subscription_id: str) -> Subscription:
        """Let a disabled subscription be told again. Idempotent.

        Raises:
            SubscriptionNotFound: there is none of this id that the token may know of.
        """
        answer = self._transport.send("POST", _subscription(subscription_id, "/enable"), again=True)
        return Subscription.model_validate(answer.json())

    def send_test(self, subscription_id: str) -> Delivery:
        """Send a test; read the delivery again to see what came of it.

        Raises:
            SubscriptionDisabled: nothing is sent there.
            SubscriptionNotFound: there is none of this id that the token may know of.
        """
        answer = self._transport.send("POST", _subscription(subscription_id, "/test"), again=False)
        return Delivery.model_validate(answer.json())

    def deliveries(
        self,
        *,
        state: DeliveryState | str | None = None,
        subscription_id: str | None = None,
        job_id: str | None = None,
        page_size: int = 100,
    ) -> Iterator[Delivery]:
        """Yield the deliveries that fit, newest first, page by page.

        Raises:
            UsageError: the filter makes no sense.
        """
        query = {
            "state": None if state is None else str(state),
            "subscription": subscription_id,
            "job_id": job_id,
            "page_size": page_size,
        }
        token: str | None = None
        while True:
            answer = self._transport.send(
                "GET", "/v1/deliveries", again=True, query={**query, "page_token": token}
            )
            page = DeliveryPage.model_validate(answer.json())
            yield from page.deliveries
            token = page.next_page_token
            if token is None:
                return

    def delivery(self, delivery_id: str) -> Delivery:
        """Return a delivery.

        Raises:
            DeliveryNotFound: there is none of this id that the token may know of.
        """
        answer = self._transport.send("GET", _delivery(delivery_id), again=True)
        return Delivery.model_validate(answer.json())

    def replay(self, delivery_id: str, *, reason: str = "") -> Delivery:
        """Send a delivery again that is over, under its old id. Sent once.

        Raises:
            DeliveryNotFound: there is none of this id that the token may know of.
            DeliveryOpen: it is still under way.
            SubscriptionDisabled: its subscription is disabled or removed.
        """
        path = _delivery(delivery_id, "/replay")
        answer = self._transport.send("POST", path, again=False, json={"reason": reason})
        return Delivery.model_validate(answer.json())


def _subscription(subscription_id: str, rest: str = "") -> str:
    if not _ID.fullmatch(subscription_id):
        # a dot or a slash in it would lead to another address
        raise SubscriptionNotFound(f"There is no subscription {subscription_id[:100]!r}.")
    return f"/v1/subscriptions/{subscription_id}{rest}"


def _delivery(delivery_id: str, rest: str = "") -> str:
    if not _ID.fullmatch(delivery_id):
        raise DeliveryNotFound(f"There is no delivery {delivery_id[:100]!r}.")
    return f"/v1/deliveries/{delivery_id}{rest}"
