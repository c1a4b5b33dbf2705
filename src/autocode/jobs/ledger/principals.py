"""Callers: what a role may do, and which jobs a caller sees."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autocode.jobs.ledger import scopes

__all__ = ["Principal", "Role"]


class Role(StrEnum):
    """What a caller may do; each role may do what the ones before it may."""

    VIEWER = "viewer"
    """Read jobs, lists and counts."""

    OPERATOR = "operator"
    """Submit, retry and cancel as well."""

    ADMIN = "admin"
    """Everything, access of others included."""

    def covers(self, needed: Role) -> bool:
        """Say whether this role may do what *needed* may."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller behind a token.

    Args:
        token_id: the public part of the token.
        name: whom people know it as; kept with what the caller did, also after the token is gone.
        role: what it may do.
        sessions: the sessions whose jobs it may see; ``None`` means all jobs.
        expires_at: when the token stops working, if ever.
    """

    token_id: str
    name: str
    role: Role
    sessions: frozenset[str] | None = None
    expires_at: datetime | None = None

    @property
    def actor(self) -> str:
        """The caller as the audit names it."""
        return f"{self.name} (token {self.token_id})"

    def sees(self, sessions: frozenset[str]) -> bool:
        """Say whether the caller may see a job of these sessions, by the rule of ``ledger.scopes``."""
        return scopes.covers(self.sessions, sessions)
