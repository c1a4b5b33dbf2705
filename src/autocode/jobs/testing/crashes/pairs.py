"""A short list of cases in which kinds, crash points and strikes meet in pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from autocode.jobs.testing.crashes.cases import JOB_POINTS, Case, Fault
from autocode.jobs.testing.crashes.space import LIMIT, STRIKES, Course, Strike, is_legal

__all__ = ["Pairs", "pairs_of", "pairwise"]

_GOLDEN: Final = 0.6180339887498949


@dataclass(slots=True)
class Pairs:
    """Pairs that cases may cover."""

    kind_point: set[tuple[str, str]] = field(default_factory=set)
    kind_strike: set[tuple[str, Strike]] = field(default_factory=set)
    point_strike: set[tuple[str, Strike]] = field(default_factory=set)

    @property
    def point_kill(self) -> set[tuple[str, Strike]]:
        """Those of a point and a kill."""
        return {(point, strike) for point, strike in self.point_strike if strike[0] is Fault.KILL}

    def add(self, kind: str, point: str, strike: Strike) -> None:
        """Add the three pairs of one case."""
        self.kind_point.add((kind, point))
        self.kind_strike.add((kind, strike))
        self.point_strike.add((point, strike))


@dataclass(frozen=True, slots=True)
class _Cell:
    """A case without its passage."""

    kind: str
    point: str
    strike: Strike
    nth: int
    """The highest passage."""


def pairs_of(cases: Sequence[Case]) -> Pairs:
    """Return the pairs that *cases* cover."""
    pairs = Pairs()
    for case in cases:
        pairs.add(case.kind, case.point, (case.fault, case.victim))
    return pairs


def pairwise(courses: Sequence[Course], *, limit: int = LIMIT) -> list[Case]:
    """Return a short list of cases, the same for the same arguments, in the order of the kinds and points.

    Every legal pair of a kind and a point, and of a kind and a strike, is in it, whatever number of cases it
    takes. While it has fewer than *limit*, it goes on with legal pairs of a point and a strike, kills first.

    Args:
        courses: of the kinds.
        limit: with how many cases to be content.
    """
    cells = list(_cells(courses))
    covered = Pairs()
    used: Counter[object] = Counter()
    chosen: list[_Cell] = []
    while cells:
        # max takes the first of equals, so that the order of the cells decides
        best = max(cells, key=lambda cell: _gain(cell, covered, used))
        must, kill, other, *_ = _gain(best, covered, used)
        if not must and (len(chosen) >= limit or not (kill or other)):
            break
        covered.add(best.kind, best.point, best.strike)
        used.update((best.kind, best.point, best.strike))
        chosen.append(best)
        cells.remove(best)
    return _with_passages(chosen, courses)


def _cells(courses: Sequence[Course]) -> Iterator[_Cell]:
    for course in courses:
        for point in JOB_POINTS:
            if nth := course.nths.get(point, 0):
                yield from (
                    _Cell(course.name, point, strike, nth) for strike in STRIKES if is_legal(point, strike)
                )


def _gain(cell: _Cell, covered: Pairs, used: Counter[object]) -> tuple[int, int, int, int, int]:
    """Return what a cell adds: pairs that must be there, a kill, another strike; then how rare it is."""
    must = ((cell.kind, cell.point) not in covered.kind_point) + (
        (cell.kind, cell.strike) not in covered.kind_strike
    )
    new = (cell.point, cell.strike) not in covered.point_strike
    kill = new and cell.strike[0] is Fault.KILL
    return must, int(kill), int(new), -used[cell.point] - used[cell.strike], -used[cell.kind]


def _with_passages(cells: Sequence[_Cell], courses: Sequence[Course]) -> list[Case]:
    """Give cells of one kind and point passages that lie far apart, and put all in order."""
    kinds = [course.name for course in courses]
    ordered = sorted(
        cells,
        key=lambda cell: (kinds.index(cell.kind), JOB_POINTS.index(cell.point), STRIKES.index(cell.strike)),
    )
    used: Counter[tuple[str, str]] = Counter()
    cases = []
    for cell in ordered:
        place = (cell.kind, cell.point)
        # multiples of the golden ratio spread evenly, whatever their number
        nth = 1 + int(used[place] * _GOLDEN % 1 * cell.nth)
        used[place] += 1
        cases.append(Case(cell.kind, cell.point, nth, *cell.strike))
    return cases
