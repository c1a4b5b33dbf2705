"""What each call answers to each role and scope: the table that the tests hold every route to.

A route that isn't here fails a test, so that nobody adds one without saying who may use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from autocode.jobs.ledger.access import Role

__all__ = ["CALLERS", "RULES", "Caller", "Rule", "expected"]

Need = Literal["nobody", "viewer", "operator", "admin"]
Scope = Literal["all", "mine", "other"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A route of the application.

    Args:
        need: the least role; ``nobody``: no token is asked for.
        answer: the status for those who may.
        path: a path for the test, where the route's own has parameters.
        about: whether it is about one job, which others may not see.
        body: what is sent.
        headers: further headers.
        bound: the status for a token that is for some sessions, where that differs.
    """

    need: Need
    answer: int
    path: str | None = None
    about: bool = False
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    bound: int | None = None


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

RULES: Final[dict[tuple[str, str], Rule]] = {
    ("GET", "/openapi.json"): Rule("nobody", 200),
    ("GET", "/livez"): Rule("nobody", 200),
    ("GET", "/readyz"): Rule("nobody", 200),
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
    ("POST", "/v1/jobs/{job_id}/cancel"): Rule("operator", 202, "/v1/jobs/job/cancel", about=True, body=_WHY),
    # the payload reads the session "mine": whose token is for another may not ask for it
    ("POST", "/v1/jobs"): Rule("operator", 202, body=_NEW, bound=403),
    ("POST", "/v1/logins"): Rule("admin", 201, body={}),
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
    if rule.bound is not None and caller.scope == "other":
        return rule.bound
    return rule.answer
