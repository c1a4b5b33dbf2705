"""Blocks into Markdown, one after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import orjson

from autocode.jobs.operations.views.blocks import (
    Block,
    Branch,
    Call,
    Marker,
    Message,
    Notices,
    Part,
    Result,
    Stamp,
    Thought,
    Unknown,
)
from autocode.jobs.operations.views.branches import branch_text
from autocode.jobs.operations.views.diffs import Hunk
from autocode.jobs.operations.views.markdown.text import fenced, inline, prose
from autocode.jobs.operations.views.tools import Piece, json_text, show_call, text_of
from autocode.jobs.operations.views.wording import (
    clock_text,
    count_text,
    day_text,
    gap_text,
    plural,
    seconds_between,
    shortened,
    zone_text,
)

__all__ = ["Renderer"]

_WHO = {"user": "User", "assistant": "Assistant", "system": "System", "developer": "Developer"}
_SIGNS = {"same": " ", "removed": "-", "added": "+", "place": ""}
_PAUSE = 1800


@dataclass
class Renderer:
    """Renders the blocks of one session, in order.

    Args:
        cwd: the session's folder; paths below it are shown from there.
        agent: whether it is a subagent's transcript.
    """

    cwd: str | None
    agent: bool = False
    before: str | None = None
    speaker: str = ""
    model: str | None = None
    back: bool = False

    def render(self, block: Block) -> str:
        """Return *block* as Markdown that ends in an empty line."""
        if isinstance(block, Branch):
            # what follows has a heading of its own, and no gap to what is told before it
            self.speaker, self.before, self.back = "", None, not block.begins
            return f"---\n\n## {inline(branch_text(block))}\n\n" if block.begins else "---\n\n"
        pause = self._pause(block.stamp)
        if self.back and not isinstance(block, Notices):
            # events alone, such as the fields behind a conversation, don't go on with it
            self.back = False
            pause = f"## Back in the conversation\n\n{pause}"
        if isinstance(block, Message):
            text = self._message(block)
        elif isinstance(block, Thought):
            words = "\n".join(f"> {line}".rstrip() for line in prose(block.text).split("\n"))
            hidden = "only the provider can read it" if block.encrypted else "nothing recorded"
            text = _folded("Thought", words) if block.text.strip() else f"*Thought: {hidden}*"
        elif isinstance(block, Call):
            text = self._call(block)
        elif isinstance(block, Result):
            told = (
                "Its call isn't in this transcript." if block.call is None else "It came long after its call."
            )
            body = self._result(block)
            text = _folded(f"Result. {told}", body) if body else f"*An empty result. {told}*"
        elif isinstance(block, Marker):
            text = _marker(block)
        elif isinstance(block, Notices):
            text = _notices(block)
        else:
            text = self._unknown(block)
        if not isinstance(block, Notices) and block.stamp.time is not None:
            self.before = block.stamp.time
        return f"{pause}{text}\n\n"

    def _pause(self, stamp: Stamp) -> str:
        seconds = seconds_between(self.before, stamp.time)
        if seconds is None or seconds < _PAUSE:
            return ""
        zone = zone_text(stamp.time or "")
        return f"*{gap_text(seconds)} later, {day_text(stamp.time)}, {clock_text(stamp.time)}{zone}*\n\n"

    def _message(self, block: Message) -> str:
        if block.origin == "interruption":
            return f"*{inline(block.parts[0].text.strip('[] '))}*"
        told = "\n\n".join(_part(part) for part in block.parts)
        if block.origin == "context":
            tags = [part.label for part in block.parts if part.kind == "context"]
            return _folded(
                f"Context from the tool{': ' + tags[0] if tags else ''}", fenced(text_of(block.parts))
            )
        if block.origin == "summary":
            return _folded("Summary of what came before", told)
        who = (
            "Parent agent"
            if self.agent and block.role == "user"
            else _WHO.get(block.role, inline(block.role))
        )
        time = block.stamp.time
        notes = [clock_text(time) + zone_text(time, " local time")] if time else []
        if block.stamp.model and block.stamp.model != self.model:
            self.model = block.stamp.model
            notes.append(inline(block.stamp.model))
        again = self.speaker == block.role == "assistant"
        self.speaker = block.role
        if block.origin == "command":
            told = fenced(block.parts[0].text)
        heading = "" if again else f"## {who}{' · ' + ' · '.join(notes) if notes else ''}\n\n"
        return f"{heading}{told or '*nothing was said*'}"

    def _call(self, block: Call) -> str:
        shown = show_call(block, self.cwd)
        failed = any(result.is_error for result in block.results)
        mark = " · **error**" if failed else "" if block.results else " · no result"
        body = [_piece(piece) for piece in shown.pieces]
        for result in block.results:
            label = "Result, an error" if result.is_error else "Result"
            told = self._result(result)
            body += [f"{label}:", told] if told else [f"{label}: *empty*"]
        gist = f": {shown.gist}" if shown.gist else ""
        return _folded(f"{block.name}{gist}", "\n\n".join(body), mark)

    def _result(self, result: Result) -> str:
        text = text_of(result.parts)
        return fenced(text) if text.strip() else ""

    def _unknown(self, block: Unknown) -> str:
        return _folded(f"{block.name or 'Record'}, not understood", fenced(json_text(block.data), "json"))


def _part(part: Part) -> str:
    if part.kind == "text":
        return prose(part.text)
    if part.kind == "context":
        return _folded(part.label, fenced(part.text))
    if part.kind == "image":
        size = f", {plural(len(part.data), 'character')} of base64" if isinstance(part.data, str) else ""
        what = inline(shortened(part.text or part.label or "no type", 200))
        return f"*Image: {what}{size}; it is in the bundle.*"
    return fenced(json_text(part.data), "json")


def _piece(piece: Piece) -> str:
    label = f"{inline(piece.label)}:\n\n" if piece.label else ""
    if piece.kind == "diff":
        return label + fenced(_diff(piece.hunks), "diff")
    return label + fenced(piece.text, piece.language)


def _diff(hunks: list[Hunk]) -> str:
    return "\n".join(f"{_SIGNS[kind]}{line}" for kind, lines in hunks for line in lines)


def _marker(block: Marker) -> str:
    words = "Summary"
    if block.kind == "compaction":
        words = f"Context compacted{f' ({inline(block.trigger)})' if block.trigger else ''}"
        words += f" at {count_text(block.tokens_before)} tokens" if block.tokens_before else ""
        words += f", with a copy of {inline(str(block.held.get('items')))} items" if block.held else ""
    text = block.text.strip()
    if len(text) > 300 or "\n" in text:
        return f"---\n\n**{words}**\n\n{prose(text)}\n\n---"
    return f"---\n\n**{words}**{': ' + inline(text) if text else ''}\n\n---"


def _notices(block: Notices) -> str:
    names = Counter(notice.name for notice in block.notices)
    told = ", ".join(name if count == 1 else f"{name} x{count}" for name, count in names.most_common(6))
    lines = [
        f"{f'{notice.stamp.time[11:19]} ' if notice.stamp.time else ''}{notice.name} "
        f"{shortened(orjson.dumps(notice.data).decode(), 160)}"
        for notice in block.notices
    ]
    return _folded(f"{plural(len(lines), 'event')}: {told}", fenced("\n".join(lines)))


def _folded(summary: str, body: str, mark: str = "") -> str:
    """Return *body* under a line that opens it where HTML works, and that stands before it where not."""
    # the only HTML of the view; in it Markdown's marks mean nothing, and & and < must not
    words = shortened(summary, 200).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    marked = mark.replace("**error**", "<b>error</b>")
    if not body:
        return f"*{inline(shortened(summary, 200))}*{mark}"
    return f"<details><summary>{words}{marked}</summary>\n\n{body}\n\n</details>"
