"""What clients send about notifications; a member that isn't here is refused, not ignored."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from autocode.jobs.api.models import Id, Text
from autocode.jobs.ledger.listing import LARGEST_PAGE
from autocode.jobs.notification_resource import DeliveryState, Ending, Subscription

__all__ = ["DeliveryQuery", "ReplayBody", "SubscribeBody", "SubscriptionList"]

_Why = Annotated[str, StringConstraints(strip_whitespace=True, max_length=2_000, pattern=r"^[^\x00]*$")]
_DEFAULT: Final = (Ending.COMPLETE, Ending.DEAD)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SubscribeBody(_Strict):
    """A wish to be told of endings, by webhook or by e-mail: one of the two."""

    webhook: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] | None = Field(
        None, description="the URL that gets a signed POST request"
    )
    email: Annotated[str, StringConstraints(min_length=1, max_length=254)] | None = Field(
        None, description="the address that gets a message"
    )
    kind: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = Field(
        None, description="only of jobs of this kind"
    )
    session_id: Id | None = Field(None, description="only of jobs of this session")
    events: tuple[Ending, ...] = Field(
        _DEFAULT,
        min_length=1,
        max_length=len(Ending),
        description="of which endings; `cancelled`: dead because a person called the job off",
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> SubscribeBody:
        if (self.webhook is None) == (self.email is None):
            raise ValueError("give a webhook or an email, and not both")
        return self


class ReplayBody(_Strict):
    """A wish to send a delivery again."""

    reason: _Why = Field("", description="why, for the audit")


class DeliveryQuery(_Strict):
    """Which deliveries, and which page of them."""

    state: DeliveryState | None = None
    subscription: Text | None = Field(None, description="of this subscription")
    job_id: Text | None = Field(None, description="about this job")
    page_size: int = Field(
        50, ge=1, description=f"deliveries on a page; more than {LARGEST_PAGE} means {LARGEST_PAGE}"
    )
    page_token: str | None = None


class SubscriptionList(_Strict):
    """The subscriptions that the caller may know of, oldest first."""

    subscriptions: tuple[Subscription, ...]
