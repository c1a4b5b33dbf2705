"""The whole space of cases: all of them, random ones, and a short list that pairs everything with everything.

A *strike* is a fault with its victim. Which strike is legal where:

- a child can be the victim only at a point that a child passes;
- to freeze a child or a worker, or to cut a worker off, takes a job that runs, so a child's point as well;
- a slow and a full disk strike at ``step.mid-write`` alone, and damage where a job has just made an object;
- every other strike may come at every point.

A point is part of a kind's space if its jobs pass it in their first attempt.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Final, Protocol, TypeVar

from autocode.jobs.testing.crashes.cases import JOB_POINTS, Case, Fault, Victim

__all__ = [
    "LIMIT",
    "SERVER_POINTS",
    "SLOW_FAULTS",
    "STRIKES",
    "Course",
    "Strike",
    "committed",
    "draw",
    "every",
    "is_legal",
    "read",
    "tenth",
]

T = TypeVar("T")

Strike = tuple[Fault, Victim]

LIMIT: Final = 60
"""How many cases the committed list may have."""

SERVER_POINTS: Final = frozenset({"enqueue.after-commit", "submit.after-create", "reconcile.before-commit"})
"""The points that the API and reconcile pass; a child passes all others."""

SLOW_FAULTS: Final = frozenset({Fault.FREEZE, Fault.CUT_OFF, Fault.SLOW_DISK})
"""Faults that take longer than a lease by themselves."""

_KILLS: Final = tuple((Fault.KILL, victim) for victim in Victim if victim is not Victim.NOBODY)
_FREEZES: Final = tuple(
    (Fault.FREEZE, victim) for victim in (Victim.CHILD, Victim.WORKER, Victim.SERVERS, Victim.POSTGRES)
)

STRIKES: Final[tuple[Strike, ...]] = (
    *_KILLS,
    *_FREEZES,
    *((fault, Victim.NOBODY) for fault in Fault if fault not in {Fault.KILL, Fault.FREEZE}),
)
"""Every fault with every victim that it takes, kills first."""

_RUNNING: Final = frozenset(
    {
        (Fault.KILL, Victim.CHILD),
        (Fault.FREEZE, Victim.CHILD),
        (Fault.FREEZE, Victim.WORKER),
        (Fault.CUT_OFF, Victim.NOBODY),
    }
)
_PLACES: Final = {
    Fault.SLOW_DISK: frozenset({"step.mid-write"}),
    Fault.FULL_DISK: frozenset({"step.mid-write"}),
    Fault.DAMAGE: frozenset({"step.after-checkpoint", "result.before"}),
}
"""Where the faults of the disk strike, and nowhere else."""

_KILLS_IN_DECK: Final = 3
"""How often each kill is in the deck that strikes are drawn from, so that a fifth of it is slow."""

_TENTH: Final[tuple[Strike, ...]] = (
    (Fault.KILL, Victim.CHILD),
    (Fault.KILL, Victim.WORKER),
    (Fault.KILL, Victim.EVERYTHING),
    (Fault.KILL, Victim.POSTGRES),
    (Fault.FREEZE, Victim.WORKER),
    (Fault.FULL_DISK, Victim.NOBODY),
)


class Course(Protocol):
    """The course that the jobs of a kind take."""

    @property
    def name(self) -> str:
        """The kind's name."""
        ...

    @property
    def nths(self) -> Mapping[str, int]:
        """Crash point to its highest passage in a job's first attempt; 0 or nothing if there is none."""
        ...


def is_legal(point: str, strike: Strike) -> bool:
    """Say whether *strike* may come at *point*; whether a kind's jobs pass there is another question."""
    if strike[0] in _PLACES:
        return point in _PLACES[strike[0]]
    return strike not in _RUNNING or point not in SERVER_POINTS


def every(courses: Iterable[Course]) -> list[Case]:
    """Return all legal cases of these kinds, in a fixed order."""
    return [
        Case(course.name, point, nth, *strike)
        for course in courses
        for point in JOB_POINTS
        for nth in range(1, course.nths.get(point, 0) + 1)
        for strike in STRIKES
        if is_legal(point, strike)
    ]


def draw(seed: int, rounds: int, courses: Sequence[Course]) -> list[Case]:
    """Return random cases of the whole space.

    Every strike comes once in each 29 rounds, and what was drawn least comes first among points and kinds, so
    that everything gets its turn. About a fifth of the cases have a slow fault. The same arguments give the
    same cases, and fewer rounds give the first of them.

    Args:
        seed: any number.
        rounds: how many cases.
        courses: of the kinds to draw from.
    """
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be kept secret
    used: Counter[object] = Counter()
    strikes = _strikes(chance, courses)
    return [_drawn(next(strikes), chance, courses, used) for _ in range(rounds)]


def _strikes(chance: random.Random, courses: Sequence[Course]) -> Iterator[Strike]:
    reached = {point for course in courses for point, nth in course.nths.items() if nth}
    strikes = [strike for strike in STRIKES if any(is_legal(point, strike) for point in reached)]
    deck = [each for each in strikes for _ in range(_KILLS_IN_DECK if each[0] is Fault.KILL else 1)]
    while deck:
        yield from chance.sample(deck, len(deck))


def _drawn(strike: Strike, chance: random.Random, courses: Sequence[Course], used: Counter[object]) -> Case:
    passed = [(course, point) for course in courses for point in JOB_POINTS if course.nths.get(point, 0)]
    legal = [(course, point) for course, point in passed if is_legal(point, strike)]
    points = list(dict.fromkeys(point for _, point in legal))
    point = _rarest(points, chance, used)
    name = _rarest([course.name for course, at in legal if at == point], chance, used)
    nths = next(course.nths for course in courses if course.name == name)
    return Case(name, point, chance.randint(1, nths[point]), *strike)


def _rarest(among: Sequence[T], chance: random.Random, used: Counter[object]) -> T:
    least = min(used[each] for each in among)
    found = chance.choice([each for each in among if used[each] == least])
    used[found] += 1
    return found


def committed() -> list[Case]:
    """Return the committed list, ``matrix.txt``, in its order."""
    return read(files(__package__).joinpath("matrix.txt").read_text("utf-8"))


def read(text: str) -> list[Case]:
    """Return the cases of a list: one a line; what follows a ``#`` is a comment.

    Raises:
        UsageError: a line names no case.
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [Case.parse(line) for line in lines if line]


def tenth(cases: Sequence[Case]) -> list[Case]:
    """Return about six of *cases* that differ most: a quick look before the whole list, always the same."""
    used: Counter[str] = Counter()
    chosen = []
    for strike in _TENTH:
        fitting = [case for case in cases if (case.fault, case.victim) == strike]
        if fitting:
            case = min(fitting, key=lambda each: _dullness(each, used))
            used.update((case.point, case.kind))
            chosen.append(case)
    return chosen


def _dullness(case: Case, used: Counter[str]) -> tuple[int, bool, bool]:
    # a job that runs has more to lose than one that waits, and an effect more than a step
    seen = used[case.point] + used[case.kind]
    return seen, case.point in SERVER_POINTS, case.point != "effect.after-call"
