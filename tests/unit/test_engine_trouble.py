"""Whose trouble it is that an attempt gets no run."""

from __future__ import annotations

from autocode.jobs.engine.trouble import Trouble
from reconcile_world import StillClock

BAD, GOOD = ("bad", 1), ("good", 1)


def test_an_attempt_that_fails_where_others_succeed_pauses_longer_and_is_given_up() -> None:
    """After each failure another attempt succeeds: pauses of 1, 4, 16 and 60 s, then it is given up."""
    clock = StillClock()
    trouble = Trouble(clock)
    pauses = []

    while not trouble.is_its_own(BAD):
        trouble.note(BAD)
        waited = 0.0
        while not trouble.may_try(BAD):
            clock.seconds += 0.5
            waited += 0.5
        pauses.append(waited)
        trouble.worked(GOOD)

    assert pauses == [1.0, 4.0, 16.0, 60.0, 60.0]


def test_an_outage_is_nobodys_trouble() -> None:
    """A server that is away for an hour fails for all: each is tried every second, and none is given up."""
    clock = StillClock()
    trouble = Trouble(clock)

    for _ in range(3600):
        for attempt in (BAD, GOOD):
            assert trouble.may_try(attempt)
            trouble.note(attempt)
        clock.seconds += 1.0

    assert not trouble.is_its_own(BAD)
    trouble.worked(GOOD)
    assert trouble.may_try(BAD)
