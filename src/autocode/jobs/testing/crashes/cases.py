"""What a case of the kill matrix is: where a job is stopped, what is done there, and to whom."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autocode.jobs.crash import POINTS
from autocode.jobs.errors import UsageError

__all__ = ["JOB_POINTS", "Case", "Fault", "Victim"]

JOB_POINTS: Final = tuple(point for point in POINTS if not point.startswith("notify."))
"""The crash points that a job passes.

Notifications aren't among them: they are sent when the job is over, and none is where nobody subscribed.
``tests/integration/test_notify_kills.py`` kills the sender at each of its points.
"""


class Fault(StrEnum):
    """What is done while the job is stopped at its crash point."""

    KILL = "kill"
    """SIGKILL to the victim."""
    FREEZE = "freeze"
    """SIGSTOP to the victim for longer than a lease, then SIGCONT."""
    CUT_OFF = "cut-off"
    """The worker and its children live and can't reach the database for longer than a lease."""
    SLOW_DISK = "slow-disk"
    """The write at the point takes longer than a lease."""
    FULL_DISK = "full-disk"
    """The write at the point is told that the disk is full."""
    DAMAGE = "damage"
    """Bytes of the object that the job made last are changed on the disk."""
    CLOCK_BACK = "clock-back"
    """This project's processes see an hour less on the wall clock from here on."""
    CLOCK_FORWARD = "clock-forward"
    """They see an hour more."""
    NONE = "none"
    """Nothing: the job is only stopped for a moment."""


class Victim(StrEnum):
    """Who is killed or frozen."""

    CHILD = "child"
    """The process that runs the attempt, and no other."""
    WORKER = "worker"
    """The worker with its zygote and its children."""
    SERVERS = "api+reconcile"
    """The API process and the reconciler."""
    PREFECT = "prefect"
    """Prefect's server."""
    POSTGRES = "postgres"
    """PostgreSQL's postmaster with its backends."""
    EVERYTHING = "everything"
    """Every process of the service, the supervisor first; then ``up`` again."""
    NOBODY = "nobody"
    """For faults that strike no process."""


_WITHOUT_VICTIM: Final = frozenset(Fault) - {Fault.KILL, Fault.FREEZE}
_DISK: Final = frozenset({Fault.SLOW_DISK, Fault.FULL_DISK})
_DAMAGED_AT: Final = frozenset({"step.after-checkpoint", "result.before"})
_SYNTAX: Final = re.compile(
    r"(?P<kind>\S+) (?P<point>[a-z.-]+):(?P<nth>[1-9][0-9]*) (?P<fault>\S+)(?: (?P<victim>\S+))?"
)


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One case: a job of *kind* is stopped at passage *nth* of *point*, and *fault* is done to *victim*.

    Its text, ``export step.before:2 kill worker``, is what people type to repeat it.

    Args:
        kind: the name of the job kind.
        point: a crash point.
        nth: which passage of it in one process, from 1.
        fault: what is done.
        victim: to whom.

    Raises:
        UsageError: there is no such point, the fault takes no such victim, or needs another point.
    """

    kind: str
    point: str
    nth: int
    fault: Fault
    victim: Victim = Victim.NOBODY

    def __post_init__(self) -> None:
        if self.point not in JOB_POINTS:
            raise UsageError(
                f"No job passes a crash point {self.point!r}.", hint=f"There are: {', '.join(JOB_POINTS)}."
            )
        if (self.victim is Victim.NOBODY) != (self.fault in _WITHOUT_VICTIM):
            raise UsageError(f"The fault {self.fault} and the victim {self.victim} don't go together.")
        if self.fault in _DISK and self.point != "step.mid-write":
            raise UsageError(f"The fault {self.fault} strikes at step.mid-write alone.")
        if self.fault is Fault.DAMAGE and self.point not in _DAMAGED_AT:
            raise UsageError(f"The fault {self.fault} strikes at {' and '.join(sorted(_DAMAGED_AT))} alone.")

    def __str__(self) -> str:
        words = [self.kind, f"{self.point}:{self.nth}", self.fault]
        return " ".join(words if self.victim is Victim.NOBODY else [*words, self.victim])

    @classmethod
    def parse(cls, text: str) -> Case:
        """Return the case that *text* names.

        Raises:
            UsageError: it names none.
        """
        found = _SYNTAX.fullmatch(text.strip())
        if found is None:
            raise _no_case(text)
        try:
            fault, victim = Fault(found["fault"]), Victim(found["victim"] or Victim.NOBODY)
        except ValueError as error:
            raise _no_case(text) from error
        return cls(found["kind"], found["point"], int(found["nth"]), fault, victim)


def _no_case(text: str) -> UsageError:
    return UsageError(
        f"{text!r} names no case.",
        hint="Write KIND POINT:NTH FAULT [VICTIM], as in: export step.before:2 kill worker",
    )
