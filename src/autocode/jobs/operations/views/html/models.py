"""Blocks as the templates want them: every text either escaped here or left for the template to escape."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

import orjson
from markupsafe import Markup

from autocode.jobs.operations.views.blocks import (
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
from autocode.jobs.operations.views.branches import branch_name
from autocode.jobs.operations.views.html.highlight import Highlighter
from autocode.jobs.operations.views.html.pieces import (
    View,
    folded_diff,
    folded_text,
    image,
    line_count,
    note,
    safe_html,
)
from autocode.jobs.operations.views.html.safe import MarkdownRenderer, escaped
from autocode.jobs.operations.views.tools import Piece, json_text, show_call, text_of
from autocode.jobs.operations.views.wording import (
    clock_text,
    count_text,
    day_text,
    first_line,
    gap_text,
    readable,
    seconds_between,
    shortened,
    tokens_text,
    zone_text,
)

__all__ = ["Models"]

_EVENT: Final = 240
_NEAR: Final = "<1 s"
_PAUSE: Final = 1800
"""Seconds after which a gap gets a line of its own."""

_WHO: Final = {"user": "User", "assistant": "Assistant", "system": "System", "developer": "Developer"}


@dataclass
class Models:
    """Makes the models of one session's blocks, in order.

    Args:
        cwd: the session's folder; paths below it are shown from there.
        prefix: of every id on the page, so that a subagent's ids differ from its parent's.
        agent: whether it is a subagent's transcript, whose prompts come from its parent.
        highlighter: the page's.
    """

    cwd: str | None
    prefix: str
    agent: bool
    highlighter: Highlighter
    before: str | None = None
    model: str | None = None
    speaker: str = ""

    def __post_init__(self) -> None:
        self.markdown = MarkdownRenderer(self.highlighter)

    def pause(self, stamp: Stamp) -> View | None:
        """Return the line that tells a long gap before *stamp*, or a new day."""
        seconds = seconds_between(self.before, stamp.time)
        if seconds is None or seconds < _PAUSE:
            return None
        return {"cls": "", "id": "", "body": None, "text": f"{gap_text(seconds)} later, {_full(stamp.time)}"}

    def branch(self, block: Branch) -> View:
        """Return the model of the line that opens a branch."""
        self.before, self.speaker = None, ""
        return {
            "id": f"{self._id(block.stamp.id)}.branch",
            "name": branch_name(block),
            "href": "" if block.parent is None else f"#{self._id(block.parent)}",
            "words": block.words or "a record",
        }

    def message(self, block: Message) -> View:
        """Return the model of a message that was said."""
        who = "Parent agent" if self.agent and block.role == "user" else _WHO.get(block.role, block.role)
        kind = {"user": "you", "assistant": "bot"}.get(block.role, "aside")
        model = block.stamp.model if block.stamp.model != self.model else None
        self.model = block.stamp.model or self.model
        when = self._when(block.stamp)
        if when is not None and kind == "you" and not when["text"].startswith(("+", "<")):
            # the time of day stands beside the name already
            when = None
        if block.origin == "command":
            parts = [safe_html(Markup("<p>{}</p>").format(escaped(block.parts[0].text)))]
        else:
            told = [part for part in block.parts if part.kind != "text" or part.text.strip()]
            parts = [self._part(part, breaks=block.role != "assistant") for part in told]
        again = " again" if self.speaker == block.role == "assistant" else ""
        self.speaker = block.role
        return {
            "id": self._id(block.stamp.id),
            "cls": f"{kind} command" if block.origin == "command" else f"{kind}{again}",
            "who": who,
            "clock": _clock(block.stamp.time) if kind == "you" else "",
            "model": model,
            "parts": parts or [note("nothing was said")],
            "when": when,
        }

    def aside(self, block: Message) -> View:
        """Return the model of what the tool put in: one folded line."""
        text = text_of(block.parts)
        tags = [part.label for part in block.parts if part.kind == "context"]
        name = {"summary": "Summary of what came before", "context": tags[0] if tags else ""}.get(
            block.origin, ""
        )
        shown = self._step(block.stamp, name or f"{_WHO.get(block.role, block.role)} context")
        pieces = (
            [self._part(part) for part in block.parts] if block.origin == "summary" else [folded_text(text)]
        )
        return shown | {
            "cls": "context",
            "gist": first_line(_untagged(text), 160),
            "pieces": pieces,
            "count": line_count(text),
        }

    def thought(self, block: Thought) -> View:
        """Return the model of a thought."""
        if not block.text.strip():
            gist = "only the provider can read it" if block.encrypted else "nothing recorded"
            return self._step(block.stamp, "Thought") | {
                "cls": "thought",
                "gist": gist,
                "pieces": [note(gist)],
            }
        body = safe_html(self.markdown.render(block.text))
        return self._step(block.stamp, "Thought") | {
            "cls": "thought",
            "gist": first_line(block.text, 160),
            "pieces": [body],
        }

    def call(self, block: Call) -> View:
        """Return the model of a tool call with its results."""
        shown = show_call(block, self.cwd)
        view = self._step(block.stamp, readable(block.name)) | {
            "cls": "call",
            "gist": shown.gist,
            "pieces": [self._piece(piece) for piece in shown.pieces],
            "what": "this call",
        }
        view["results"] = [self._result(result, "Result") for result in block.results]
        if not block.results:
            view["bad"] = "no result"
        told = "\n".join(text_of(result.parts) for result in block.results)
        return self._failed(view, block.results, told)

    def result(self, block: Result) -> View:
        """Return the model of a result that stands on its own."""
        told = text_of(block.parts)
        view = self._step(block.stamp, "Result") | {
            "cls": "call",
            "gist": first_line(told, 160),
            "results": [self._result(block, "Result") | {"id": f"{self._id(block.stamp.id)}.r"}],
        }
        if block.call is None:
            view["pieces"] = [note("Its call isn't in this transcript.")]
        else:
            view["pieces"] = [note(f"It came long after its call, {block.call}.")]
        return self._failed(view, [block], told)

    def notices(self, block: Notices) -> View:
        """Return the model of a run of events."""
        names = Counter(readable(notice.name) for notice in block.notices)
        told = [name if count == 1 else f"{name} ×{count}" for name, count in names.most_common(6)]  # noqa: RUF001 - a count
        lines = []
        for notice in block.notices:
            data = orjson.dumps(notice.data).decode()
            cut = (
                data if len(data) <= _EVENT else f"{data[:_EVENT]}… ({len(data) - _EVENT:,} characters more)"
            )
            clock = f"{notice.stamp.time[11:19]} " if notice.stamp.time else ""
            lines.append({"id": self._id(notice.stamp.id), "text": escaped(f"{clock}{notice.name} {cut}")})
        run = f"{self._id(block.stamp.id)}.run"
        return {"run": run, "gist": shortened(", ".join(told), 160), "lines": lines}

    def rule(self, block: Marker) -> View:
        """Return the model of a compaction or a summary."""
        self._when(block.stamp)
        words = ["Summary"]
        if block.kind == "compaction":
            words = ["Context compacted"]
            words += [f"({block.trigger})"] if block.trigger else []
            words += [f"at {count_text(block.tokens_before)} tokens"] if block.tokens_before else []
            if block.held:
                items = block.held.get("items")
                words.append(f"with a copy of {items} items that isn't told again")
        text = block.text.strip()
        long = len(text) > 300 or "\n" in text
        words += [f"· {text}"] if text and not long else []
        body = safe_html(self.markdown.render(text)) if long else None
        return {
            "cls": "strong",
            "id": self._id(block.stamp.id),
            "text": readable(" ".join(words)),
            "body": body,
        }

    def interruption(self, block: Message) -> View:
        """Return the model of the note that the user interrupted."""
        self._when(block.stamp)
        text = first_line(block.parts[0].text.strip().strip("[]"), 120)
        return {"cls": "", "id": self._id(block.stamp.id), "text": text, "body": None}

    def unknown(self, block: Unknown) -> View:
        """Return the model of a record that nobody understood."""
        text = json_text(block.data)
        return self._step(block.stamp, readable(block.name or "record")) | {
            "cls": "strange",
            "gist": shortened(orjson.dumps(block.data).decode(), 160),
            "pieces": [folded_text(text)],
            "count": line_count(text),
        }

    def _id(self, record: str) -> str:
        return f"{self.prefix}{record}"

    def _step(self, stamp: Stamp, name: str) -> View:
        return {
            "id": self._id(stamp.id),
            "cls": "",
            "name": name,
            "bad": "",
            "gist": "",
            "count": "",
            "pieces": [],
            "results": [],
            "why": "",
            "what": "this record",
            "when": self._when(stamp),
        }

    def _failed(self, view: View, results: list[Result], told: str) -> View:
        view["count"] = line_count(told) if told.strip() else ""
        if any(result.is_error for result in results):
            view["bad"] = "error"
            view["cls"] += " failed"
            view["why"] = escaped(first_line(_untagged(told), 200))
        return view

    def _when(self, stamp: Stamp) -> View | None:
        seconds = seconds_between(self.before, stamp.time)
        spent = tokens_text({"output": (stamp.usage or {}).get("output")})
        spent += f" ${stamp.cost:.4f}" if stamp.cost is not None else ""
        text = ""
        if stamp.time is not None:
            near = seconds is not None and seconds < _PAUSE
            text = _since(seconds or 0.0) if near else clock_text(stamp.time)
            self.before = stamp.time
        if not text and not spent:
            return None
        title = ", ".join(each for each in (_full(stamp.time, exact=True), spent.strip()) if each)
        return {"at": stamp.time, "title": title, "text": text, "near": text == _NEAR, "spent": spent.strip()}

    def _result(self, result: Result, label: str) -> View:
        seconds = seconds_between(self.before, result.stamp.time)
        if result.stamp.time is not None:
            self.before = result.stamp.time
        took = f", after {gap_text(seconds)}" if seconds is not None and seconds >= 1 else ""
        words = f"{label}, an error{took}" if result.is_error else f"{label}{took}"
        parts = [self._part(part, rendered=False) for part in result.parts]
        return {"id": self._id(result.stamp.id), "label": words, "parts": parts or [note("empty")]}

    def _part(self, part: Part, *, rendered: bool = True, breaks: bool = False) -> View:
        if part.kind == "text":
            if rendered:
                return safe_html(self.markdown.render(part.text, breaks=breaks))
            return folded_text(part.text) if part.text.strip() else note("empty")
        if part.kind == "context":
            return {"kind": "context", "label": readable(part.label), "long": folded_text(part.text)["long"]}
        if part.kind == "image":
            return image(part)
        return folded_text(json_text(part.data))

    def _piece(self, piece: Piece) -> View:
        if piece.kind == "diff":
            return folded_diff(piece.hunks)
        shown = folded_text(piece.text)
        if piece.kind == "code" and not shown["long"]["rest"]:
            shown["long"]["head"] = self.highlighter.code(piece.text, piece.language)
        return shown | {"label": readable(piece.label)}


def _since(seconds: float) -> str:
    # milliseconds in a margin are noise; the title has them
    return f"+{gap_text(seconds)}" if seconds >= 1 else _NEAR


def _full(at: str | None, *, exact: bool = False) -> str:
    if at is None:
        return ""
    shown = f"{at[:10]} {at[11:23].rstrip('Z')}" if exact else f"{day_text(at)}, {clock_text(at)}"
    return shown + zone_text(at)


def _clock(time: str | None) -> str:
    return "" if time is None else clock_text(time) + zone_text(time, " local time")


def _untagged(text: str) -> str:
    return re.sub(r"^\s*(?:<[\w.:/-]{1,60}>\s*)+", "", text[:2000])
