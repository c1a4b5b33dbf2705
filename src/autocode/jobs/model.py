"""The words of the status contract: five states, why a job is dead, and which moves are legal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

__all__ = ["TERMINAL", "TRANSITIONS", "BulkOutcome", "DeadReason", "JobStatus"]


class JobStatus(StrEnum):
    """The five states that a person may see; a member equals its wire value and prints as it.

    >>> JobStatus.RETRY == "retrying", f"{JobStatus.RETRY}"
    (True, 'retrying')
    """

    QUEUED = "queued"
    """The job was accepted and won't be forgotten; no attempt has begun. Promises no worker."""

    RUNNING = "running"
    """One attempt owns the job and shows that it is alive. Never merely the last thing that was heard."""

    RETRY = "retrying"
    """An attempt ended without success, or fell silent, and the next one is due. Not a failure."""

    COMPLETE = "complete"
    """The result is committed and can be fetched. Never merely that the function returned."""

    DEAD = "dead"
    """Nothing more happens unless a person asks for it; a :class:`DeadReason` says why. Not lost."""


class DeadReason(StrEnum):
    """Why a dead job gets no further attempt."""

    EXHAUSTED = "exhausted"
    """Every attempt of the budget ended without success."""

    PERMANENT = "permanent"
    """An attempt met an error that the same input can never get past."""

    POISON = "poison"
    """Every attempt took its process down with it."""

    CANCELLED = "cancelled"
    """A person called it off. Such a job isn't a dead letter."""


class BulkOutcome(StrEnum):
    """What came of one job among many."""

    RETRIED = "retried"
    """It has further attempts."""

    WOULD_RETRY = "would-retry"
    """A dry run: it is dead, and could be retried."""

    REFUSED = "refused"
    """It is not what the caller thinks; ``error`` says why."""

    UNKNOWN = "unknown"
    """The ledger didn't answer: it may have further attempts, or not. Read the job."""

    NOT_TRIED = "not-tried"
    """The ledger went away before its turn. Sent again with the same revisions, nothing happens twice."""


TERMINAL: Final = frozenset({JobStatus.COMPLETE, JobStatus.DEAD})
"""The states that nothing but a manual retry ends; for ``complete`` not even that."""

TRANSITIONS: Final[Mapping[JobStatus, frozenset[JobStatus]]] = MappingProxyType(
    {
        JobStatus.QUEUED: frozenset({JobStatus.RUNNING, JobStatus.RETRY, JobStatus.DEAD}),
        JobStatus.RUNNING: frozenset({JobStatus.COMPLETE, JobStatus.RETRY, JobStatus.DEAD}),
        JobStatus.RETRY: frozenset({JobStatus.RUNNING, JobStatus.DEAD}),
        JobStatus.COMPLETE: frozenset(),
        JobStatus.DEAD: frozenset({JobStatus.QUEUED, JobStatus.RETRY}),
    }
)
"""The legal moves, one for each fact that can change a status.

- *queued → retrying*, *queued → dead*: the first attempt's process was lost before it could begin; or the
  job was cancelled while it waited.
- *retrying → dead*: cancelled between two attempts, or the next one was lost before it could begin.
- *dead → retrying*, *dead → queued*: the manual retry. ``queued`` means that no attempt has begun, so a
  dead job goes back there only if it was called off before its first one; otherwise an attempt is due
  after others, and that is ``retrying``.
- *complete* is left by nothing: a retry of a complete job is refused.

An observer that looks now and then may find several moves at once (queued, then complete): it has missed
the states between, and passes through them in order when it tells others.
"""
