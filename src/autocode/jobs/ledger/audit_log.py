"""Reading the audit: pages for those who may see them, its head, and the check against a saved head."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from autocode.jobs.canonical import canonical_json, digest_of
from autocode.jobs.clock import rfc3339
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import audit
from autocode.jobs.ledger import schema as t
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.listing import Filter
from autocode.jobs.ledger.words import storable

__all__ = ["LARGEST_PAGE", "Chosen", "Head", "Page", "Verdict", "entry", "head", "page", "verify"]

LARGEST_PAGE: Final = 500
"""How many entries one page holds at most."""

_HEAD: Final = re.compile(r"([0-9]{1,18}):(sha256:[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of the chain: whoever keeps it elsewhere can prove later that nothing was changed.

    Args:
        seq: its number; 0 where there is none.
        digest: its digest, which stands for all entries up to it.
    """

    seq: int
    digest: str

    @classmethod
    def parse(cls, text: str) -> Head:
        """Return the head that is written as *text*.

        Raises:
            UsageError: it isn't one.
        """
        parts = _HEAD.fullmatch(text.strip())
        if parts is None:
            raise UsageError(
                "The saved head can't be read.",
                hint="Give it as it was printed: autocode-jobs audit head",
            )
        return cls(int(parts[1]), parts[2])

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which entries are meant; what isn't given leaves every entry in.

    Args:
        target: about this, such as a job's id.
        actor: with this text in the actor's name; capitals don't matter.
        action: of this action.
        jobs: only those about a job that this filter leaves in: what the reader may see.

    Raises:
        UsageError: a text that no database can hold.
    """

    target: str | None = None
    actor: str | None = None
    action: str | None = None
    jobs: Filter | None = None

    def __post_init__(self) -> None:
        for name in ("target", "actor", "action"):
            storable(getattr(self, name) or "", name)

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """Return the choice as conditions on ``audit``."""
        found: list[sa.ColumnElement[bool]] = []
        if self.target is not None:
            found.append(t.audit.c.target == self.target)
        if self.actor:
            found.append(t.audit.c.actor.icontains(self.actor, autoescape=True))
        if self.action is not None:
            found.append(t.audit.c.action == self.action)
        if self.jobs is not None:
            seen = sa.select(t.jobs.c.job_id).join(t.statuses).where(*self.jobs.conditions())
            found.append(t.audit.c.target.in_(seen))
        return found

    @property
    def digest(self) -> str:
        """By what a page's token knows the choice that it belongs to."""
        jobs = None if self.jobs is None else self.jobs.digest
        return digest_of(canonical_json([self.target, self.actor, self.action, jobs]))[7:23]


@dataclass(frozen=True, slots=True)
class Page:
    """Entries, newest first, as of one moment.

    Args:
        entries: rows of ``audit``.
        next_token: what asks for the page after this; ``None`` on the last.
        head: the newest entry of all, whoever may see it.
    """

    entries: tuple[sa.Row[Any], ...]
    next_token: str | None
    head: Head


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check of the chain found.

    Args:
        entries: how many there are.
        head: the newest one.
        broken: the number of the first that was altered, removed or inserted.
        lost: the saved head, where the chain doesn't have it: it was cut off or rewritten since.
    """

    entries: int
    head: Head
    broken: int | None
    lost: Head | None

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return self.broken is None and self.lost is None


def head(db: Database) -> Head:
    """Return the newest entry's number and digest."""
    with db.read() as tx:
        return _head(tx)


def page(db: Database, chosen: Chosen, *, size: int = 50, token: str | None = None) -> Page:
    """Return up to *size* entries, newest first, from where *token* says.

    Raises:
        UsageError: *size* isn't from 1 to 500, or *token* isn't one that this choice gave.
    """
    if not 1 <= size <= LARGEST_PAGE:
        raise UsageError(f"A page of {size} entries is none.", hint=f"Ask for 1 to {LARGEST_PAGE}.")
    conditions = chosen.conditions()
    if token is not None:
        conditions.append(t.audit.c.seq < _read_token(token, chosen))
    query = sa.select(t.audit).where(*conditions).order_by(t.audit.c.seq.desc()).limit(size + 1)
    with db.read() as tx:
        found = tx.execute(query).all()
        newest = _head(tx)
    shown = tuple(found[:size])
    return Page(shown, _write_token(shown[-1].seq, chosen) if len(found) > size else None, newest)


def verify(db: Database, expected: Head | None = None) -> Verdict:
    """Walk the whole chain, and look for the head that was saved of it. Reads only.

    With a saved head every change to the entries up to it is found, also where all digests were made anew.
    """
    with db.read(patient=True) as tx:
        broken = audit.broken_link_in(tx)
        count = tx.execute(sa.select(sa.func.count()).select_from(t.audit)).scalar_one()
        lost = None
        if expected is not None:
            query = sa.select(t.audit.c.digest).where(t.audit.c.seq == expected.seq)
            found = audit.GENESIS if expected.seq == 0 else tx.execute(query).scalar()
            lost = None if found == expected.digest else expected
        return Verdict(int(count), _head(tx), broken, lost)


def entry(row: sa.Row[Any]) -> dict[str, Any]:
    """Return a row of ``audit`` as JSON values, with what ``data`` says of every request on its own."""
    data = dict(row.data)
    own = {name: data.pop(name, None) for name in ("request_id", "before", "after")}
    return {
        "seq": row.seq,
        "at": rfc3339(row.at),
        "actor": row.actor,
        "action": row.action,
        "target": row.target,
        "reason": row.reason,
        "outcome": row.outcome,
        **own,
        "data": data,
        "previous": row.previous,
        "digest": row.digest,
    }


def _head(tx: sa.Connection) -> Head:
    query = sa.select(t.audit.c.seq, t.audit.c.digest).order_by(t.audit.c.seq.desc()).limit(1)
    row = tx.execute(query).first()
    return Head(0, audit.GENESIS) if row is None else Head(row.seq, row.digest)


def _write_token(seq: int, chosen: Chosen) -> str:
    return base64.urlsafe_b64encode(canonical_json([seq, chosen.digest])).decode("ascii").rstrip("=")


def _read_token(token: str, chosen: Chosen) -> int:
    hint = "Start again without a token, or keep the filter of the page that gave it."
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        seq, digest = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError, binascii.Error):
        seq, digest = None, None
    if not isinstance(seq, int) or not 0 <= seq < 1 << 62:
        raise UsageError("The page's token can't be read.", hint=hint)
    if digest != chosen.digest:
        raise UsageError("The page's token belongs to another filter.", hint=hint)
    return seq
