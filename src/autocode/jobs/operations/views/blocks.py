"""What a session consists of for somebody who reads it: a small set of typed blocks, the same for every view.

:mod:`~autocode.jobs.operations.views.turns` makes them from records. Text in them is as recorded; a view
makes it harmless in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "Block",
    "Branch",
    "Call",
    "Marker",
    "Message",
    "Notice",
    "Notices",
    "Origin",
    "Part",
    "Result",
    "Stamp",
    "Thought",
    "Unknown",
]

Origin = Literal["said", "command", "context", "summary", "interruption"]
"""How a message came about: said by its role; a slash command; put in by the tool; the tool's summary of
what came before; the note that a user interrupted."""


@dataclass(slots=True)
class Stamp:
    """What every block knows of its record.

    Args:
        id: of the record; unique in its session, so links to it stay.
        at: RFC 3339, UTC; ``None`` where the source has no time.
        local: a time without a zone, as :func:`~.wording.local_time` gives it, where *at* is ``None``.
        sidechain: whether it is on a side chain.
        model: which model wrote it, where the source says so.
        usage: tokens of its message, on the last block of that message alone.
        cost: US dollars, where the transcript states them.
    """

    id: str
    at: str | None = None
    sidechain: bool = False
    model: str | None = None
    usage: dict[str, Any] | None = None
    cost: float | None = None
    message_id: str | None = None
    local: str | None = None

    @property
    def time(self) -> str | None:
        """The time as it is shown, whether its zone is known or not."""
        return self.at or self.local


@dataclass(slots=True)
class Part:
    """A part of a message or a result: ``text``; ``image`` with *data* in base64 or an address; ``other``."""

    kind: Literal["text", "context", "image", "other"]
    text: str = ""
    label: str = ""
    data: Any = None


@dataclass(slots=True)
class Message:
    """Something said by a role."""

    stamp: Stamp
    role: str
    origin: Origin
    parts: list[Part]


@dataclass(slots=True)
class Thought:
    """A model's reasoning; empty text where only the provider can read it."""

    stamp: Stamp
    text: str
    encrypted: bool = False


@dataclass(slots=True)
class Result:
    """What a tool gave back."""

    stamp: Stamp
    parts: list[Part]
    call: str | None
    is_error: bool | None


@dataclass(slots=True)
class Call:
    """A tool call with the results that came near it; one that came later follows on its own."""

    stamp: Stamp
    name: str
    input: Any
    call_id: str | None
    results: list[Result] = field(default_factory=list)


@dataclass(slots=True)
class Marker:
    """A compaction, or a summary that stands in the transcript."""

    stamp: Stamp
    kind: Literal["compaction", "summary"]
    text: str
    trigger: str | None = None
    tokens_before: int | None = None
    held: dict[str, Any] | None = None


@dataclass(slots=True)
class Notice:
    """An event of the tool: what it did beside the conversation."""

    stamp: Stamp
    name: str
    data: Any


@dataclass(slots=True)
class Notices:
    """A run of events."""

    notices: list[Notice]

    @property
    def stamp(self) -> Stamp:
        """That of the first."""
        return self.notices[0].stamp


@dataclass(slots=True)
class Unknown:
    """A record that the reader didn't understand, whole."""

    stamp: Stamp
    name: str | None
    data: Any


@dataclass(slots=True)
class Branch:
    """Where a side chain begins, or where the conversation goes on behind one.

    Args:
        begins: whether one begins; else the last one ends.
        is_fork: whether it is a branch that a user left; else it may be a subagent's work as well.
        parent: the record from which it forks, where that stands before it.
        words: how that record begins.
    """

    stamp: Stamp
    begins: bool
    is_fork: bool = False
    parent: str | None = None
    words: str = ""


Block = Branch | Message | Thought | Call | Result | Marker | Notices | Unknown
