"""Records into blocks: results beside their calls, events out of the way, what the tool put in told apart.

A call waits for its results in a window of bounded size, so that memory doesn't grow with the session; a
result that comes later than that is a block of its own.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from autocode.jobs.operations.views.blocks import (
    Block,
    Call,
    Marker,
    Message,
    Notice,
    Notices,
    Origin,
    Part,
    Result,
    Stamp,
    Thought,
    Unknown,
)
from autocode.jobs.operations.views.branches import Branches
from autocode.jobs.operations.views.counting import cost_of
from autocode.jobs.operations.views.sources import Record
from autocode.jobs.operations.views.wording import local_time

__all__ = ["blocks_of", "message_of"]

_WINDOW_BLOCKS: Final = 400
_WINDOW_BYTES: Final = 2 << 20
"""How far a call waits for its results: blocks, and bytes of their records."""

_RUN: Final = 500
"""Events in one run at most."""

_WRAPPED: Final = re.compile(r"<([a-zA-Z][\w.:-]{0,60})>")
_COMMAND: Final = re.compile(r"<command-name>([^<]{1,300})</command-name>")
_ARGUMENTS: Final = re.compile(r"<command-args>([^<]{0,20000})</command-args>")
_INTERRUPTED: Final = "[Request interrupted by user"
_INSTRUCTIONS: Final = "# AGENTS.md instructions"


class _Window:
    """Blocks that wait, in order, until everything before them is complete."""

    def __init__(self) -> None:
        self.blocks: deque[tuple[Block, int]] = deque()
        self.open: dict[str, Call] = {}
        self.size = 0
        self.events: list[Notice] = []
        self.spoken: Stamp | None = None

    def add(self, block: Block, size: int) -> None:
        if not isinstance(block, Call | Thought | Result):
            self.end_run()
        self.blocks.append((block, size))
        self.size += size
        if isinstance(block, Call):
            self.open[block.stamp.id] = block
        self._note_usage(block)

    def add_event(self, notice: Notice) -> None:
        """Keep an event until the stretch of work around it is over, so that it doesn't tear that apart."""
        self.events.append(notice)
        if len(self.events) >= _RUN:
            self.end_run()

    def end_run(self) -> None:
        if self.events:
            self.blocks.append((Notices(self.events), 0))
            self.events = []

    def answer(self, result: Result) -> bool:
        call = self.open.get(result.call or "")
        if call is None:
            return False
        call.results.append(result)
        return True

    def ready(self) -> Iterator[Block]:
        """Yield what need not wait any more."""
        while self.blocks:
            block, size = self.blocks[0]
            crowded = len(self.blocks) > _WINDOW_BLOCKS or self.size > _WINDOW_BYTES
            if not crowded and (self._waits(block) or len(self.blocks) == 1):
                return
            self.blocks.popleft()
            self.size -= size
            if isinstance(block, Call):
                self.open.pop(block.stamp.id, None)
            yield block

    def rest(self) -> Iterator[Block]:
        self.end_run()
        while self.blocks:
            yield self.blocks.popleft()[0]

    @staticmethod
    def _waits(block: Block) -> bool:
        return isinstance(block, Call) and not block.results

    def _note_usage(self, block: Block) -> None:
        """Leave the tokens on the last block of a message: a tool that streams counts up."""
        stamp = block.stamp
        if stamp.usage is None:
            return
        before, self.spoken = self.spoken, stamp
        if before is not None and before.message_id == stamp.message_id and before.message_id is not None:
            before.usage = None


def blocks_of(records: Iterable[Record], *, agent: bool = False) -> Iterator[Block]:
    """Yield the blocks of one session in order; memory is bounded by the window and the longest record.

    Args:
        records: the session's.
        agent: whether it is a subagent's, which has no side chains: all of it is one.
    """
    window = _Window()
    branches = Branches(agent=agent)
    for record in records:
        if record["type"] == "session":
            branches.begin(record)
            continue
        block = _block(record)
        if isinstance(block, Result) and window.answer(block):
            branches.note(record)
            continue
        branch = branches.step(record, block.stamp)
        if branch is not None:
            window.add(branch, 0)
        if isinstance(block, Notice):
            window.add_event(block)
        else:
            window.add(block, int(record.get("source", {}).get("length", 0)))
        yield from window.ready()
    yield from window.rest()


def message_of(record: Record) -> Message:
    """Return the message of a ``message`` record."""
    parts = [_part(part) for part in record.get("content", [])]
    role = str(record.get("role"))
    origin = _origin(record, role, parts)
    if origin == "command":
        parts = [Part("text", _command(parts[0].text))]
    return Message(_stamp(record), role, origin, parts)


def _block(record: Record) -> Block | Notice:
    if record["type"] == "event":
        return Notice(_stamp(record), str(record.get("name")), record.get("data"))
    make = _MAKERS.get(record["type"])
    return make(record, _stamp(record)) if make is not None else _unknown(record, _stamp(record))


def _thought(record: Record, stamp: Stamp) -> Block:
    return Thought(stamp, str(record.get("text") or ""), bool(record.get("encrypted")))


def _call(record: Record, stamp: Stamp) -> Block:
    return Call(stamp, str(record.get("name")), record.get("input"), record.get("call_id"))


def _result(record: Record, stamp: Stamp) -> Block:
    parts = [_part(part, told=False) for part in record.get("content", [])]
    return Result(stamp, parts, record.get("call"), record.get("is_error"))


def _compaction(record: Record, stamp: Stamp) -> Block:
    text, trigger = str(record.get("text") or ""), record.get("trigger")
    return Marker(stamp, "compaction", text, trigger, record.get("tokens_before"), record.get("held"))


def _unknown(record: Record, stamp: Stamp) -> Block:
    kind = record["type"]
    return Unknown(stamp, record.get("name") or (None if kind == "unknown" else kind), _data(record))


_MAKERS: Final[dict[str, Callable[[Record, Stamp], Block]]] = {
    "message": lambda record, _stamp: message_of(record),
    "thinking": _thought,
    "tool_call": _call,
    "tool_result": _result,
    "compaction": _compaction,
    "summary": lambda record, stamp: Marker(stamp, "summary", str(record.get("text") or "")),
}


def _data(record: Record) -> Any:
    if record["type"] == "unknown":
        return record.get("data")
    # a type of a later normal form: better shown whole than left out
    return {
        name: value for name, value in record.items() if name not in {"seq", "id", "at", "source", "parent"}
    }


def _stamp(record: Record) -> Stamp:
    usage = record.get("usage")
    return Stamp(
        id=str(record.get("id")),
        at=record.get("at"),
        sidechain=bool(record.get("sidechain")),
        model=record.get("model"),
        usage=usage if isinstance(usage, dict) else None,
        cost=cost_of(record),
        message_id=record.get("message_id"),
        local=None if record.get("at") else local_time(record.get("raw_at")),
    )


def _part(part: Any, *, told: bool = True) -> Part:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        text = str(part.get("text") or "")
        tag = _wrapper(text) if told else None
        return Part("text", text) if tag is None else Part("context", text, label=tag)
    if kind == "image":
        return Part("image", str(part.get("url") or ""), str(part.get("media_type") or ""), part.get("data"))
    return Part("other", label=str(kind), data=part)


def _wrapper(text: str) -> str | None:
    """Return the tag that encloses the whole *text*, which is how tools mark what they put in."""
    bare = text.strip()
    match = _WRAPPED.match(bare)
    if match is None:
        return None
    return match[1] if bare.endswith(f"</{match[1]}>") or match[1].startswith("command-") else None


def _origin(record: Record, role: str, parts: list[Part]) -> Origin:
    extra = record.get("extra") or {}
    texts = [part for part in parts if part.kind in {"text", "context"}]
    if extra.get("isCompactSummary"):
        return "summary"
    if role not in {"user", "assistant"} or (role == "user" and extra.get("isMeta")):
        return "context"
    if role == "user" and texts:
        if texts[0].label.startswith("command-") and _COMMAND.search(texts[0].text):
            return "command"
        if texts[0].text.startswith(_INTERRUPTED):
            return "interruption"
        if texts[0].text.startswith(_INSTRUCTIONS) or all(part.kind == "context" for part in parts):
            return "context"
    return "said"


def _command(text: str) -> str:
    name, arguments = _COMMAND.search(text), _ARGUMENTS.search(text)
    assert name is not None
    return f"{name[1].strip()} {arguments[1].strip() if arguments is not None else ''}".strip()
