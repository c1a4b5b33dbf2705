"""Text from a database's driver, as people are told it."""

from __future__ import annotations

import pytest

from autocode.jobs.errors import LedgerUnavailable
from autocode.jobs.ledger.database import Database
from autocode.jobs.ledger.words import sentence


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("refused", "refused."),
        ("refused.", "refused."),
        ("refused\n\tIs the server running?\n", "refused Is the server running?"),
        ("", ""),
    ],
)
def test_what_a_driver_says_is_one_line_with_one_mark_at_its_end(said: str, told: str) -> None:
    """Line breaks and tabs become spaces, and a question keeps its mark."""
    assert sentence(said) == told


def test_a_database_that_is_down_is_told_in_one_line() -> None:
    """What libpq says in several lines has no line break, and one mark at its end."""
    db = Database("postgresql+psycopg://ada@127.0.0.1:1/jobs")

    with pytest.raises(LedgerUnavailable) as caught:
        db.exists()
    db.close()

    assert caught.value.detail.isprintable()
    assert "?." not in caught.value.detail
