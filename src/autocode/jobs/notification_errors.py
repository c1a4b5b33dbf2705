"""Errors about notifications: what can't be subscribed, found or sent again.

::

    JobsError
    ├── DeliveryNotFound
    ├── DeliveryOpen          it is still under way, so there is nothing to send again
    ├── SubscriptionDisabled  its receiver is gone, and nothing is sent there
    ├── SubscriptionExists    the same caller is told of the same already
    └── SubscriptionNotFound
"""

from __future__ import annotations

from autocode.jobs.errors import JobsError

__all__ = [
    "DeliveryNotFound",
    "DeliveryOpen",
    "SubscriptionDisabled",
    "SubscriptionExists",
    "SubscriptionNotFound",
]


class DeliveryNotFound(JobsError):
    """No delivery has this id, or the caller may not know of it."""

    type = "delivery-not-found"
    title = "No such delivery"
    default_hint = "`autocode-jobs notify deliveries` lists them."


class DeliveryOpen(JobsError):
    """The delivery is still under way."""

    type = "delivery-open"
    title = "The delivery is still under way"
    default_hint = "Wait: it is tried again by itself. Only what was sent or given up can be sent again."


class SubscriptionDisabled(JobsError):
    """Nothing is sent for this subscription any more."""

    type = "subscription-disabled"
    title = "The subscription is disabled"
    default_hint = "`autocode-jobs notify enable ID` lets it be told again."


class SubscriptionExists(JobsError):
    """The same caller is told of the same endings at the same place already.

    ``data['subscription_id']`` is that subscription.
    """

    type = "subscription-exists"
    title = "There is such a subscription already"
    default_hint = "Use it, or remove it first: its secret can't be shown again."


class SubscriptionNotFound(JobsError):
    """No subscription has this id, or the caller may not know of it."""

    type = "subscription-not-found"
    title = "No such subscription"
    default_hint = "`autocode-jobs notify list` lists them."
