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
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.canonical import digest_of
from autocode.jobs.clock import rfc3339
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import audit
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.principals import MOST_SESSIONS, Principal, Role, check_sessions
from autocode.jobs.ledger.words import required, storable
from autocode.jobs.request_errors import TokenInvalid

__all__ = [
    "LOGIN_LIFETIME",
    "MOST_SESSIONS",
    "OURSELVES",
    "SESSION_LIFETIME",
    "TOKEN",
    "NewToken",
    "OwnedToken",
    "Principal",
    "Role",
    "create_login",
    "create_token",
    "listed",
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

OURSELVES: Final = "autocode-jobs"
"""Whom the audit names where the program made a token or a login for itself or its user."""

_LONGEST_NAME: Final = 200

_MANY: Final = 500
"""Values that one query names at most."""

_NO_TOKEN: Final = "The token is unknown, has expired or was revoked."  # noqa: S105 - a sentence
_NO_LOGIN: Final = "The login link is unknown, has expired or was used before."


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token at its birth: the only moment at which its text is known to this program."""

    text: str
    principal: Principal

    def __repr__(self) -> str:
        # what ends up in a traceback or a log mustn't let anybody in
        return f"NewToken(token_id={self.principal.token_id!r})"


@dataclass(frozen=True, slots=True)
class OwnedToken:
    """A token as its owners see it: everything but its text.

    Args:
        principal: the caller behind it.
        created_at: when it was made.
        revoked_at: when it was revoked, if it was.
        works: whether it lets anybody in now.
    """

    principal: Principal
    created_at: datetime
    revoked_at: datetime | None
    works: bool


def create_token(
    db: Database,
    *,
    name: str,
    role: Role,
    lifetime: timedelta | None = None,
    sessions: Sequence[str] | None = None,
    actor: str = OURSELVES,
) -> NewToken:
    """Make a token, with an entry in the audit. Atomic.

    Args:
        db: the ledger.
        name: whom people will know the caller as.
        role: what it may do.
        lifetime: how long it works; for ever where none is given.
        sessions: the sessions whose jobs it may see; all where none are given.
        actor: who makes it, for the audit.

    Raises:
        UsageError: the name is empty, too long or no text, the lifetime isn't positive, the sessions are too
            many or no ids, or an admin's token is to be for some sessions only.
    """
    name = required(name, "token's name", longest=_LONGEST_NAME)
    if lifetime is not None and lifetime <= timedelta(0):
        raise UsageError(
            "A token's lifetime must be positive.", hint="Leave it out for one that never expires."
        )
    check_sessions(role, sessions)
    with db.write() as tx:
        now = db.clock.now()
        try:
            made = _insert(tx, now, name=name, role=role, lifetime=lifetime, sessions=sessions)
        except OverflowError:
            raise UsageError(
                "A token can't live as long as that.", hint="Leave it out for one that never expires."
            ) from None
        target, after = _target(made.principal.token_id), _shown(made.principal)
        _audit(tx, now, actor=actor, action="token.create", target=target, after=after)
    return made


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
    if not _works(row, db.clock.now()):
        raise TokenInvalid(_NO_TOKEN)
    return _principal(row)


def revoke(
    db: Database,
    token_id: str,
    *,
    actor: str = OURSELVES,
    action: str = "token.revoke",
    reason: str = "",
    request_id: str | None = None,
) -> bool:
    """End a token at once, with an entry in the audit. Idempotent, atomic.

    Args:
        db: the ledger.
        token_id: the public part of the token.
        actor: who ends it, for the audit.
        action: as what the audit has it.
        reason: why, in the actor's own words.
        request_id: the request that asks, for the audit.

    Returns:
        Whether it worked until now: ``False`` where it is unknown or was revoked before; then the audit has
        no entry.
    """
    storable(token_id, "token's id")
    with db.write() as tx:
        now = db.clock.now()
        revoked = tx.execute(
            sa.update(t.tokens)
            .where(t.tokens.c.token_id == token_id, t.tokens.c.revoked_at.is_(None))
            .values(revoked_at=now)
            .returning(*t.tokens.c)
        ).first()
        if revoked is not None:
            before = _shown(_principal(revoked))
            _audit(
                tx,
                now,
                actor=actor,
                action=action,
                target=_target(token_id),
                reason=reason,
                request_id=request_id,
                before=before,
            )
    return revoked is not None


def listed(db: Database, *, ended: bool = False) -> list[OwnedToken]:
    """Return the tokens in the order of their making; *ended*: also those that don't work any more."""
    query = sa.select(t.tokens).order_by(t.tokens.c.created_at, t.tokens.c.token_id)
    now = db.clock.now()
    with db.read() as tx:
        rows = tx.execute(query).all()
    found = [OwnedToken(_principal(row), row.created_at, row.revoked_at, _works(row, now)) for row in rows]
    return [each for each in found if ended or each.works]


def tokens(db: Database) -> list[Principal]:
    """Return the callers whose tokens work now, in the order of their making."""
    return [each.principal for each in listed(db)]


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


def create_login(
    db: Database,
    *,
    role: Role = Role.ADMIN,
    lifetime: timedelta = LOGIN_LIFETIME,
    actor: str = OURSELVES,
    request_id: str | None = None,
) -> str:
    """Make a login code that opens one browser session, and return it; with an entry in the audit. Atomic.

    Codes that expired unused or were used long ago are removed on the way.

    Args:
        db: the ledger.
        role: what the browser may do.
        lifetime: how long the code is good.
        actor: who makes it, for the audit.
        request_id: the request that asks, for the audit.
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
        _audit(
            tx,
            now,
            actor=actor,
            action="login.create",
            target=_login(code),
            request_id=request_id,
            after={"role": role.value},
        )
    return code


def redeem(db: Database, code: str, *, name: str = "browser", request_id: str | None = None) -> NewToken:
    """Use a login code up, and return the session token that it is good for; with an entry in the audit.

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
        made = _insert(tx, now, name=name, role=Role(role), lifetime=SESSION_LIFETIME, sessions=None)
        after = {"token": made.principal.token_id, **_shown(made.principal)}
        _audit(
            tx,
            now,
            actor=made.principal.actor,
            action="login.redeem",
            target=_login(code),
            request_id=request_id,
            after=after,
        )
    return made


def _audit(
    tx: sa.Connection,
    now: datetime,
    *,
    actor: str,
    action: str,
    target: str,
    reason: str = "",
    request_id: str | None = None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    audit.append_in(
        tx,
        now,
        actor=actor,
        action=action,
        target=target,
        reason=storable(reason, "reason").strip(),
        outcome="accepted",
        request_id=request_id,
        before=before,
        after=after,
    )


def _target(token_id: str) -> str:
    return f"token:{token_id}"


def _login(code: str) -> str:
    # the same name for its making and its use; nobody finds the code by it
    return f"login:{digest_of(code.encode('utf-8', 'surrogatepass'))[7:19]}"


def _shown(principal: Principal) -> dict[str, Any]:
    """Return what the audit keeps of a token."""
    sessions = None if principal.sessions is None else sorted(principal.sessions)
    return {
        "name": principal.name,
        "role": principal.role.value,
        "sessions": sessions,
        "expires_at": rfc3339(principal.expires_at),
    }


def _works(row: sa.Row[Any], now: datetime) -> bool:
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > now)


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
