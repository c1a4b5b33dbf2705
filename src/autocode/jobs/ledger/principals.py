"""Callers: what a role may do, and which jobs a caller sees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import scopes

__all__ = ["MOST_SESSIONS", "Principal", "Role", "check_sessions"]

MOST_SESSIONS: Final = 200
"""How many sessions one token may be for."""

_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)


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


def check_sessions(role: Role, sessions: Sequence[str] | None) -> None:
    """Check what sessions a token of *role* is to be for.

    Raises:
        UsageError: they are too many or no ids, or an admin's token is to be for some only.
    """
    if sessions is None:
        return
    if role is Role.ADMIN:
        raise UsageError(
            "An admin sees everything, and lets others in: its token can't be for some sessions only.",
            hint="Make it an operator's or a viewer's, or leave the sessions out.",
        )
    if len(sessions) > MOST_SESSIONS:
        raise UsageError(
            f"A token can't be for {len(sessions)} sessions.", hint=f"Name {MOST_SESSIONS} at most."
        )
    for session in sessions:
        if not _SESSION.fullmatch(session):
            raise UsageError(
                f"{session!r} is no session's id.",
                hint="Letters, digits, '.', '_', ':' and '-', at most 128, beginning with a letter or digit.",
            )
