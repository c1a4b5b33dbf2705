"""The audit chain: append-only, and it shows what was done to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from autocode.jobs.ledger import audit, schema
from autocode.jobs.ledger.database import Database
from ledger_world import in_threads


def note(database: Database, target: str = "job", **data: Any) -> int:
    """Append an entry about *target*."""
    return audit.append(
        database,
        actor="ann",
        action="retry",
        target=target,
        reason="it was the disk",
        outcome="done",
        data=data,
    )


@pytest.fixture
def chain(database: Database) -> Database:
    """Give a ledger with five audit entries."""
    for number in range(5):
        note(database, target=f"job-{number % 2}", number=number, text="é\x00\ud800")
    return database


def test_entries_are_numbered_and_kept(chain: Database) -> None:
    """Entries come back in order with what was said, all or those about one target."""
    assert [row.seq for row in audit.entries(chain)] == [1, 2, 3, 4, 5]
    assert [row.seq for row in audit.entries(chain, target="job-1")] == [2, 4]
    assert audit.entries(chain)[0].data == {"number": 0, "text": "é\x00\ud800"}
    assert audit.entries(chain)[0].previous == audit.GENESIS


def test_an_untouched_chain_holds(chain: Database) -> None:
    """A chain that nobody touched has no broken link; neither has an empty one."""
    assert audit.broken_link(chain) is None


def test_an_empty_chain_holds(database: Database) -> None:
    """Where nothing was done nothing is broken."""
    assert audit.broken_link(database) is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("actor", "bob"),
        ("action", "cancel"),
        ("target", "job-9"),
        ("reason", "none"),
        ("outcome", "refused"),
        ("data", {"number": 9}),
        ("digest", audit.GENESIS),
        ("previous", audit.GENESIS),
    ],
)
def test_a_change_is_detected(chain: Database, column: str, value: object) -> None:
    """Whichever column of an entry is altered, the chain breaks at that entry."""
    with chain.write() as tx:
        tx.execute(sa.update(schema.audit).where(schema.audit.c.seq == 3).values({column: value}))

    assert audit.broken_link(chain) == 3


def test_a_changed_time_is_detected(chain: Database) -> None:
    """An entry that was moved in time breaks the chain."""
    at = audit.entries(chain)[2].at + timedelta(milliseconds=1)
    with chain.write() as tx:
        tx.execute(sa.update(schema.audit).where(schema.audit.c.seq == 3).values(at=at))

    assert audit.broken_link(chain) == 3


@pytest.mark.parametrize("seq", [1, 3, 5])
def test_a_removal_is_detected(chain: Database, seq: int) -> None:
    """An entry that was removed is missed, at either end too."""
    with chain.write() as tx:
        tx.execute(sa.delete(schema.audit).where(schema.audit.c.seq == seq))

    assert audit.broken_link(chain) == seq


def test_a_removed_end_is_still_missed_later(chain: Database) -> None:
    """Entries appended after the end was cut off don't hide the cut."""
    with chain.write() as tx:
        tx.execute(sa.delete(schema.audit).where(schema.audit.c.seq == 5))
    note(chain)

    assert audit.broken_link(chain) == 5


def test_a_renumbered_removal_is_detected(chain: Database) -> None:
    """Closing up the numbers after a removal doesn't mend the chain."""
    with chain.write() as tx:
        tx.execute(sa.delete(schema.audit).where(schema.audit.c.seq == 3))
        tx.execute(sa.update(schema.audit).where(schema.audit.c.seq == 4).values(seq=3))
        tx.execute(sa.update(schema.audit).where(schema.audit.c.seq == 5).values(seq=4))

    assert audit.broken_link(chain) == 3


def test_an_insertion_is_detected(chain: Database) -> None:
    """An entry that was put between two others breaks the chain where it stands."""
    with chain.write() as tx:
        for seq in (5, 4, 3):
            tx.execute(sa.update(schema.audit).where(schema.audit.c.seq == seq).values(seq=seq + 1))
        row = tx.execute(sa.select(schema.audit).where(schema.audit.c.seq == 4)).one()
        tx.execute(sa.insert(schema.audit).values({**row._mapping, "seq": 3, "reason": "forged"}))

    assert audit.broken_link(chain) == 3


def test_an_insertion_at_the_end_is_detected(chain: Database) -> None:
    """An entry that was added past the ledger's own count is detected, even with a digest that fits."""
    last = audit.entries(chain)[-1]
    entry = {key: value for key, value in last._mapping.items() if key != "digest"}
    entry |= {"seq": 6, "previous": last.digest}
    with chain.write() as tx:
        tx.execute(sa.insert(schema.audit).values(**entry, digest=audit._digest(entry)))

    assert audit.broken_link(chain) == 6


def test_an_entry_is_part_of_its_transaction(chain: Database) -> None:
    """An entry that is appended to a transaction goes with it when it fails, and leaves no gap."""

    def deed(*, fails: bool) -> None:
        with chain.write() as tx:
            audit.append_in(
                tx, chain.clock.now(), actor="ann", action="retry", target="job", reason="", outcome="done"
            )
            if fails:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        deed(fails=True)
    failed = [row.seq for row in audit.entries(chain)]

    deed(fails=False)

    assert failed == [1, 2, 3, 4, 5]
    assert [row.seq for row in audit.entries(chain)] == [1, 2, 3, 4, 5, 6]
    assert audit.broken_link(chain) is None


def test_simultaneous_entries_make_one_chain(database: Database) -> None:
    """Entries that are appended together are numbered without gaps and chained without a fork."""
    numbers = in_threads(10, lambda number: note(database, number=number))

    assert sorted(numbers) == list(range(1, 11))
    assert audit.broken_link(database) is None
