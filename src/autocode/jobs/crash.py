"""Named crash points: places where a test, a lesson or a curious reader kills the process.

``AUTOCODE_CRASH=POINT[:NTH][=kill|pause|raise|slow|full]`` arms one point. At its *NTH* passage (1 by
default) the process is killed by SIGKILL, stopped by SIGSTOP, raises :class:`CrashRaised`, takes eight
seconds as on a slow disk, or is told that the disk is full. It fires **once**: a token file in
``AUTOCODE_CRASH_TOKENS`` (a folder; by default one per home is set by the command line) is consumed first, so
that a supervised restart isn't killed again. With the variable unset a point costs one comparison.

``AUTOCODE_CRASH=@FILE`` arms whatever *FILE* says at the moment of each passage, so that processes which run
already can be armed again and again. The process that fires renames the file to ``FILE.fired-<its pid>``.

The idea follows the debug triggers of DBOS Transact (``dbos/_debug_trigger.py``).
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol, cast

from autocode.jobs.errors import Transient, UsageError

__all__ = [
    "ACTIONS",
    "POINTS",
    "SLOW_SECONDS",
    "CrashRaised",
    "arm",
    "armed_point",
    "at",
    "disarm",
    "forward",
]

Action = Literal["kill", "pause", "raise", "slow", "full"]
ACTIONS: Final[tuple[Action, ...]] = ("kill", "pause", "raise", "slow", "full")

SLOW_SECONDS: Final = 8.0
"""How long a point armed with ``=slow`` takes: longer than a lease."""

POINTS: Final[tuple[str, ...]] = (
    "enqueue.after-commit",
    "submit.after-create",
    "claim.before",
    "claim.after",
    "step.before",
    "effect.before",
    "effect.after-call",
    "step.mid-write",
    "step.after-object",
    "step.after-checkpoint",
    "result.before",
    "result.after",
    "reconcile.before-commit",
    "notify.after-intent",
    "notify.after-send",
)
"""Every crash point that exists, in the order in which the life of a job meets them."""

_SYNTAX: Final = re.compile(r"(?P<point>[a-z.-]+)(?::(?P<nth>[1-9][0-9]{0,8}))?(?:=(?P<action>[a-z]+))?")


class CrashRaised(Transient):
    """Raised at a crash point armed with ``=raise``."""

    type = "crash-point"
    title = "A crash point was armed"
    default_hint = "Unset AUTOCODE_CRASH."


class _Source(Protocol):
    """Where a process learns which point is armed."""

    @property
    def point(self) -> str | None:
        """The point that is armed now."""
        ...

    def turn(self, point: str) -> Action | None:
        """Count a passage of *point*; return what is to be done if this is the one that fires."""
        ...


@dataclass(frozen=True, slots=True)
class _Spec:
    point: str
    nth: int
    action: Action


@dataclass(slots=True)
class _Armed:
    spec: _Spec
    token: Path | None
    # one next() is atomic, so threads that pass together get different numbers and none is skipped
    passages: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def point(self) -> str:
        return self.spec.point

    def turn(self, point: str) -> Action | None:
        if point != self.spec.point or next(self.passages) != self.spec.nth or not _consume(self.token):
            return None
        return self.spec.action


class _Ordered:
    """What a file says, which may change at any time; passages are counted since it was last written."""

    def __init__(self, order: Path) -> None:
        self._order = order
        self._armed: tuple[tuple[int, int], _Armed] | None = None
        self._lock = threading.Lock()

    @property
    def point(self) -> str | None:
        armed = self._read()
        return None if armed is None else armed.point

    def turn(self, point: str) -> Action | None:
        armed = self._read()
        action = None if armed is None else armed.turn(point)
        if action is None:
            return None
        try:
            self._order.rename(self._order.with_name(f"{self._order.name}.fired-{os.getpid()}"))
        except FileNotFoundError:
            return None
        return action

    def _read(self) -> _Armed | None:
        with self._lock:
            try:
                with self._order.open(encoding="utf-8") as file:
                    stat = os.fstat(file.fileno())
                    text = file.read().strip()
            except FileNotFoundError:
                return None
            written = (stat.st_ino, stat.st_mtime_ns)
            if self._armed is None or self._armed[0] != written:
                self._armed = (written, _Armed(_parse(text), None))
            return self._armed[1]


@dataclass(frozen=True, slots=True)
class _Forwarded:
    point: str
    tell: Callable[[str], None]

    def turn(self, point: str) -> None:
        if point == self.point:
            self.tell(point)


_source: _Source | None = None


def arm(spec: str | None, *, tokens: Path | None) -> None:
    """Arm one crash point from *spec*; ``None`` or an empty string disarms.

    Args:
        spec: ``POINT[:NTH][=kill|pause|raise|slow|full]``, or ``@FILE``: what a file says, if it is there.
        tokens: folder for the token file that makes it fire once across restarts; ``None``: once a process.

    Raises:
        UsageError: *spec* names no crash point, or its syntax is off.
    """
    global _source  # noqa: PLW0603 - one armed point a process is the whole idea
    if not spec:
        _source = None
    elif spec.startswith("@"):
        _source = _Ordered(Path(spec[1:]))
    else:
        digest = hashlib.sha256(spec.encode()).hexdigest()[:16]
        _source = _Armed(_parse(spec), None if tokens is None else tokens / f"fired-{digest}")


def disarm() -> None:
    """Disarm whatever is armed in this process."""
    arm(None, tokens=None)


def armed_point() -> str | None:
    """Return the name of the point that is armed in this process."""
    return None if _source is None else _source.point


def forward(point: str, tell: Callable[[str], None]) -> None:
    """Arm *point* in a process that works for another one: *tell* is called at each passage, and acts."""
    global _source  # noqa: PLW0603 - one armed point a process is the whole idea
    _source = _Forwarded(point, tell)


def at(point: str) -> None:
    """Mark a passage of *point*; does nothing unless that point is armed and this is its turn.

    Raises:
        CrashRaised: the point is armed with ``=raise``.
        OSError: it is armed with ``=full``: the disk has no room.
        UsageError: the file that arms it names no crash point.
    """
    if _source is None or (action := _source.turn(point)) is None:
        return
    if action == "raise":
        raise CrashRaised(f"Crash point {point} was armed.")
    if action == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if action == "slow":
        time.sleep(SLOW_SECONDS)
    elif action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        # sent to this very thread: a stop sent to the process may let this thread run on for a moment
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _parse(spec: str) -> _Spec:
    match = _SYNTAX.fullmatch(spec)
    point = match["point"] if match else spec
    action = (match["action"] if match else None) or "kill"
    if match is None or point not in POINTS or action not in ACTIONS:
        raise UsageError(
            f"AUTOCODE_CRASH={spec!r} names no crash point.",
            hint=f"Use POINT[:NTH][={'|'.join(ACTIONS)}]; the points are " + ", ".join(POINTS) + ".",
        )
    return _Spec(point, int(match["nth"] or 1), cast("Action", action))


def _consume(token: Path | None) -> bool:
    if token is None:
        return True
    token.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(token, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True
