"""Subscriptions and deliveries over HTTP: who may do what, what is shown, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api_world import Api, complete, opened
from autocode.jobs.api.settings import Settings
from autocode.jobs.ledger import access, audit, deliveries
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.deliveries import Verdict
from autocode.jobs.notification_errors import (
    DeliveryNotFound,
    DeliveryOpen,
    SubscriptionDisabled,
    SubscriptionExists,
    SubscriptionNotFound,
)
from autocode.jobs.notification_resource import Delivery, DeliveryPage, Subscription
from autocode.jobs.request_errors import NotAllowed
from ledger_world import deeds, started

pytest_plugins = ["fixtures_api"]

URL = "https://hooks.example.com/jobs"


def subscribed(api: Api, token: str | Role = Role.OPERATOR, **body: Any) -> Subscription:
    """Subscribe a webhook."""
    answer = api.post("/v1/subscriptions", {"webhook": URL, **body}, token=token)
    assert answer.status_code == 201, answer.text
    return Subscription.model_validate(answer.json())


def scoped(api: Api, *sessions: str) -> str:
    """Make the token of an operator who may see these sessions."""
    return access.create_token(api.db, name="eve", role=Role.OPERATOR, sessions=sessions).text


def fail(api: Api) -> None:
    """Let the delivery that is due be given up."""
    [due] = deliveries.due(api.db, ())
    message = deliveries.begin(api.db, due)
    assert message is not None
    deliveries.settle(api.db, message, Verdict(done=False, error="answered 500"))


def test_a_subscription_is_made_shown_and_removed(api: Api) -> None:
    """Its secret is in the answer that made it and nowhere else, and each deed is in the audit."""
    answer = api.post(
        "/v1/subscriptions", {"webhook": URL, "kind": "noop", "events": ["dead"]}, token=Role.OPERATOR
    )
    made = Subscription.model_validate(answer.json())
    path = f"/v1/subscriptions/{made.subscription_id}"
    shown = api.get(path, token=Role.OPERATOR).json()
    listed = api.get("/v1/subscriptions", token=Role.OPERATOR).json()
    removed = api.send("DELETE", path, token=Role.OPERATOR)

    assert (answer.status_code, answer.headers["location"]) == (201, path)
    assert made.secret is not None
    assert shown == {**answer.json(), "secret": None}
    assert listed == {"subscriptions": [shown]}
    assert (removed.status_code, removed.content) == (204, b"")
    assert api.get(path, token=Role.OPERATOR).status_code == 404
    entries = audit.entries(api.db, target=f"subscription:{made.subscription_id}")
    assert [(row.actor.partition(" ")[0], row.action) for row in entries] == [
        ("operator", "subscribe"),
        ("operator", "unsubscribe"),
    ]


def test_a_viewer_may_not(api: Api) -> None:
    """Addresses may be secrets, and sending is a deed: both take an operator."""
    made = subscribed(api)
    before = deeds(api.db)
    calls = [
        ("POST", "/v1/subscriptions"),
        ("GET", "/v1/subscriptions"),
        ("DELETE", f"/v1/subscriptions/{made.subscription_id}"),
        ("POST", f"/v1/subscriptions/{made.subscription_id}/test"),
        ("POST", f"/v1/subscriptions/{made.subscription_id}/enable"),
        ("GET", "/v1/deliveries"),
        ("POST", "/v1/deliveries/msg_x/replay"),
    ]

    refused = {api.send(*call, token=Role.VIEWER).status_code for call in calls}
    unknown = {api.send(*call, token=None).status_code for call in calls}

    assert (refused, unknown) == ({403}, {401})
    assert deeds(api.db) == before


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"webhook": URL, "email": "ada@example.org"},
        {"webhook": "ftp://hooks.example.com"},
        {"webhook": "https://user:secret@hooks.example.com"},
        {"webhook": URL, "events": []},
        {"webhook": URL, "events": ["ended"]},
        {"webhook": URL, "kind": ""},
        {"webhook": URL, "session_id": "a b"},
        {"webhook": URL, "secret": "whsec_mine"},
        {"email": "ada@example.org"},
    ],
)
def test_a_senseless_wish_is_refused(api: Api, body: dict[str, Any]) -> None:
    """No address or two, one that can't be, an unknown end, e-mail where there is no server for it."""
    before = deeds(api.db)

    answer = api.post("/v1/subscriptions", body)

    assert answer.status_code == 422, answer.text
    assert "secret@" not in answer.text
    assert deeds(api.db) == before


def test_e_mail_takes_an_address(sqlite_ledger: Database, tmp_path: Path) -> None:
    """Where e-mail is set up an address may subscribe, alone and without a line break."""
    with opened(sqlite_ledger, tmp_path, Settings(mail=True)) as api:
        made = api.post("/v1/subscriptions", {"email": "ada@example.org"})
        bad = api.post("/v1/subscriptions", {"email": "ada@example.org\nBcc: eve@example.org"})

    assert (made.status_code, made.json()["channel"], made.json()["secret"]) == (201, "email", None)
    assert bad.status_code == 422


def test_a_scoped_token_stays_in_its_sessions(api: Api) -> None:
    """Its subscriptions are told of its sessions alone, and it knows of no wider ones."""
    token = scoped(api, "s-1")
    wide = subscribed(api)
    mine = subscribed(api, token=token)
    for job_id, session in (("seen", "s-1"), ("hidden", "s-2"), ("none", None)):
        complete(api.db, started(api.db, job_id, session_id=session, reads=frozenset()))

    page = DeliveryPage.model_validate(api.get("/v1/deliveries", token=token).json())
    every = DeliveryPage.model_validate(api.get("/v1/deliveries").json())
    elsewhere = api.post("/v1/subscriptions", {"webhook": URL, "session_id": "s-2"}, token=token)
    foreign = api.send("DELETE", f"/v1/subscriptions/{wide.subscription_id}", token=token)
    hidden = next(each for each in every.deliveries if each.subscription_id == wide.subscription_id)
    replayed = api.post(f"/v1/deliveries/{hidden.delivery_id}/replay", {}, token=token)

    assert mine.sessions == ("s-1",)
    assert [(each.job_id, each.subscription_id) for each in page.deliveries] == [
        ("seen", mine.subscription_id)
    ]
    assert len(every.deliveries) == 4
    assert (elsewhere.status_code, foreign.status_code, replayed.status_code) == (403, 404, 404)


def test_what_was_given_up_is_sent_again(api: Api) -> None:
    """A dead delivery can be found by its state and job, and planned anew with a reason."""
    subscribed(api)
    complete(api.db, started(api.db))
    path = "/v1/deliveries?state=dead&job_id=job"
    open_ = api.get("/v1/deliveries").json()["deliveries"][0]["delivery_id"]
    early = api.post(f"/v1/deliveries/{open_}/replay")
    fail(api)
    [dead] = DeliveryPage.model_validate(api.get(path).json()).deliveries

    answer = api.post(f"/v1/deliveries/{dead.delivery_id}/replay", {"reason": "mended"})

    assert early.status_code == 409
    assert (dead.last_error, answer.status_code) == ("answered 500", 202)
    planned = Delivery.model_validate(answer.json())
    assert (planned.delivery_id, planned.state) == (dead.delivery_id, "planned")
    assert api.get(answer.headers["location"]).json() == answer.json()
    entries = audit.entries(api.db, target=f"delivery:{dead.delivery_id}")
    assert [(row.action, row.outcome, row.reason) for row in entries] == [
        ("replay", "refused: delivery-open", ""),
        ("replay", "accepted", "mended"),
    ]
    assert entries[1].data["request_id"] == answer.headers["x-request-id"]
    assert entries[1].data["before"] == {"state": "dead", "attempts": 1, "max_attempts": 14}
    assert entries[1].data["after"] == {"state": "planned", "attempts": 1, "max_attempts": 15}


def test_a_test_is_planned(api: Api) -> None:
    """It is a delivery like any other, about no job."""
    made = subscribed(api)

    answer = api.post(f"/v1/subscriptions/{made.subscription_id}/test")

    planned = Delivery.model_validate(answer.json())
    assert (answer.status_code, planned.type, planned.job_id) == (202, "job.test", None)
    assert answer.headers["location"] == f"/v1/deliveries/{planned.delivery_id}"


def test_deliveries_come_in_pages(api: Api) -> None:
    """A page names the next, and a query that makes no sense is refused."""
    subscribed(api)
    for number in range(3):
        complete(api.db, started(api.db, f"job-{number}"))

    first = api.get("/v1/deliveries?page_size=2").json()
    rest = api.get(f"/v1/deliveries?page_size=2&page_token={first['next_page_token']}").json()

    found = [each["job_id"] for each in first["deliveries"] + rest["deliveries"]]
    assert found == ["job-2", "job-1", "job-0"]
    assert rest["next_page_token"] is None
    for query in ("state=lost", "page_size=0", "page_token=x", "jobs=1"):
        assert api.get(f"/v1/deliveries?{query}").status_code == 422, query


def test_the_client_does_it_all(api: Api) -> None:
    """Typed answers, and the errors of the tree."""
    with api.client(Role.OPERATOR) as client:
        notifications = client.notifications
        made = notifications.subscribe(webhook=URL, kind="noop")
        with pytest.raises(SubscriptionExists) as caught:
            notifications.subscribe(webhook=URL, kind="noop")
        assert caught.value.data["subscription_id"] == made.subscription_id
        for number in range(3):
            complete(api.db, started(api.db, f"job-{number}"))
        found = list(notifications.deliveries(page_size=2))
        with pytest.raises(DeliveryOpen):
            notifications.replay(found[0].delivery_id)
        test = notifications.send_test(made.subscription_id)
        assert notifications.delivery(test.delivery_id) == test
        assert notifications.enable(made.subscription_id) == notifications.subscriptions()[0]
        notifications.unsubscribe(made.subscription_id)
        assert notifications.subscriptions() == []
        with pytest.raises(SubscriptionDisabled):
            notifications.replay(found[0].delivery_id)
        for call in (notifications.unsubscribe, notifications.enable, notifications.send_test):
            for unknown in ("sub_" + "0" * 32, "../jobs"):
                with pytest.raises(SubscriptionNotFound):
                    call(unknown)
        for unknown in ("msg_" + "0" * 32, "../jobs"):
            with pytest.raises(DeliveryNotFound):
                notifications.delivery(unknown)
    with api.client(Role.VIEWER) as client, pytest.raises(NotAllowed):
        client.notifications.subscriptions()

    assert [each.job_id for each in found] == ["job-2", "job-1", "job-0"]


def test_every_answer_is_documented(api: Api) -> None:
    """The OpenAPI document has each call with its body, its answers and their shapes."""
    document = api.get("/openapi.json", token=None).json()
    paths = document["paths"]
    described = {
        (method, path): set(call["responses"])
        for path, calls in paths.items()
        for method, call in calls.items()
        if path.startswith(("/v1/subscriptions", "/v1/deliveries"))
    }

    assert len(described) == 9
    assert all({"401", "403"} <= answers for answers in described.values())
    assert {"201", "409", "422"} <= described["post", "/v1/subscriptions"]
    assert {"202", "404", "409"} <= described["post", "/v1/deliveries/{delivery_id}/replay"]
    body = paths["/v1/subscriptions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    named = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    assert {"webhook", "email", "kind", "session_id", "events"} == set(named["properties"])
