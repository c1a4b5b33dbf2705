"""Waiting for PostgreSQL within an attempt."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from autocode.jobs.engine import outage
from autocode.jobs.engine.outage import outlast
from autocode.jobs.errors import AttemptEnded, LedgerUnavailable
from autocode.jobs.ledger.database import Database


@dataclass
class Ledger:
    """A call that fails a few times before it answers, and a database of some dialect."""

    failures: int
    dialect: str = "postgresql"
    calls: list[str] = field(default_factory=list)

    def call(self, value: str) -> str:
        """Fail or answer."""
        self.calls.append(value)
        if len(self.calls) <= self.failures:
            raise LedgerUnavailable("It is away.")
        return f"{value} is told"

    def outlast(self, check: object) -> str:
        """Call through the outage."""
        database: Database = self  # type: ignore[assignment]
        return outlast(database, check, self.call, "it")  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two tries."""
    monkeypatch.setattr(outage, "_PAUSES", (0.0,))


def test_a_call_is_made_again_until_it_is_answered() -> None:
    """The answer is that of the first call that got one."""
    ledger = Ledger(failures=5)

    assert ledger.outlast(lambda: None) == "it is told"
    assert ledger.calls == ["it"] * 6


def test_an_attempt_that_must_stop_waits_no_longer() -> None:
    """What the check raises ends the wait after the first failure."""

    def ended() -> None:
        raise AttemptEnded("Handed back.")

    ledger = Ledger(failures=5)
    with pytest.raises(AttemptEnded):
        ledger.outlast(ended)
    assert ledger.calls == ["it"]


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_file_and_a_command_that_ends_by_itself_do_not_wait(dialect: str) -> None:
    """SQLite has a time limit of its own; no check means no wait."""
    ledger = Ledger(failures=5, dialect=dialect)
    with pytest.raises(LedgerUnavailable):
        ledger.outlast((lambda: None) if dialect == "sqlite" else None)
    assert ledger.calls == ["it"]


def test_an_outage_without_end_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the limit the error is told."""
    monkeypatch.setattr(outage, "OUTAGE_SECONDS", -1.0)
    ledger = Ledger(failures=5)
    with pytest.raises(LedgerUnavailable):
        ledger.outlast(lambda: None)
