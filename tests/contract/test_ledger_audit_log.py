"""Reading the audit: pages, what a reader may see, and the check against a head that was saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import audit, audit_log, jobs, schema
from autocode.jobs.ledger.audit_log import Chosen, Head
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.listing import Filter
from ledger_world import new_job


def note(database: Database, target: str, actor: str = "ann", action: str = "retry") -> int:
    """Append an entry."""
    return audit.append(database, actor=actor, action=action, target=target, reason="why", outcome="accepted")


@pytest.fixture
def chain(database: Database) -> Database:
    """Give a ledger with six audit entries about two jobs and a token."""
    jobs.enqueue(database, new_job("job-0", session_id="s-0", reads=frozenset()))
    jobs.enqueue(database, new_job("job-1", session_id="s-1", reads=frozenset()))
    for number in range(4):
        note(database, f"job-{number % 2}", actor=f"ann {number}")
    note(database, "token:1", action="token.create")
    note(database, "gone", actor="Bob")
    return database


def rewrite(tx: sa.Connection) -> None:
    """Make every digest anew, as somebody does who can write to the database and knows how."""
    previous = audit.GENESIS
    for row in tx.execute(sa.select(schema.audit).order_by(schema.audit.c.seq)).all():
        entry = {**row._mapping, "previous": previous}
        del entry["digest"]
        previous = audit._digest(entry)
        tx.execute(
            sa.update(schema.audit)
            .where(schema.audit.c.seq == row.seq)
            .values(previous=entry["previous"], digest=previous)
        )


def changed(tx: sa.Connection) -> None:
    """Change what an entry says."""
    tx.execute(sa.update(schema.audit).where(schema.audit.c.seq == 3).values(reason="another"))


def removed(tx: sa.Connection) -> None:
    """Remove an entry, and close the gap."""
    tx.execute(sa.delete(schema.audit).where(schema.audit.c.seq == 3))
    for seq in (4, 5, 6):
        tx.execute(sa.update(schema.audit).where(schema.audit.c.seq == seq).values(seq=seq - 1))
    tx.execute(sa.update(schema.counters).where(schema.counters.c.name == "audit").values(value=5))


def inserted(tx: sa.Connection) -> None:
    """Put an entry between two others."""
    for seq in (6, 5, 4, 3):
        tx.execute(sa.update(schema.audit).where(schema.audit.c.seq == seq).values(seq=seq + 1))
    row = tx.execute(sa.select(schema.audit).where(schema.audit.c.seq == 4)).one()
    tx.execute(sa.insert(schema.audit).values({**row._mapping, "seq": 3, "reason": "forged"}))
    tx.execute(sa.update(schema.counters).where(schema.counters.c.name == "audit").values(value=7))


def cut_off(tx: sa.Connection) -> None:
    """Remove the last entries, and count the rest."""
    tx.execute(sa.delete(schema.audit).where(schema.audit.c.seq > 4))
    tx.execute(sa.update(schema.counters).where(schema.counters.c.name == "audit").values(value=4))


def emptied(tx: sa.Connection) -> None:
    """Remove everything."""
    tx.execute(sa.delete(schema.audit))
    tx.execute(sa.update(schema.counters).where(schema.counters.c.name == "audit").values(value=0))


FORGERIES = [changed, removed, inserted, cut_off, emptied]


@pytest.mark.parametrize("forge", FORGERIES)
def test_a_chain_that_was_made_anew_is_found_by_its_head(
    chain: Database, forge: Callable[[sa.Connection], None]
) -> None:
    """Whoever changes entries and makes all digests anew can't bring back the head that was saved."""
    saved = audit_log.head(chain)
    with chain.write() as tx:
        forge(tx)
        rewrite(tx)

    found = audit_log.verify(chain, saved)

    assert (found.broken, found.lost, found.sound) == (None, saved, False)
    assert audit_log.verify(chain).sound


@pytest.mark.parametrize("forge", [changed, removed, inserted])
def test_a_change_that_is_not_covered_up_names_its_entry(
    chain: Database, forge: Callable[[sa.Connection], None]
) -> None:
    """Without new digests the chain itself breaks, at the entry that was touched."""
    with chain.write() as tx:
        forge(tx)

    assert audit_log.verify(chain).broken == 3


def test_a_saved_head_stays_in_a_chain_that_grows(chain: Database) -> None:
    """Entries that came later change nothing about a head that was saved, that of an empty audit too."""
    saved = audit_log.head(chain)
    note(chain, "job-0")

    found = audit_log.verify(chain, Head.parse(str(saved)))

    assert (found.sound, found.entries, found.head.seq) == (True, 7, 7)
    assert audit_log.verify(chain, Head(0, audit.GENESIS)).sound
    assert not audit_log.verify(chain, Head(0, saved.digest)).sound


@pytest.mark.parametrize("text", ["", "7", "x:sha256:0", f"7:{'0' * 64}", f"-1:sha256:{'0' * 64}"])
def test_a_head_that_is_none_is_refused(text: str) -> None:
    """A head must be written as it was printed."""
    with pytest.raises(UsageError):
        Head.parse(text)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, [6, 5, 4, 3, 2, 1]),
        ({"target": "job-0"}, [3, 1]),
        ({"actor": "ANN"}, [5, 4, 3, 2, 1]),
        ({"actor": "%"}, []),
        ({"action": "token.create"}, [5]),
        ({"target": "job-1", "actor": "ann 3"}, [4]),
        ({"jobs": Filter()}, [4, 3, 2, 1]),
        ({"jobs": Filter(sessions=frozenset({"s-1"}))}, [4, 2]),
        ({"jobs": Filter(sessions=frozenset())}, []),
        ({"jobs": Filter(sessions=frozenset({"s-1"})), "target": "token:1"}, []),
    ],
)
def test_entries_come_newest_first_in_pages(
    chain: Database, chosen: dict[str, Any], expected: list[int]
) -> None:
    """Each field narrows the list; pages of two give the same entries, each once."""
    found: list[int] = []
    token: str | None = None
    while True:
        page = audit_log.page(chain, Chosen(**chosen), size=2, token=token)
        assert page.head == audit_log.head(chain)
        found += [row.seq for row in page.entries]
        token = page.next_token
        if token is None:
            break

    assert found == expected


@pytest.mark.parametrize("token", ["x", "é", "W10", "bnVsbA"])
def test_a_token_that_is_none_is_refused(chain: Database, token: str) -> None:
    """A page's token must be one that the same choice gave."""
    with pytest.raises(UsageError):
        audit_log.page(chain, Chosen(), token=token)
    given = audit_log.page(chain, Chosen(), size=1).next_token
    with pytest.raises(UsageError):
        audit_log.page(chain, Chosen(target="job-0"), token=given)
