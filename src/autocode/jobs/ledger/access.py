"""Who may call: tokens, and logins that work once.

Only digests are stored, so a copy of the database opens nothing. A token is ``ajt_<id>_<secret>``: the id
finds its row and may be shown, the secret is 256 random bits. With that much randomness a plain SHA-256 is as
good as a slow hash, and costs a call nothing.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.canonical import digest_of
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.words import required
from autocode.jobs.request_errors import TokenInvalid

__all__ = [
    "LOGIN_LIFETIME",
    "SESSION_LIFETIME",
    "TOKEN",
    "NewToken",
    "Principal",
    "Role",
    "create_login",
    "create_token",
    "redeem",
    "revoke",
    "tokens",
    "verify",
    "working",
]

TOKEN: Final = re.compile(r"ajt_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)
"""The written form of a token."""

SESSION_LIFETIME: Final = timedelta(hours=12)
"""How long the browser session of a redeemed login lasts."""

LOGIN_LIFETIME: Final = timedelta(minutes=15)
"""How long a login that nobody redeems stays good."""

_LONGEST_NAME: Final = 200

_MANY: Final = 500
"""Values that one query names at most."""

_NO_TOKEN: Final = "The token is unknown, has expired or was revoked."  # noqa: S105 - a sentence
_NO_LOGIN: Final = "The login link is unknown, has expired or was used before."


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

    def sees(self, session_id: str | None) -> bool:
        """Say whether the caller may see jobs of this session."""
        return self.sessions is None or session_id in self.sessions


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token at its birth: the only moment at which its text is known to this program."""

    text: str
    principal: Principal

    def __repr__(self) -> str:
        # what ends up in a traceback or a log mustn't let anybody in
        return f"NewToken(token_id={self.principal.token_id!r})"


def create_token(
    db: Database,
    *,
    name: str,
    role: Role,
    lifetime: timedelta | None = None,
    sessions: Sequence[str] | None = None,
) -> NewToken:
    """Make a token. Atomic.

    Args:
        db: the ledger.
        name: whom people will know the caller as.
        role: what it may do.
        lifetime: how long it works; for ever where none is given.
        sessions: the sessions whose jobs it may see; all where none are given.

    Raises:
        UsageError: the name is empty, too long or no text, or the lifetime isn't positive.
    """
    name = required(name, "token's name", longest=_LONGEST_NAME)
    if lifetime is not None and lifetime <= timedelta(0):
        raise UsageError(
            "A token's lifetime must be positive.", hint="Leave it out for one that never expires."
        )
    with db.write() as tx:
        return _insert(tx, db.clock.now(), name=name, role=role, lifetime=lifetime, sessions=sessions)


def verify(db: Database, token: str) -> Principal:
    """Return the caller behind *token*.

    Raises:
        TokenInvalid: it is malformed, unknown, expired or revoked; which of these isn't said.
    """
    parts = TOKEN.fullmatch(token)
    if parts is None:
        raise TokenInvalid(_NO_TOKEN)
    with db.read() as tx:
        row = tx.execute(sa.select(t.tokens).where(t.tokens.c.token_id == parts[1])).first()
    if row is None or not hmac.compare_digest(row.digest, digest_of(token.encode("ascii"))):
        raise TokenInvalid(_NO_TOKEN)
    if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= db.clock.now()):
        raise TokenInvalid(_NO_TOKEN)
    return _principal(row)


def revoke(db: Database, token_id: str) -> bool:
    """End a token at once. Idempotent.

    Returns:
        Whether it worked until now: ``False`` where it is unknown or was revoked before.
    """
    with db.write() as tx:
        revoked = tx.execute(
            sa.update(t.tokens)
            .where(t.tokens.c.token_id == token_id, t.tokens.c.revoked_at.is_(None))
            .values(revoked_at=db.clock.now())
        )
        return revoked.rowcount == 1


def tokens(db: Database) -> list[Principal]:
    """Return the callers whose tokens work now, in the order of their making."""
    query = (
        sa.select(t.tokens)
        .where(
            t.tokens.c.revoked_at.is_(None),
            sa.or_(t.tokens.c.expires_at.is_(None), t.tokens.c.expires_at > db.clock.now()),
        )
        .order_by(t.tokens.c.created_at, t.tokens.c.token_id)
    )
    with db.read() as tx:
        return [_principal(row) for row in tx.execute(query)]


def working(db: Database, token_ids: Collection[str]) -> dict[str, Principal]:
    """Return those of these tokens that work now, with their callers as they are now; few queries."""
    found: dict[str, Principal] = {}
    wanted = sorted(token_ids)
    with db.read() as tx:
        for first in range(0, len(wanted), _MANY):
            query = sa.select(t.tokens).where(
                t.tokens.c.token_id.in_(wanted[first : first + _MANY]),
                t.tokens.c.revoked_at.is_(None),
                sa.or_(t.tokens.c.expires_at.is_(None), t.tokens.c.expires_at > db.clock.now()),
            )
            found |= {row.token_id: _principal(row) for row in tx.execute(query)}
    return found


def create_login(db: Database, *, role: Role = Role.ADMIN, lifetime: timedelta = LOGIN_LIFETIME) -> str:
    """Make a login code that opens one browser session, and return it. Atomic.

    Codes that expired unused or were used long ago are removed on the way.
    """
    code = secrets.token_hex(32)
    with db.write() as tx:
        now = db.clock.now()
        tx.execute(sa.delete(t.logins).where(t.logins.c.expires_at < now - SESSION_LIFETIME))
        tx.execute(
            sa.insert(t.logins).values(
                digest=digest_of(code.encode("ascii")),
                role=role.value,
                created_at=now,
                expires_at=now + lifetime,
            )
        )
    return code


def redeem(db: Database, code: str, *, name: str = "browser") -> NewToken:
    """Use a login code up, and return the session token that it is good for.

    Atomic: of many callers one gets it.

    Raises:
        TokenInvalid: the code is unknown, has expired or was used; nothing was written.
    """
    digest = digest_of(code.encode("utf-8", "surrogatepass"))
    with db.write() as tx:
        now = db.clock.now()
        used = (
            sa.update(t.logins)
            .where(t.logins.c.digest == digest, t.logins.c.used_at.is_(None), t.logins.c.expires_at > now)
            .values(used_at=now)
            .returning(t.logins.c.role)
        )
        role = tx.execute(used).scalar()
        if role is None:
            raise TokenInvalid(
                _NO_LOGIN, hint="Each link works once and for a quarter of an hour: ask for a new one."
            )
        return _insert(tx, now, name=name, role=Role(role), lifetime=SESSION_LIFETIME, sessions=None)


def _insert(
    tx: sa.Connection,
    now: datetime,
    *,
    name: str,
    role: Role,
    lifetime: timedelta | None,
    sessions: Sequence[str] | None,
) -> NewToken:
    token_id = secrets.token_hex(8)
    text = f"ajt_{token_id}_{secrets.token_hex(32)}"
    expires_at = None if lifetime is None else now + lifetime
    tx.execute(
        sa.insert(t.tokens).values(
            token_id=token_id,
            digest=digest_of(text.encode("ascii")),
            name=name,
            role=role.value,
            sessions=None if sessions is None else sorted(set(sessions)),
            created_at=now,
            expires_at=expires_at,
        )
    )
    allowed = None if sessions is None else frozenset(sessions)
    return NewToken(text, Principal(token_id, name, role, allowed, expires_at))


def _principal(row: sa.Row[Any]) -> Principal:
    sessions = None if row.sessions is None else frozenset(row.sessions)
    return Principal(row.token_id, row.name, Role(row.role), sessions, row.expires_at)
