"""What many cases came to: counted by strike, with the times; ``report_forms.py`` writes it down."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Protocol

from autocode.jobs.testing.crashes.cases import Case, Victim
from autocode.jobs.testing.crashes.space import STRIKES, Strike
from autocode.jobs.testing.crashes.violations import Violation

__all__ = [
    "HEAD",
    "Judged",
    "Row",
    "Spread",
    "Summary",
    "Timed",
    "repeat_command",
    "verdict_json",
]

HEAD: Final = (
    "fault",
    "cases",
    "not reached",
    "not judged",
    "repeats",
    "losses",
    "other",
    "notice",
    "next attempt",
    "complete",
)
"""The columns of a summary. Times are a median with the longest behind it."""


class Timed(Protocol):
    """Seconds after the fault, from persisted time-stamps; ``None`` where there was no such moment."""

    @property
    def notice(self) -> float | None:
        """Until it was seen that something is wrong."""
        ...

    @property
    def next_attempt(self) -> float | None:
        """Until the next attempt began."""
        ...

    @property
    def complete(self) -> float | None:
        """Until the job was complete."""
        ...


class Judged(Protocol):
    """What a summary needs to know of a case that was run."""

    @property
    def case(self) -> Case:
        """The case."""
        ...

    @property
    def violations(self) -> Sequence[Violation]:
        """What must not be; nothing if all is well."""
        ...

    @property
    def unjudged(self) -> str | None:
        """Why the case came to no end, and so proves nothing either way."""
        ...

    @property
    def times(self) -> Timed:
        """How long it took to recover."""
        ...

    @property
    def reached(self) -> bool:
        """Whether the job came to the case's crash point; if not, the case proves nothing."""
        ...

    @property
    def attempts(self) -> int:
        """How many attempts the job took."""
        ...

    @property
    def redelivered(self) -> int:
        """How many effects were delivered again under their key, and so weren't applied again."""
        ...

    @property
    def seconds(self) -> float:
        """How long the case took in all."""
        ...


@dataclass(frozen=True, slots=True)
class Spread:
    """Some times in seconds: the one in the middle, and the longest."""

    median: float
    worst: float

    @classmethod
    def of(cls, times: Iterable[float | None]) -> Spread | None:
        """Return the spread of those that are there; ``None`` if there is none."""
        known = [each for each in times if each is not None]
        return cls(median(known), max(known)) if known else None

    def __str__(self) -> str:
        return f"{self.median:.1f} s ({self.worst:.1f})"

    def to_json(self) -> dict[str, float]:
        """Return both as a JSON object."""
        return {"median": round(self.median, 3), "worst": round(self.worst, 3)}


@dataclass(frozen=True, slots=True)
class Row:
    """What the cases of one strike, or of all, came to.

    Repeats, losses and other violations are counted one by one. A case that never came to its crash point, or
    to no end that could be judged, counts among *cases*, and its times don't count.
    """

    what: str
    cases: int
    not_reached: int
    not_judged: int
    repeats: int
    losses: int
    other: int
    redelivered: int
    notice: Spread | None
    next_attempt: Spread | None
    complete: Spread | None

    @classmethod
    def of(cls, what: str, verdicts: Sequence[Judged]) -> Row:
        """Return the row of these verdicts."""
        sorts = [each.sort for verdict in verdicts for each in verdict.violations]
        times = [verdict.times for verdict in verdicts if verdict.reached and verdict.unjudged is None]
        return cls(
            what,
            cases=len(verdicts),
            not_reached=sum(not verdict.reached for verdict in verdicts),
            not_judged=sum(verdict.unjudged is not None for verdict in verdicts),
            repeats=sorts.count("repeat"),
            losses=sorts.count("loss"),
            other=sorts.count("other"),
            redelivered=sum(verdict.redelivered for verdict in verdicts),
            notice=Spread.of(each.notice for each in times),
            next_attempt=Spread.of(each.next_attempt for each in times),
            complete=Spread.of(each.complete for each in times),
        )

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of :data:`HEAD`."""
        counts = (self.cases, self.not_reached, self.not_judged, self.repeats, self.losses, self.other)
        times = (self.notice, self.next_attempt, self.complete)
        return (self.what, *map(str, counts), *("-" if each is None else str(each) for each in times))

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        counts = ("cases", "not_reached", "not_judged", "repeats", "losses", "other", "redelivered")
        times = ("notice", "next_attempt", "complete")
        spreads: dict[str, Spread | None] = {name: getattr(self, name) for name in times}
        return {
            "fault": self.what,
            **{name: getattr(self, name) for name in counts},
            **{name: None if each is None else each.to_json() for name, each in spreads.items()},
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """What a whole run came to: a row a strike that was tried, one of all, and the cases to run again."""

    rows: tuple[Row, ...]
    total: Row
    failed: tuple[Judged, ...]
    seconds: float

    @classmethod
    def of(cls, verdicts: Sequence[Judged]) -> Summary:
        """Return the summary of these verdicts."""
        by_strike: dict[Strike, list[Judged]] = {strike: [] for strike in STRIKES}
        for verdict in verdicts:
            by_strike[verdict.case.fault, verdict.case.victim].append(verdict)
        return cls(
            tuple(Row.of(_named(strike), found) for strike, found in by_strike.items() if found),
            Row.of("all", verdicts),
            tuple(verdict for verdict in verdicts if verdict.violations or verdict.unjudged is not None),
            sum(verdict.seconds for verdict in verdicts),
        )

    @property
    def ok(self) -> bool:
        """Whether every case was judged without a violation, and at least one came to its crash point."""
        return not self.failed and self.total.not_reached < self.total.cases

    def to_json(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        return {
            "ok": self.ok,
            "seconds": round(self.seconds, 1),
            "rows": [row.to_json() for row in self.rows],
            "all": self.total.to_json(),
            "failed": [str(verdict.case) for verdict in self.failed],
        }


def verdict_json(verdict: Judged) -> dict[str, Any]:
    """Return one verdict as a JSON object."""
    times = verdict.times
    return {
        "case": str(verdict.case),
        "ok": not verdict.violations and verdict.unjudged is None,
        "reached": verdict.reached,
        "violations": [str(each) for each in verdict.violations],
        "not_judged": verdict.unjudged,
        "attempts": verdict.attempts,
        "redelivered": verdict.redelivered,
        "notice": times.notice,
        "next_attempt": times.next_attempt,
        "complete": times.complete,
        "seconds": verdict.seconds,
    }


def repeat_command(case: Case, *options: str) -> str:
    """Return the command that runs *case* again.

    Args:
        case: the case.
        options: what else stood on the command line, such as a kind of one's own and its payload.
    """
    return " ".join(["autocode-jobs crash-test", *map(shlex.quote, options), f'--case "{case}"'])


def _named(strike: Strike) -> str:
    fault, victim = strike
    return str(fault) if victim is Victim.NOBODY else f"{fault} {victim}"
