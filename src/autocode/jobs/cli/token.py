"""``autocode-jobs token``: who may call the service of this data folder."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from autocode.jobs.cli.desk import actor, here
from autocode.jobs.cli.screen import Screen, local_time, visible
from autocode.jobs.clock import rfc3339
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import access
from autocode.jobs.ledger.access import OwnedToken, Role

__all__ = ["create", "lifetime_of", "list_tokens", "revoke"]

_LIFETIME: Final = re.compile(r"([0-9]{1,6})(m|h|d|w)")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def create(name: str, role: str, sessions: list[str] | None, expires: str | None, *, json: bool) -> int:
    """Make a token and print it, the only time that it is shown.

    Raises:
        UsageError: name, sessions or lifetime make no sense; nothing was changed.
    """
    lifetime = None if expires is None else lifetime_of(expires)
    screen = Screen(json_mode=json)
    with here("Tokens are made") as system:
        made = access.create_token(
            system.db, name=name, role=Role(role), lifetime=lifetime, sessions=sessions, actor=actor()
        )
    principal = made.principal
    if json:
        screen.emit({"token": made.text, **_facts(principal)})
        return 0
    screen.note("Keep it now: it is shown once, and nobody can find it again.")
    screen.say(made.text)
    return 0


def list_tokens(*, every: bool, json: bool) -> int:
    """List the tokens that work, or all of them."""
    screen = Screen(json_mode=json)
    with here("Tokens are kept") as system:
        found = access.listed(system.db, ended=every)
    for each in found:
        if json:
            facts = {"created_at": rfc3339(each.created_at), "revoked_at": rfc3339(each.revoked_at)}
            screen.emit({**_facts(each.principal), **facts, "works": each.works})
        else:
            screen.say(_line(each))
    if not found:
        screen.note("There is no token.")
    return 0


def revoke(token_id: str, reason: str) -> int:
    """End a token.

    Raises:
        UsageError: there is no such token; nothing was changed.
    """
    screen = Screen()
    with here("Tokens are kept") as system:
        if token_id not in {each.principal.token_id for each in access.listed(system.db, ended=True)}:
            # a whole token may have been pasted here: no part of what was said is repeated
            raise UsageError(
                "There is no token of this id.", hint="An id has 16 hex digits: autocode-jobs token list"
            )
        ended = access.revoke(system.db, token_id, actor=actor(), reason=reason)
    screen.say(f"{token_id}  {'revoked' if ended else 'was revoked before'}")
    return 0


def lifetime_of(text: str) -> timedelta:
    """Return how long *text* says, such as ``30d``.

    Raises:
        UsageError: it says nothing of the kind.
    """
    parts = _LIFETIME.fullmatch(text.strip())
    if parts is None or int(parts[1]) == 0:
        raise UsageError(f"A token can't last {text!r}.", hint="Say 90m, 12h, 30d or 8w.")
    return timedelta(**{_UNITS[parts[2]]: int(parts[1])})


def _facts(principal: access.Principal) -> dict[str, Any]:
    return {
        "token_id": principal.token_id,
        "name": principal.name,
        "role": principal.role.value,
        "sessions": None if principal.sessions is None else sorted(principal.sessions),
        "expires_at": rfc3339(principal.expires_at),
    }


def _line(token: OwnedToken) -> str:
    principal = token.principal
    scope = "all sessions" if principal.sessions is None else ", ".join(sorted(principal.sessions)) or "none"
    until = "never expires"
    if token.revoked_at is not None:
        until = f"revoked {local_time(rfc3339(token.revoked_at))}"
    elif principal.expires_at is not None:
        word = "expires" if token.works else "expired"
        until = f"{word} {local_time(rfc3339(principal.expires_at))}"
    return f"{principal.token_id}  {principal.role:<8}  {visible(principal.name)}  {visible(scope)}  {until}"
