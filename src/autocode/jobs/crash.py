"""Named crash points: places where a test, a lesson or a curious reader kills the process.

``AUTOCODE_CRASH=POINT[:NTH][=kill|pause|raise]`` arms one point. At its *NTH* passage (1 by default) the
process is killed by SIGKILL, stopped by SIGSTOP, or raises :class:`CrashRaised`. It fires **once**: a
token file in ``AUTOCODE_CRASH_TOKENS`` (a folder; by default one per home is set by the command line) is
consumed first, so that a supervised restart isn't killed again. With the variable unset a point costs one
comparison.

The idea follows the debug triggers of DBOS Transact (``dbos/_debug_trigger.py``).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast

from autocode.jobs.errors import Transient, UsageError

__all__ = ["ACTIONS", "POINTS", "CrashRaised", "arm", "armed_point", "at", "disarm", "forward"]

Action = Literal["kill", "pause", "raise"]
ACTIONS: Final[tuple[Action, ...]] = ("kill", "pause", "raise")

POINTS: Final[tuple[str, ...]] = (
    "enqueue.after-commit",
    "submit.after-create",
    "claim.before",
    "claim.after",
    "step.before",
    "step.mid-write",
    "step.after-object",
    "step.after-checkpoint",
    "result.before",
    "result.after",
    "reconcile.before-commit",
)
"""Every crash point that exists, in the order in which the life of a job meets them."""

_SYNTAX: Final = re.compile(r"(?P<point>[a-z.-]+)(?::(?P<nth>[1-9][0-9]{0,8}))?(?:=(?P<action>[a-z]+))?")


class CrashRaised(Transient):
    """Raised at a crash point armed with ``=raise``."""

    type = "crash-point"
    title = "A crash point was armed"
    default_hint = "Unset AUTOCODE_CRASH."


@dataclass(slots=True)
class _Armed:
    point: str
    nth: int
    action: Action
    token: Path | None
    # one next() is atomic, so threads that pass together get different numbers and none is skipped
    passages: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    tell: Callable[[str], None] | None = None


_armed: _Armed | None = None


def arm(spec: str | None, *, tokens: Path | None) -> None:
    """Arm one crash point from *spec*; ``None`` or an empty string disarms.

    Args:
        spec: ``POINT[:NTH][=kill|pause|raise]``.
        tokens: folder for the token file that makes it fire once across restarts; ``None``: once a process.

    Raises:
        UsageError: *spec* names no crash point, or its syntax is off.
    """
    global _armed  # noqa: PLW0603 - one armed point a process is the whole idea
    if not spec:
        _armed = None
        return
    match = _SYNTAX.fullmatch(spec)
    point = match["point"] if match else spec
    action = (match["action"] if match else None) or "kill"
    if match is None or point not in POINTS or action not in ACTIONS:
        raise UsageError(
            f"AUTOCODE_CRASH={spec!r} names no crash point.",
            hint="Use POINT[:NTH][=kill|pause|raise]; the points are " + ", ".join(POINTS) + ".",
        )
    token = None
    if tokens is not None:
        token = tokens / ("fired-" + hashlib.sha256(spec.encode()).hexdigest()[:16])
    _armed = _Armed(point, int(match["nth"] or 1), cast("Action", action), token)


def disarm() -> None:
    """Disarm whatever is armed in this process."""
    arm(None, tokens=None)


def armed_point() -> str | None:
    """Return the name of the point that is armed in this process."""
    return None if _armed is None else _armed.point


def forward(point: str, tell: Callable[[str], None]) -> None:
    """Arm *point* in a process that works for another one: *tell* is called at each passage, and acts."""
    global _armed  # noqa: PLW0603 - one armed point a process is the whole idea
    _armed = _Armed(point, 1, "raise", None, tell=tell)


def at(point: str) -> None:
    """Mark a passage of *point*; does nothing unless that point is armed and this is its turn.

    Raises:
        CrashRaised: the point is armed with ``=raise``.
    """
    armed = _armed
    if armed is None or armed.point != point:
        return
    if armed.tell is not None:
        armed.tell(point)
        return
    if next(armed.passages) != armed.nth or not _consume(armed.token):
        return
    if armed.action == "raise":
        raise CrashRaised(f"Crash point {point} was armed.")
    if armed.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        # sent to this very thread: a stop sent to the process may let this thread run on for a moment
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _consume(token: Path | None) -> bool:
    if token is None:
        return True
    token.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(token, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True
