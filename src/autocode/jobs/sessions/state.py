"""What a reader knows at the end of a part, so that the next part can be read as if it had read them all.

A state is canonical JSON: the report so far, and what the records before may mean for those to come. It holds
no more text of the session than the next records need; ids that are only compared are held as digests.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autocode.jobs.canonical import canonical_json
from autocode.jobs.errors import UsageError
from autocode.jobs.sessions.base import Report, Span
from autocode.jobs.sessions.identity import Calls, Identities, SavedIds
from autocode.jobs.sessions.parts import PART
from autocode.jobs.sessions.usage import Totals

__all__ = ["Knowledge", "Saved", "dump", "load"]

_FORMAT: Final = "autocode-reading/1"
_COUNTERS: Final = ("records", "lost")


@dataclass(frozen=True, slots=True)
class Saved:
    """An opened state.

    Args:
        report: the report so far.
        texts: what is text of the session, by name.
        facts: all else.
    """

    report: Report
    texts: dict[str, Any]
    facts: dict[str, Any]


class Knowledge:
    """What every reader remembers of the records before: their ids, tool calls and token counts.

    Args:
        report: the report that they fill.
        saved: the state to go on from.
    """

    def __init__(self, report: Report, saved: Saved | None = None) -> None:
        ids = None
        if saved is not None:
            seen, trees, awaited = (saved.facts[name] for name in ("seen", "trees", "awaited"))
            ids = SavedIds(_unpacked("Q", seen), _unpacked("I", trees), _unpacked("Q", awaited))
        self.identities = Identities(report, saved=ids)
        self.calls = Calls()
        self.totals = Totals(report.tokens)
        if saved is not None:
            pairs = zip(saved.facts["calls"], saved.texts["calls"], strict=True)
            self.calls.restore((base64.b64decode(key), record) for key, record in pairs)
            messages, counts = saved.facts["messages"], saved.facts["counts"]
            self.totals.restore(base64.b64decode(messages), _unpacked("Q", counts))

    def texts(self) -> dict[str, Any]:
        """Return what is text of the session."""
        return {"calls": [record for _, record in self.calls.dump()]}

    def facts(self) -> dict[str, Any]:
        """Return all else."""
        ids = self.identities.dump()
        messages, counts = self.totals.dump()
        return {
            "seen": _packed(ids.seen),
            "trees": _packed(ids.trees),
            "awaited": _packed(ids.awaited),
            "calls": [_written(key) for key, _ in self.calls.dump()],
            "messages": _written(messages),
            "counts": _packed(counts),
        }


def dump(
    report: Report,
    knowledge: Knowledge,
    texts: Mapping[str, Any],
    facts: Mapping[str, Any],
    shown: Callable[[Any], Any],
) -> bytes:
    """Return the state of a reading that is at the end of its part.

    Args:
        report: its report.
        knowledge: what it remembers.
        texts: what else it holds of the session's text.
        facts: what else it holds.
        shown: applied to the session's text before it is written; returns a value of the same form.

    Raises:
        UsageError: records are left to read, the part ended within a line, or it was so short that the
            session's own record may not be final.
    """
    if not report.complete:
        raise UsageError("This reading isn't at its end.", hint="Take all records first.")
    if report.open_line:
        raise UsageError(
            f"The part ends within line {report.lines}, so no other can follow.",
            hint="Cut behind a newline.",
        )
    if not (report.head_known or report.bytes >= PART):
        raise UsageError(
            f"The session isn't known after {report.bytes} bytes.",
            hint="The first part must hold the line that names the session and its folder.",
        )
    return canonical_json(
        {
            "format": _FORMAT,
            "reader": report.reader,
            "revision": report.revision,
            "texts": shown({**knowledge.texts(), **texts, "report": report.to_json()}),
            "facts": {**knowledge.facts(), **facts},
        }
    )


def load(data: bytes, reader: str, revision: int) -> Saved:
    """Return an opened state.

    Raises:
        UsageError: it's none, or one of another reader or revision.
    """
    try:
        state = json.loads(data)
        wanted = (_FORMAT, reader, revision)
        given = (state["format"], state["reader"], state["revision"])
        if given == wanted:
            return Saved(_report(state["texts"].pop("report")), state["texts"], state["facts"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            "This is no state of a reader.", hint="Read the source from its beginning."
        ) from error
    raise UsageError(
        f"A state of {given[1]} revision {given[2]} was given to {reader} revision {revision}.",
        hint="Read the source from its beginning.",
    )


def _report(value: dict[str, Any]) -> Report:
    report = Report(tool=value["tool"], reader=value["reader"], revision=value["revision"])
    for name in ("session_id", "agent_id", "parent_session_id", "title", "lines", "bytes", "padding"):
        setattr(report, name, value[name])
    for name in ("damaged_total", "damaged_bytes", "first_at", "last_at", "models", "tokens"):
        setattr(report, name, value[name])
    for name in _COUNTERS:
        getattr(report, name).update(value[name])
    report.damaged = [Span(**span) for span in value["damaged"]]
    report.head_known = True
    return report


def _written(key: bytes) -> str:
    return base64.b64encode(key).decode("ascii")


def _packed(numbers: array[int]) -> str:
    swapped = numbers[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return _written(swapped.tobytes())


def _unpacked(code: str, text: str) -> array[int]:
    numbers: array[int] = array(code)
    try:
        numbers.frombytes(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise UsageError(
            "This is no state of a reader.", hint="Read the source from its beginning."
        ) from error
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
