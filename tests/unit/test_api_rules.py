"""Who may do what: every route, called by every role and scope."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute, Route, WebSocketRoute

from access_rules import CALLERS, DATA, RULES, SNAPSHOT_BODY, Caller, Rule, expected
from api_world import Api
from autocode.jobs.canonical import digest_of
from autocode.jobs.ledger import access, audit, deliveries, delivery_desk, jobs, subscriptions
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.deliveries import Verdict
from autocode.jobs.ledger.subscriptions import NewSubscription, Watcher
from autocode.jobs.notification_resource import Channel
from ledger_world import deeds, look, new_job
from results_world import exported

pytest_plugins = ["fixtures_api"]

CASES = [(call, caller) for call in RULES for caller in CALLERS]
CHANGES = [
    call for call in RULES if call[0] not in {"GET", "HEAD", "WS"} and call[1] not in {"/login", "/logout"}
]
CLOSES = {401: 4401, 403: 4403, 404: 4403}
"""With what a socket is closed where a request has a status; to it these two look alike."""


def walk(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Yield every route of the application, WebSockets as the method ``WS``."""
    for route in app.routes:
        yield from calls_of(route)


def calls_of(route: BaseRoute) -> Iterator[tuple[str, str]]:
    """Yield the calls of one route; one of a type that isn't known here is an error."""
    included = getattr(route, "original_router", None)
    if included is not None:
        # FastAPI keeps an included router as one route
        assert not route.include_context.prefix, "the paths below would need it"  # type: ignore[attr-defined]
        for each in included.routes:
            yield from calls_of(each)
    elif isinstance(route, APIWebSocketRoute | WebSocketRoute):
        yield "WS", route.path
    elif isinstance(route, APIRoute | Route):
        methods = route.methods or set()
        # of its own accord the framework answers HEAD where it answers GET
        plain = methods - {"HEAD"} if type(route) is Route else methods
        for method in sorted(plain):
            yield method, route.path
    else:
        raise TypeError(f"{route!r} is a kind of route that this test doesn't know")


_numbers = itertools.count()
_OWNER = Watcher("owner", None, frozenset({"mine"}))


def subscription(api: Api, _folder: Path) -> str:
    """Make a subscription that is told of the session "mine" alone; return its id."""
    wish = NewSubscription(Channel.WEBHOOK, f"https://hooks.example.com/{next(_numbers)}")
    return subscriptions.subscribe(api.db, wish, _OWNER).subscription_id


def given_up(api: Api) -> str:
    """Let the receiver of a test say that it is gone; return the delivery's id."""
    delivery = delivery_desk.send_test(api.db, subscription(api, Path()), _OWNER)
    due = next(each for each in deliveries.due(api.db, ()) if each.delivery_id == delivery.delivery_id)
    message = deliveries.begin(api.db, due)
    assert message is not None
    deliveries.settle(api.db, message, Verdict(done=False, error="answered 410", gone=True))
    return delivery.delivery_id


def disabled(api: Api, _folder: Path) -> str:
    """Make a subscription whose receiver is gone; return its id."""
    return delivery_desk.get(api.db, given_up(api), _OWNER).subscription_id


def delivery(api: Api, _folder: Path) -> str:
    """Make a delivery that was given up and can be sent again; return its id."""
    made = given_up(api)
    subscriptions.enable(api.db, delivery_desk.get(api.db, made, _OWNER).subscription_id, _OWNER)
    return made


def export(api: Api, folder: Path) -> str:
    """Let a job of the session "mine" have exported; return its id."""
    job_id = f"export-{next(_numbers)}"
    exported(api.system, folder, job_id=job_id, session_id="mine")
    return job_id


THINGS: dict[str, Callable[[Api, Path], str]] = {
    "subscription": subscription,
    "disabled": disabled,
    "delivery": delivery,
    "export": export,
}


def ready(api: Api, call: tuple[str, str], folder: Path) -> str:
    """Make what the call is about; return its path."""
    path = RULES[call].path or call[1]
    if path.startswith(("/v1/objects", "/v1/snapshots")):
        assert api.send("PUT", f"/v1/objects/{digest_of(DATA)}", content=DATA).status_code in {200, 201}
        assert api.post("/v1/snapshots", SNAPSHOT_BODY).status_code in {200, 201}
    names = {name for _, name, _, _ in string.Formatter().parse(path) if name}
    return path.format(**{name: THINGS[name](api, folder) for name in names})


def told(api: Api, call: tuple[str, str], caller: Caller, path: str) -> tuple[int, str]:
    """Let *caller* make the call; return status and text, of a socket 101 or with what it was closed."""
    rule: Rule = RULES[call]
    token: str | None = None
    if caller.role is not None:
        sessions = None if caller.scope == "all" else [caller.scope]
        token = access.create_token(api.db, name="caller", role=caller.role, sessions=sessions).text
    options: dict[str, Any] = {"headers": rule.headers}
    if call[0] == "WS":
        return api.knock(path, token=token)
    if rule.body is not None:
        options["json"] = rule.body
    if rule.content is not None:
        options["content"] = rule.content
    answer = api.send(call[0], path, token=token, **options)
    return answer.status_code, answer.text


@pytest.fixture
def world(api: Api) -> Api:
    """Give an application with a job of the session "mine", which reconcile has told of."""
    jobs.enqueue(api.db, new_job(session_id="mine", reads=frozenset({"mine"}), payload={"secret": "s3cret"}))
    look(api.db)
    return api


def test_every_route_has_a_rule(api: Api) -> None:
    """A new route that the table doesn't know fails here, and so does a rule without a route."""
    assert set(walk(api.app)) == set(RULES)


@pytest.mark.parametrize(
    ("call", "caller"), CASES, ids=[f"{call[0]} {call[1]} {c.role} {c.scope}" for call, c in CASES]
)
def test_each_caller_gets_what_the_table_says(
    world: Api, tmp_path: Path, call: tuple[str, str], caller: Caller
) -> None:
    """The status is the table's; who is refused changes nothing; no answer shows anything of a payload."""
    path = ready(world, call, tmp_path)
    before = deeds(world.db)

    status, text = told(world, call, caller, path)

    due = expected(RULES[call], caller)
    assert status == (CLOSES.get(due, due) if call[0] == "WS" else due)
    assert "s3cret" not in text
    if status >= 400:
        after = deeds(world.db)
        assert {**after, "tokens": []} == {**before, "tokens": []}


@pytest.mark.parametrize("caller", CALLERS[1:], ids=[f"{c.role} {c.scope}" for c in CALLERS[1:]])
def test_each_change_of_a_known_caller_is_one_entry(world: Api, tmp_path: Path, caller: Caller) -> None:
    """Accepted or refused, a call that changes something leaves one entry with its actor and outcome.

    An upload alone leaves one only where it is refused: the snapshot that names it has its own.
    """
    for call in CHANGES:
        rule = RULES[call]
        path = ready(world, call, tmp_path)
        seen = audit.entries(world.db)[-1].seq

        status, _ = told(world, call, caller, path)

        new = [row for row in audit.entries(world.db) if row.seq > seen and row.action != "token.create"]
        due = [] if rule.silent and status < 400 else [status < 400]
        assert [row.outcome == "accepted" for row in new] == due, call
        for row in new:
            assert row.actor.startswith("caller (token ")
            assert row.data["request_id"]
            assert status >= 400 or {"before", "after"} & row.data.keys(), call
        assert rule.need in {"operator", "admin"}


@pytest.mark.parametrize("call", CHANGES, ids=[" ".join(call) for call in CHANGES])
def test_a_deed_has_one_name(world: Api, tmp_path: Path, call: tuple[str, str]) -> None:
    """The audit names what was accepted and what was refused alike, so that a filter finds both."""
    seen = audit.entries(world.db)[-1].seq
    path = ready(world, call, tmp_path)

    for role in (Role.VIEWER, Role.ADMIN):
        told(world, call, Caller(role), path)

    new = [row for row in audit.entries(world.db) if row.seq > seen and row.actor.startswith("caller ")]
    assert len({row.action for row in new}) == 1
    assert len(new) == (1 if RULES[call].silent else 2)
    if RULES[call].about or RULES[call].hidden:
        assert len({row.target for row in new}) == 1


@pytest.mark.parametrize("role", list(Role))
def test_reading_leaves_no_entry(world: Api, tmp_path: Path, role: Role) -> None:
    """Who only looks, and is let or not, leaves nothing in the audit."""
    for call in RULES:
        if call[0] not in {"GET", "HEAD", "WS"}:
            continue
        path = ready(world, call, tmp_path)
        seen = audit.entries(world.db)[-1].seq

        told(world, call, Caller(role), path)

        assert [row.action for row in audit.entries(world.db) if row.seq > seen] == ["token.create"], call


def test_denials_without_a_token_are_counted_alone(world: Api) -> None:
    """Nobody's refusals leave no entry; a counter tells how many there were, by their type."""
    before = len(audit.entries(world.db))

    for headers in ({}, {"Authorization": "Bearer x"}, {"Origin": "https://evil.example"}):
        world.post("/v1/jobs/job/cancel", {"reason": "x"}, token=None, headers=headers)

    assert len(audit.entries(world.db)) == before
    assert dict(world.service.denied) == {"token-invalid": 2, "request-refused": 1}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("rest", ["", "/retry", "/cancel"])
def test_hidden_and_unknown_jobs_read_the_same(world: Api, method: str, rest: str) -> None:
    """To a token of another session a job that it may not see and one that isn't there look alike."""
    scoped = access.create_token(world.db, name="guest", role=Role.OPERATOR, sessions=["other"]).text
    options: dict[str, Any] = {"headers": {"If-Match": '"1"'}, "json": {"reason": "x"}}
    if method == "GET":
        del options["json"]

    hidden, unknown = (
        world.send(method, f"/v1/jobs/{job_id}{rest}", token=scoped, **options) for job_id in ("job", "xyz")
    )

    assert hidden.status_code == unknown.status_code
    assert hidden.text.replace("job'", "xyz'").replace("/jobs/job", "/jobs/xyz") == unknown.text
    assert set(hidden.headers) == set(unknown.headers)


def test_a_request_has_an_id(world: Api) -> None:
    """A harmless id of the client's is kept, another is replaced; it is in the answer and the audit."""
    given = ["trace-1", "a b", f"x{world.tokens[Role.ADMIN]}", "", "x" * 200]

    shown = [
        world.post("/v1/jobs/job/retry", {"reason": "x"}, headers={"X-Request-Id": each}).headers[
            "x-request-id"
        ]
        for each in given
    ]

    kept = [row.data["request_id"] for row in audit.entries(world.db, target="job")]
    assert shown == kept
    assert shown[0] == "trace-1"
    assert [each for each in shown[1:] if each in given] == []
