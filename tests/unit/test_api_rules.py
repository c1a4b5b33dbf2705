"""Who may do what: every route, called by every role and scope."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute, Route, WebSocketRoute

from access_rules import CALLERS, RULES, Caller, Rule, expected
from api_world import Api
from autocode.jobs.ledger import access, audit, jobs
from autocode.jobs.ledger.access import Role
from ledger_world import deeds, look, new_job

pytest_plugins = ["fixtures_api"]

CASES = [(call, caller) for call in RULES for caller in CALLERS]


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
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield method, route.path
    else:
        raise TypeError(f"{route!r} is a kind of route that this test doesn't know")


def told(api: Api, call: tuple[str, str], caller: Caller) -> tuple[int, str]:
    """Let *caller* make the call; return status and text."""
    rule: Rule = RULES[call]
    token: str | None = None
    if caller.role is not None:
        sessions = None if caller.scope == "all" else [caller.scope]
        token = access.create_token(api.db, name="caller", role=caller.role, sessions=sessions).text
    options: dict[str, Any] = {"headers": rule.headers}
    if rule.body is not None:
        options["json"] = rule.body
    answer = api.send(call[0], rule.path or call[1], token=token, **options)
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
def test_each_caller_gets_what_the_table_says(world: Api, call: tuple[str, str], caller: Caller) -> None:
    """The status is the table's; who is refused changes nothing; no answer shows anything of a payload."""
    before = deeds(world.db)

    status, text = told(world, call, caller)

    assert status == expected(RULES[call], caller)
    assert "s3cret" not in text
    if status in {401, 403, 404, 409}:
        after = deeds(world.db)
        assert {**after, "tokens": []} == {**before, "tokens": []}


@pytest.mark.parametrize("caller", CALLERS[1:], ids=[f"{c.role} {c.scope}" for c in CALLERS[1:]])
def test_each_change_of_a_known_caller_is_one_entry(world: Api, caller: Caller) -> None:
    """Accepted or refused, a call that changes something leaves one entry with its actor and outcome."""
    for call, rule in RULES.items():
        if call[0] != "POST" or call[1] in {"/login", "/logout"}:
            continue
        seen = audit.entries(world.db)[-1].seq

        status, _ = told(world, call, caller)

        new = [row for row in audit.entries(world.db) if row.seq > seen and row.action != "token.create"]
        assert [row.outcome == "accepted" for row in new] == [status < 400], call
        assert new[0].actor.startswith("caller (token ")
        assert new[0].data["request_id"]
        assert rule.need in {"operator", "admin"}


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
