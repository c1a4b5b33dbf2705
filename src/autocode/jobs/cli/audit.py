"""``autocode-jobs audit``: who did what, and whether the record of it is whole."""

from __future__ import annotations

from typing import Final

from autocode.jobs.cli.desk import here
from autocode.jobs.cli.screen import Screen, local_time, plural, visible
from autocode.jobs.clock import rfc3339
from autocode.jobs.ledger import audit_log
from autocode.jobs.ledger.audit_log import LARGEST_PAGE, Chosen, Head

__all__ = ["BROKEN", "REWRITTEN", "head", "list_entries", "verify"]

BROKEN: Final = 3
"""The exit status where an entry was altered, removed or inserted."""

REWRITTEN: Final = 4
"""The exit status where the chain holds, and the saved head isn't in it."""


def list_entries(target: str | None, actor: str | None, action: str | None, limit: int, *, json: bool) -> int:
    """List entries, newest first."""
    screen = Screen(json_mode=json)
    chosen = Chosen(target=target, actor=actor, action=action)
    token: str | None = None
    with here("The audit is read") as system:
        while limit > 0:
            page = audit_log.page(system.db, chosen, size=min(limit, LARGEST_PAGE), token=token)
            for row in page.entries:
                if json:
                    screen.emit(audit_log.entry(row))
                    continue
                why = f"  “{visible(row.reason)}”" if row.reason else ""
                moment = local_time(rfc3339(row.at))
                did = f"{visible(row.action)} {visible(row.target)}: {row.outcome}"
                screen.say(f"{row.seq:>6}  {moment}  {visible(row.actor)}  {did}{why}")
            limit -= len(page.entries)
            token = page.next_token
            if token is None:
                break
    return 0


def head() -> int:
    """Print the newest entry's number and digest."""
    with here("The audit is read") as system:
        Screen().say(str(audit_log.head(system.db)))
    return 0


def verify(expect: str | None, *, json: bool) -> int:
    """Check the chain; return the exit status.

    Raises:
        UsageError: *expect* isn't a head.
    """
    expected = None if expect is None else Head.parse(expect)
    screen = Screen(json_mode=json)
    with here("The audit is checked") as system:
        found = audit_log.verify(system.db, expected)
    if json:
        lost = None if found.lost is None else str(found.lost)
        facts = {"entries": found.entries, "head": str(found.head), "broken": found.broken, "lost": lost}
        screen.emit({**facts, "sound": found.sound})
    if found.broken is not None:
        screen.fail(
            f"The audit is broken at entry {found.broken}: it, or what comes before it, was changed.",
            "Compare it with a backup: autocode-jobs restore FILE, into another data folder.",
        )
        return BROKEN
    if found.lost is not None:
        screen.fail(
            f"The audit doesn't hold the saved head, entry {found.lost.seq}: it was cut off or rewritten.",
            "Compare it with a backup: autocode-jobs restore FILE, into another data folder.",
        )
        return REWRITTEN
    if not json:
        screen.say(f"Sound: {plural(found.entries, 'entry', 'entries')}. The head is {found.head}")
    return 0
