"""Subscriptions and deliveries: who is told that a job ended, and what came of it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from autocode.jobs.api import refusals
from autocode.jobs.api.access import Operator
from autocode.jobs.api.bodies import model_of, read_json
from autocode.jobs.api.notification_models import (
    DeliveryQuery,
    ReplayBody,
    SubscribeBody,
    SubscriptionList,
)
from autocode.jobs.api.problems import JsonResponse
from autocode.jobs.api.service import Calls, Shared
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import delivery_desk, subscriptions
from autocode.jobs.ledger.delivery_desk import Chosen
from autocode.jobs.ledger.listing import LARGEST_PAGE
from autocode.jobs.ledger.subscriptions import NewSubscription, Watcher
from autocode.jobs.notification_resource import Channel, Delivery, DeliveryPage, Subscription
from autocode.jobs.notifications.address import check_url
from autocode.jobs.request_errors import NotAllowed
from autocode.jobs.urls import mail_address

__all__ = ["router"]

router: Final = APIRouter(tags=["notifications"])

_Answers = dict[int | str, dict[str, Any]]

_REFUSED: Final[_Answers] = {
    401: {"description": "no token that works"},
    403: {"description": "the token's role is too small, or the session isn't one of its own"},
}
_UNKNOWN: Final[_Answers] = _REFUSED | {
    404: {"description": "there is none of this id that this token may know of"}
}
_DISABLED: Final[_Answers] = {409: {"description": "the subscription is disabled or removed"}}


def _body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}


async def _watching(request: Request, caller: Operator) -> Watcher:
    return Watcher(caller.actor, caller.token_id, caller.sessions, refusals.request_id(request))


Watching = Annotated[Watcher, Depends(_watching)]


@router.post(
    "/v1/subscriptions",
    response_model=None,
    status_code=201,
    responses=_REFUSED
    | {
        201: {"model": Subscription, "description": "made; `secret` signs webhooks and isn't shown again"},
        409: {"description": "the same caller has such a subscription already"},
        422: {"description": "the address can't be one, or e-mail isn't set up"},
    },
    openapi_extra=_body(SubscribeBody),
)
async def subscribe(
    request: Request, service: Shared, calls: Calls, caller: Operator, watcher: Watching
) -> Response:
    """Be told of endings from now on, by a signed webhook or by e-mail.

    Only jobs of sessions that this token may see are ever told.
    """
    body = model_of(SubscribeBody, await read_json(request, service.settings.body_limit))
    if body.session_id is not None and not caller.sees(frozenset({body.session_id})):
        raise NotAllowed(f"The token {caller.token_id} may not see the session {body.session_id!r}.")
    channel, target = _target(body, mail=service.settings.mail)
    wish = NewSubscription(channel, target, body.kind, body.session_id, body.events)
    made = await calls(subscriptions.subscribe, service.db, wish, watcher)
    return _answer(made, status=201, location=f"/v1/subscriptions/{made.subscription_id}")


@router.get(
    "/v1/subscriptions",
    response_model=None,
    responses=_REFUSED | {200: {"model": SubscriptionList}},
)
async def list_subscriptions(service: Shared, calls: Calls, watcher: Watching) -> Response:
    """List the subscriptions that reach no further than this token does."""
    found = await calls(subscriptions.listed, service.db, watcher)
    return _answer(SubscriptionList(subscriptions=tuple(found)))


@router.get(
    "/v1/subscriptions/{subscription_id}",
    response_model=None,
    responses=_UNKNOWN | {200: {"model": Subscription}},
)
async def read_subscription(
    subscription_id: str, service: Shared, calls: Calls, watcher: Watching
) -> Response:
    """Read a subscription."""
    return _answer(await calls(subscriptions.get, service.db, subscription_id, watcher))


@router.delete(
    "/v1/subscriptions/{subscription_id}",
    response_model=None,
    status_code=204,
    responses=_UNKNOWN | {204: {"description": "removed; what wasn't sent yet never is"}},
)
async def unsubscribe(subscription_id: str, service: Shared, calls: Calls, watcher: Watching) -> Response:
    """Remove a subscription and forget its secret."""
    await calls(subscriptions.remove, service.db, subscription_id, watcher)
    return Response(status_code=204)


@router.post(
    "/v1/subscriptions/{subscription_id}/enable",
    response_model=None,
    responses=_UNKNOWN | {200: {"model": Subscription}},
)
async def enable(subscription_id: str, service: Shared, calls: Calls, watcher: Watching) -> Response:
    """Let a subscription be told again whose receiver had answered that it is gone."""
    return _answer(await calls(subscriptions.enable, service.db, subscription_id, watcher))


@router.post(
    "/v1/subscriptions/{subscription_id}/test",
    name="test",
    response_model=None,
    status_code=202,
    responses=_UNKNOWN | _DISABLED | {202: {"model": Delivery, "description": "planned; read it again"}},
)
async def send_test(subscription_id: str, service: Shared, calls: Calls, watcher: Watching) -> Response:
    """Send an event of the type `job.test`, once, the way that every other goes."""
    planned = await calls(delivery_desk.send_test, service.db, subscription_id, watcher)
    return _answer(planned, status=202, location=f"/v1/deliveries/{planned.delivery_id}")


@router.get("/v1/deliveries", response_model=None, responses=_REFUSED | {200: {"model": DeliveryPage}})
async def list_deliveries(
    query: Annotated[DeliveryQuery, Query()], service: Shared, calls: Calls, watcher: Watching
) -> Response:
    """List deliveries, newest first."""
    found = await calls(
        delivery_desk.page,
        service.db,
        watcher,
        Chosen(query.state, query.subscription, query.job_id),
        size=min(query.page_size, LARGEST_PAGE),
        token=query.page_token,
    )
    return _answer(DeliveryPage(deliveries=found.deliveries, next_page_token=found.next_token))


@router.get(
    "/v1/deliveries/{delivery_id}", response_model=None, responses=_UNKNOWN | {200: {"model": Delivery}}
)
async def read_delivery(delivery_id: str, service: Shared, calls: Calls, watcher: Watching) -> Response:
    """Read a delivery."""
    return _answer(await calls(delivery_desk.get, service.db, delivery_id, watcher))


@router.post(
    "/v1/deliveries/{delivery_id}/replay",
    response_model=None,
    status_code=202,
    responses=_UNKNOWN
    | {
        202: {"model": Delivery, "description": "planned anew, under the same id"},
        409: {"description": "it is still under way, or its subscription is disabled or removed"},
    },
    openapi_extra=_body(ReplayBody, required=False),
)
async def replay(
    delivery_id: str, request: Request, service: Shared, calls: Calls, watcher: Watching
) -> Response:
    """Send a delivery again that is done or dead."""
    given = "content-length" in request.headers or "transfer-encoding" in request.headers
    empty = request.headers.get("content-length") == "0"
    value = await read_json(request, service.settings.body_limit) if given and not empty else {}
    reason = model_of(ReplayBody, value).reason
    refusals.about(request, reason=reason)
    planned = await calls(delivery_desk.replay, service.db, delivery_id, watcher, reason=reason)
    return _answer(planned, status=202, location=f"/v1/deliveries/{delivery_id}")


def _target(body: SubscribeBody, *, mail: bool) -> tuple[Channel, str]:
    if body.webhook is not None:
        return Channel.WEBHOOK, check_url(body.webhook)
    assert body.email is not None, "the model takes one of the two"
    if not mail:
        raise UsageError(
            "This service sends no e-mail.", hint="Set smtp_host and smtp_from: docs/settings.md."
        )
    try:
        return Channel.EMAIL, mail_address(body.email)
    except ValueError:
        raise UsageError(
            "The email isn't a mail address.", hint="Write it alone and in ASCII, as ada@example.org."
        ) from None


def _answer(shown: BaseModel, *, status: int = 200, location: str | None = None) -> Response:
    headers = {} if location is None else {"Location": location}
    return JsonResponse(shown.model_dump(mode="json"), status_code=status, headers=headers)
