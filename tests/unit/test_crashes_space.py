"""The space of cases: what is legal, what is drawn, and what the committed list covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from autocode.jobs.errors import UsageError
from autocode.jobs.testing.crashes.cases import JOB_POINTS, Case, Fault, Victim
from autocode.jobs.testing.crashes.pairs import pairs_of, pairwise
from autocode.jobs.testing.crashes.space import (
    LIMIT,
    SERVER_POINTS,
    SLOW_FAULTS,
    STRIKES,
    committed,
    draw,
    every,
    is_legal,
    read,
    tenth,
)


@dataclass(frozen=True)
class Kind:
    """A kind's course, made up."""

    name: str
    nths: Mapping[str, int]


_STEPS: Final = ("step.before", "step.mid-write", "step.after-object", "step.after-checkpoint")


def kind(name: str, *, steps: int, effects: int = 0) -> Kind:
    """Return the course of a kind with so many steps and effects."""
    nths = dict.fromkeys(JOB_POINTS, 1) | dict.fromkeys(_STEPS, steps) | {"reconcile.before-commit": 3}
    return Kind(name, nths | dict.fromkeys(("effect.before", "effect.after-call"), effects))


KINDS: Final = (
    kind("export", steps=5),
    kind("scenario-ten-steps", steps=11),
    kind("scenario-order", steps=5, effects=2),
)


def test_every_legal_case_is_in_the_space_once() -> None:
    """The space has each kind, passage, fault and victim that may meet, and no case twice."""
    cases = every(KINDS)

    assert len(cases) == len(set(cases))
    assert {(case.fault, case.victim) for case in cases} == set(STRIKES)
    assert {case.point for case in cases} == set(JOB_POINTS)
    assert {case.nth for case in cases if case.kind == "scenario-ten-steps"} == set(range(1, 12))


def test_a_point_that_a_kind_never_passes_is_not_in_its_space() -> None:
    """Jobs without effects are never stopped after one."""
    cases = every(KINDS)

    assert {case.kind for case in cases if case.point == "effect.after-call"} == {"scenario-order"}


@pytest.mark.parametrize(
    ("point", "fault", "victim", "legal"),
    [
        ("claim.before", Fault.KILL, Victim.CHILD, True),
        ("enqueue.after-commit", Fault.KILL, Victim.CHILD, False),
        ("reconcile.before-commit", Fault.KILL, Victim.WORKER, True),
        ("submit.after-create", Fault.FREEZE, Victim.WORKER, False),
        ("submit.after-create", Fault.FREEZE, Victim.SERVERS, True),
        ("result.after", Fault.FREEZE, Victim.CHILD, True),
        ("result.after", Fault.FREEZE, Victim.PREFECT, True),
        ("step.before", Fault.CUT_OFF, Victim.NOBODY, True),
        ("enqueue.after-commit", Fault.CUT_OFF, Victim.NOBODY, False),
        ("step.mid-write", Fault.SLOW_DISK, Victim.NOBODY, True),
        ("step.before", Fault.FULL_DISK, Victim.NOBODY, False),
        ("enqueue.after-commit", Fault.CLOCK_BACK, Victim.NOBODY, True),
    ],
)
def test_what_may_strike_where(point: str, fault: Fault, victim: Victim, legal: bool) -> None:
    """Strikes on a job that runs need a point that its child passes, and disks fail in a write."""
    found = is_legal(point, (fault, victim))

    assert found is legal


def test_a_freeze_takes_four_victims() -> None:
    """Prefect's server isn't frozen, and everything at once neither."""
    frozen = {victim for fault, victim in STRIKES if fault is Fault.FREEZE}

    assert frozen == {Victim.CHILD, Victim.WORKER, Victim.SERVERS, Victim.POSTGRES}


def test_the_same_seed_draws_the_same_cases() -> None:
    """A round can be repeated by seed, also when fewer or more rounds are asked for."""
    first = draw(3, 40, KINDS)

    assert draw(3, 40, KINDS) == first
    assert draw(3, 90, KINDS)[:40] == first
    assert draw(4, 40, KINDS) != first


def test_everything_gets_its_turn() -> None:
    """A hundred rounds have every kind, point, fault and victim, and all cases are of the space."""
    cases = draw(8, 100, KINDS)

    assert set(cases) <= set(every(KINDS))
    assert {case.kind for case in cases} == {each.name for each in KINDS}
    assert {case.point for case in cases} == set(JOB_POINTS)
    assert {(case.fault, case.victim) for case in cases} == set(STRIKES)


def test_a_fifth_of_the_rounds_is_slow() -> None:
    """Faults that last longer than a lease are about a fifth, so that rounds go on quickly."""
    cases = draw(1, 560, KINDS)

    assert 0.15 < sum(case.fault in SLOW_FAULTS for case in cases) / len(cases) < 0.25


def test_points_are_drawn_evenly() -> None:
    """No point is left behind, however few of the kinds pass it."""
    counts = Counter(case.point for case in draw(5, 240, KINDS))

    assert min(counts.values()) >= 15


def test_a_kind_that_passes_nothing_draws_nothing_illegal() -> None:
    """With one kind that only a server handles, strikes on a child are never drawn."""
    waiting = Kind("waiting", {"enqueue.after-commit": 1})

    cases = draw(1, 30, [waiting])

    assert {case.point for case in cases} == {"enqueue.after-commit"}
    assert Victim.CHILD not in {case.victim for case in cases}


def test_pairs_take_as_few_cases_as_they_can() -> None:
    """Every kind meets every point and every strike within the limit, and kills have the rest of it."""
    cases = pairwise(KINDS)

    legal, covered = pairs_of(every(KINDS)), pairs_of(cases)
    assert len(cases) == LIMIT
    assert covered.kind_point == legal.kind_point
    assert covered.kind_strike == legal.kind_strike
    # each kind needs one case a strike, so these are all kills that fit
    assert len(covered.point_kill) == sum(case.fault is Fault.KILL for case in cases)
    assert pairwise(KINDS) == cases


def test_with_room_enough_all_pairs_are_covered() -> None:
    """Without a limit no legal pair is left out, and the list is still far shorter than the space."""
    cases = pairwise(KINDS, limit=1000)

    legal = pairs_of(every(KINDS))
    assert pairs_of(cases) == legal
    # two disks fail each of the three kinds at one point alone, damage at two; else a case covers a pair
    assert len(cases) == len(legal.point_strike) + 5


def test_passages_of_a_point_differ() -> None:
    """Cases at the same point of a kind stop its jobs at passages far apart."""
    cases = [case for case in pairwise(KINDS) if case.kind == "scenario-ten-steps" and case.point in _STEPS]

    passages = Counter((case.point, case.nth) for case in cases)
    assert max(passages.values()) == 1
    assert max(nth for _, nth in passages) > 5


def test_the_committed_list_covers_what_it_says() -> None:
    """Of all legal pairs, the at most 60 cases cover every (kind, point) and every (kind, fault with victim).

    Of the 75 pairs (point, killed victim) they cover 27, as many as they have kills: one or more at each
    point, four or more of each victim. Every other fault strikes at least once, at whatever point.
    """
    cases = committed()

    legal, covered = pairs_of(every(KINDS)), pairs_of(cases)
    at_point = Counter(point for point, _ in covered.point_kill)
    at_victim = Counter(strike for _, strike in covered.point_kill)
    assert len(cases) <= LIMIT
    assert len(set(cases)) == len(cases)
    assert covered.kind_point == legal.kind_point
    assert covered.kind_strike == legal.kind_strike
    assert covered.point_strike <= legal.point_strike
    assert {strike for _, strike in covered.point_strike} == set(STRIKES)
    assert set(at_point) == set(JOB_POINTS)
    assert min(at_point.values()) >= 1
    assert min(at_victim.values()) >= 4
    assert len(covered.point_kill) == 27


def test_a_tenth_is_a_spread_of_the_list() -> None:
    """Six cases of the committed list: four kills, a freeze and a full disk, of all kinds, no point twice."""
    cases = tenth(committed())

    struck = [(case.fault, case.victim) for case in cases]
    assert set(cases) <= set(committed())
    assert struck == [
        (Fault.KILL, Victim.CHILD),
        (Fault.KILL, Victim.WORKER),
        (Fault.KILL, Victim.EVERYTHING),
        (Fault.KILL, Victim.POSTGRES),
        (Fault.FREEZE, Victim.WORKER),
        (Fault.FULL_DISK, Victim.NOBODY),
    ]
    assert {case.kind for case in cases} == {each.name for each in KINDS}
    assert len({case.point for case in cases}) >= 5
    assert sum(case.point in SERVER_POINTS for case in cases) <= 2


def test_a_list_may_have_comments() -> None:
    """What follows a hash is left out, and empty lines are."""
    cases = read("# title\n\nexport step.before:2 kill worker  # why\n")

    assert cases == [Case("export", "step.before", 2, Fault.KILL, Victim.WORKER)]


def test_a_line_that_names_no_case_is_refused() -> None:
    """A mistyped line isn't skipped in silence."""
    with pytest.raises(UsageError, match="nonsense"):
        read("export step.before:2 kill worker\nnonsense\n")
