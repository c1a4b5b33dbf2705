"""How a part of the service is, as people and programs are told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from autocode.jobs.clock import rfc3339

__all__ = ["Health", "Part", "State"]


class State(StrEnum):
    """What a part does now."""

    WAITING = "waiting"
    """For another part that it needs."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    """It was ready, ended, and is started again."""

    FAILING = "failing"
    """It ended several times before it was ready; it is still tried again, with growing pauses."""

    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Health:
    """How one part is.

    Args:
        name: of the part.
        state: what it does now.
        since: when it came into this state.
        pid: its process, if it has one now; also that of a part that stopped here and stays for others.
        ready_seconds: how long its last start took, from the process to the first answer.
        restarts: how often it was started again.
        url: where it answers, once it does.
        log: the file with what it says.
        detail: the last lines that it said, or what is wrong; empty where nothing is.
        hint: what to do about that, where that is known.
    """

    name: str
    state: State
    since: datetime
    pid: int | None = None
    ready_seconds: float | None = None
    restarts: int = 0
    url: str | None = None
    log: Path | None = None
    detail: tuple[str, ...] = ()
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "part": self.name,
            "state": str(self.state),
            "since": rfc3339(self.since),
            "pid": self.pid,
            "ready_seconds": None if self.ready_seconds is None else round(self.ready_seconds, 2),
            "restarts": self.restarts,
            "url": self.url,
            "log": None if self.log is None else str(self.log),
            "detail": list(self.detail),
            "hint": self.hint or None,
        }


class Part(Protocol):
    """Something that the supervisor keeps running.

    All calls come from one thread, return at once, and may be repeated. :meth:`tick` moves it on.
    """

    @property
    def name(self) -> str:
        """The part's name."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the parts that have to be ready before this one is first started."""
        ...

    @property
    def stop_seconds(self) -> float:
        """How long it may take to stop in order."""
        ...

    def health(self) -> Health:
        """Say how it is."""
        ...

    def tick(self) -> None:
        """Look at it, and do what is due: start it, start it again, notice that it is ready."""
        ...

    def stop(self) -> None:
        """Begin to stop it, in order."""
        ...

    def kill(self) -> None:
        """End it, whatever it does."""
        ...
