"""What each call answers to each role and scope: the table that the tests hold every route to.

A route that isn't here fails a test, so that nobody adds one without saying who may use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from autocode.jobs.canonical import digest_of
from autocode.jobs.ledger.access import Role
from autocode.jobs.operations.snapshots import Snapshot, SnapshotMember

__all__ = ["CALLERS", "DATA", "RULES", "SNAPSHOT_BODY", "Caller", "Rule", "expected"]

Need = Literal["nobody", "viewer", "operator", "admin"]
Scope = Literal["all", "mine", "other"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A route of the application.

    Args:
        need: the least role; ``nobody``: no token is asked for.
        answer: the status for those who may.
        path: a path for the test, where the route's own has parameters; in braces stands what has to be made.
        about: whether it is about one job, which others may not see.
        hidden: whether it is about something else that others may not see; the role is asked for first.
        body: what is sent.
        content: what is sent, where that isn't JSON.
        headers: further headers.
        bound: the status for a token that is for some sessions, where that differs.
        silent: whether the audit has no entry of it where it is accepted.
        whole: whether it is about all sessions, and so for no token that is for some.
    """

    need: Need
    answer: int
    path: str | None = None
    about: bool = False
    hidden: bool = False
    body: dict[str, Any] | None = None
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    bound: int | None = None
    silent: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: a role or nobody, with a token for the job's session, for another one, or for all."""

    role: Role | None
    scope: Scope = "all"


CALLERS: Final = (
    Caller(None),
    *(Caller(role) for role in Role),
    *(Caller(role, scope) for role in (Role.VIEWER, Role.OPERATOR) for scope in ("mine", "other")),
)

_WHY: Final = {"reason": "because"}
_TAG: Final = {"If-Match": '"1"'}
_NEW: Final = {"kind": "scenario-reader", "payload": {"witness": "w", "sessions": ["mine"]}, "job_id": "new"}
_PAGE: Final = {"Origin": "http://127.0.0.1:4280", "Content-Type": "application/x-www-form-urlencoded"}

DATA: Final = b"data"
"""The bytes of an object in a snapshot of the session "mine"."""

_OBJECT: Final = digest_of(DATA)
_SNAPSHOT: Final = digest_of(
    Snapshot(members=[SnapshotMember(path="a", digest=_OBJECT, size=len(DATA))]).to_bytes()
)
SNAPSHOT_BODY: Final = {"session_id": "mine", "members": [{"path": "a", "digest": _OBJECT}]}
"""The request that named it."""

_OTHER_NAMES: Final = {"session_id": "mine", "members": [{"path": "b", "digest": _OBJECT}]}
_NEW_OBJECT: Final = f"/v1/objects/{digest_of(b'new')}"
_SUBSCRIPTION: Final = "/v1/subscriptions/{subscription}"
_WISH: Final = {"webhook": "https://hooks.example.com/jobs", "session_id": "mine"}

_RESULTS: Final = {
    "/v1/jobs/{job_id}/result": "",
    "/v1/jobs/{job_id}/result.zip": ".zip",
    "/v1/jobs/{job_id}/result.html": ".html",
    "/v1/jobs/{job_id}/result.md": ".md",
    "/v1/jobs/{job_id}/result/html/{page:path}": "/html/index.html",
    "/v1/jobs/{job_id}/result/markdown/{page:path}": "/markdown/index.md",
    "/v1/jobs/{job_id}/result/{member:path}": "/manifest.json",
}

RULES: Final[dict[tuple[str, str], Rule]] = {
    ("GET", "/openapi.json"): Rule("nobody", 200),
    ("GET", "/livez"): Rule("nobody", 200),
    ("GET", "/readyz"): Rule("nobody", 200),
    ("GET", "/metrics"): Rule("viewer", 200, whole=True),
    ("GET", "/login"): Rule("nobody", 200),
    ("POST", "/login"): Rule("nobody", 401, headers=_PAGE),
    ("POST", "/logout"): Rule("nobody", 303),
    ("GET", "/"): Rule("viewer", 200),
    ("GET", "/v1/jobs"): Rule("viewer", 200),
    ("GET", "/v1/counts"): Rule("viewer", 200),
    ("GET", "/v1/audit"): Rule("viewer", 200),
    ("GET", "/v1/jobs/{job_id}"): Rule("viewer", 200, "/v1/jobs/job", about=True),
    ("GET", "/v1/jobs/{job_id}/retry"): Rule("viewer", 200, "/v1/jobs/job/retry", about=True),
    # the job isn't dead, so a retry that is allowed is told so
    ("POST", "/v1/jobs/{job_id}/retry"): Rule(
        "operator", 409, "/v1/jobs/job/retry", about=True, body=_WHY, headers=_TAG
    ),
    # each job that is found has an entry of its own beside the one of the request
    ("POST", "/v1/bulk/retry"): Rule("operator", 202, body={"ids": ["unheard-of"], **_WHY}),
    ("POST", "/v1/jobs/{job_id}/cancel"): Rule("operator", 202, "/v1/jobs/job/cancel", about=True, body=_WHY),
    # the payload reads the session "mine": whose token is for another may not ask for it
    ("POST", "/v1/jobs"): Rule("operator", 202, body=_NEW, bound=403),
    ("POST", "/v1/logins"): Rule("admin", 201, body={}),
    ("WS", "/v1/events"): Rule("viewer", 101, "/v1/events?job_id=job", about=True),
    # whose bytes these are shows once a snapshot names them, so anybody who may submit may send some
    ("PUT", "/v1/objects/{digest}"): Rule("operator", 201, _NEW_OBJECT, content=b"new", silent=True),
    ("HEAD", "/v1/objects/{digest}"): Rule("viewer", 200, f"/v1/objects/{_OBJECT}", hidden=True),
    ("POST", "/v1/snapshots"): Rule("operator", 201, body=_OTHER_NAMES, bound=403),
    ("GET", "/v1/snapshots/{digest}"): Rule("viewer", 200, f"/v1/snapshots/{_SNAPSHOT}", hidden=True),
    # addresses may be secrets, so they aren't for viewers
    ("GET", "/v1/subscriptions"): Rule("operator", 200),
    ("POST", "/v1/subscriptions"): Rule("operator", 201, body=_WISH, bound=403),
    ("GET", "/v1/subscriptions/{subscription_id}"): Rule("operator", 200, _SUBSCRIPTION, hidden=True),
    ("DELETE", "/v1/subscriptions/{subscription_id}"): Rule("operator", 204, _SUBSCRIPTION, hidden=True),
    ("POST", "/v1/subscriptions/{subscription_id}/enable"): Rule(
        "operator", 200, "/v1/subscriptions/{disabled}/enable", hidden=True
    ),
    ("POST", "/v1/subscriptions/{subscription_id}/test"): Rule(
        "operator", 202, f"{_SUBSCRIPTION}/test", hidden=True
    ),
    ("GET", "/v1/deliveries"): Rule("operator", 200),
    ("GET", "/v1/deliveries/{delivery_id}"): Rule("operator", 200, "/v1/deliveries/{delivery}", hidden=True),
    ("POST", "/v1/deliveries/{delivery_id}/replay"): Rule(
        "operator", 202, "/v1/deliveries/{delivery}/replay", hidden=True, body=_WHY
    ),
} | {
    (method, route): Rule("viewer", 200, "/v1/jobs/{export}/result" + end, about=True)
    for method in ("GET", "HEAD")
    for route, end in _RESULTS.items()
}
"""Every route by method and path."""


def expected(rule: Rule, caller: Caller) -> int:
    """Return the status that *caller* gets of *rule*'s route."""
    if rule.need == "nobody":
        return rule.answer
    if caller.role is None:
        return 401
    if rule.about and caller.scope == "other":
        # before the role is looked at: what may not be seen doesn't exist
        return 404 if rule.need == "operator" or caller.role.covers(Role(rule.need)) else 403
    if not caller.role.covers(Role(rule.need)):
        return 403
    if caller.scope == "other" and rule.hidden:
        return 404
    bound = 403 if rule.whole else rule.bound if caller.scope == "other" else None
    return rule.answer if caller.scope == "all" or bound is None else bound
