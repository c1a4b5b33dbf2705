"""Subscriptions and deliveries as every client sees them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

__all__ = ["Channel", "Delivery", "DeliveryPage", "DeliveryState", "Ending", "Subscription"]


class Channel(StrEnum):
    """How somebody is told."""

    WEBHOOK = "webhook"
    EMAIL = "email"


class Ending(StrEnum):
    """Of which ends of a job somebody wants to be told; ``cancelled`` is a death that a person asked for."""

    COMPLETE = "complete"
    DEAD = "dead"
    CANCELLED = "cancelled"


class DeliveryState(StrEnum):
    """How far a delivery is."""

    PLANNED = "planned"
    """It waits for its turn, or for the next try."""

    SENDING = "sending"
    """It was begun; whether the receiver got it isn't recorded yet."""

    DONE = "done"
    """The receiver said that it got it."""

    DEAD = "dead"
    """It was given up; a person can send it again."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Subscription(_Frozen):
    """Who is told of which endings; ``secret`` is there only in the answer that made it."""

    subscription_id: str
    channel: Channel
    target: str
    kind: str | None
    session_id: str | None
    events: tuple[Ending, ...]
    owner: str
    sessions: tuple[str, ...] | None
    created_at: str
    disabled_at: str | None
    disabled_why: str | None
    secret: str | None = None


class Delivery(_Frozen):
    """One notification to one receiver; ``delivery_id`` is the same in every try of it.

    ``job_id``, ``cursor`` and ``rev`` are ``null`` for a test.
    """

    delivery_id: str
    subscription_id: str
    channel: Channel
    target: str
    job_id: str | None
    cursor: int | None
    type: str
    rev: int | None
    state: DeliveryState
    attempts: int
    max_attempts: int
    created_at: str
    next_at: str | None
    last_error: str | None
    intent_at: str | None
    ended_at: str | None


class DeliveryPage(_Frozen):
    """Deliveries, newest first."""

    deliveries: tuple[Delivery, ...]
    next_page_token: str | None
