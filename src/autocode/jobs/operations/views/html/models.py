"""Blocks as the templates want them: every text either escaped here or left for the template to escape."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import orjson
from markupsafe import Markup

from autocode.jobs.operations.views.blocks import (
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
from autocode.jobs.operations.views.diffs import Hunk
from autocode.jobs.operations.views.html.highlight import Highlighter
from autocode.jobs.operations.views.html.safe import MarkdownRenderer, escaped
from autocode.jobs.operations.views.tools import Piece, json_text, show_call, text_of
from autocode.jobs.operations.views.wording import (
    clock_text,
    count_text,
    day_text,
    first_line,
    gap_text,
    plural,
    readable,
    seconds_between,
    shortened,
    tokens_text,
)

__all__ = ["Models", "View"]

View = dict[str, Any]
"""What a template is given for one block."""

_HEAD_LINES: Final = 24
_HEAD_CHARACTERS: Final = 4000
_HEAD_DIFF: Final = 60
_EVENT: Final = 240
_NEAR: Final = "<1 s"
_PAUSE: Final = 1800
"""Seconds after which a gap gets a line of its own."""

_RASTER: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+=*\s*")
_WEB: Final = re.compile(r"https?://[^\s<>\"']+", re.IGNORECASE)
_IMAGE_LIMIT: Final = 12_000_000
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
        seconds = seconds_between(self.before, stamp.at)
        if seconds is None or seconds < _PAUSE:
            return None
        return {"cls": "", "id": "", "body": None, "text": f"{gap_text(seconds)} later, {_full(stamp.at)}"}

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
            parts = [_html(Markup("<p>{}</p>").format(escaped(block.parts[0].text)))]
        else:
            parts = [self._part(part) for part in block.parts if part.kind != "text" or part.text.strip()]
        again = " again" if self.speaker == block.role == "assistant" else ""
        self.speaker = block.role
        return {
            "id": self._id(block.stamp.id),
            "cls": f"{kind} command" if block.origin == "command" else f"{kind}{again}",
            "who": who,
            "clock": f"{clock_text(block.stamp.at)} UTC" if kind == "you" and block.stamp.at else "",
            "model": model,
            "side": block.stamp.sidechain and not self.agent,
            "parts": parts or [_note("nothing was said")],
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
        pieces = [self._part(part) for part in block.parts] if block.origin == "summary" else [_long(text)]
        return shown | {
            "cls": "context",
            "gist": first_line(_untagged(text), 160),
            "pieces": pieces,
            "count": _lines(text),
        }

    def thought(self, block: Thought) -> View:
        """Return the model of a thought."""
        if not block.text.strip():
            gist = "only the provider can read it" if block.encrypted else "nothing recorded"
            return self._step(block.stamp, "Thought") | {
                "cls": "thought",
                "gist": gist,
                "pieces": [_note(gist)],
            }
        body = _html(self.markdown.render(block.text))
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
            view["pieces"] = [_note("Its call isn't in this transcript.")]
        else:
            view["pieces"] = [_note(f"It came long after its call, {block.call}.")]
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
            clock = notice.stamp.at[11:19] if notice.stamp.at else "--:--:--"
            lines.append({"id": self._id(notice.stamp.id), "text": escaped(f"{clock} {notice.name} {cut}")})
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
        body = _html(self.markdown.render(text)) if long else None
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
            "pieces": [_long(text)],
            "count": _lines(text),
        }

    def _id(self, record: str) -> str:
        return f"{self.prefix}{record}"

    def _step(self, stamp: Stamp, name: str) -> View:
        return {
            "id": self._id(stamp.id),
            "cls": "",
            "name": f"{name} (side chain)" if stamp.sidechain and not self.agent else name,
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
        view["count"] = _lines(told) if told.strip() else ""
        if any(result.is_error for result in results):
            view["bad"] = "error"
            view["cls"] += " failed"
            view["why"] = escaped(first_line(_untagged(told), 200))
        return view

    def _when(self, stamp: Stamp) -> View | None:
        seconds = seconds_between(self.before, stamp.at)
        spent = tokens_text({"output": (stamp.usage or {}).get("output")})
        spent += f" ${stamp.cost:.4f}" if stamp.cost is not None else ""
        text = ""
        if stamp.at is not None:
            near = seconds is not None and seconds < _PAUSE
            text = _since(seconds or 0.0) if near else clock_text(stamp.at)
            self.before = stamp.at
        if not text and not spent:
            return None
        title = ", ".join(each for each in (_full(stamp.at, exact=True), spent.strip()) if each)
        return {"at": stamp.at, "title": title, "text": text, "near": text == _NEAR, "spent": spent.strip()}

    def _result(self, result: Result, label: str) -> View:
        seconds = seconds_between(self.before, result.stamp.at)
        if result.stamp.at is not None:
            self.before = result.stamp.at
        took = f", after {gap_text(seconds)}" if seconds is not None and seconds >= 1 else ""
        words = f"{label}, an error{took}" if result.is_error else f"{label}{took}"
        parts = [self._part(part, rendered=False) for part in result.parts]
        return {"id": self._id(result.stamp.id), "label": words, "parts": parts or [_note("empty")]}

    def _part(self, part: Part, *, rendered: bool = True) -> View:
        if part.kind == "text":
            if rendered:
                return _html(self.markdown.render(part.text))
            return _long(part.text) if part.text.strip() else _note("empty")
        if part.kind == "context":
            return {"kind": "context", "label": readable(part.label), "long": _long(part.text)["long"]}
        if part.kind == "image":
            return _image(part)
        return _long(json_text(part.data))

    def _piece(self, piece: Piece) -> View:
        if piece.kind == "diff":
            return _folded_diff(piece.hunks)
        shown = _long(piece.text)
        if piece.kind == "code" and not shown["long"]["rest"]:
            shown["long"]["head"] = self.highlighter.code(piece.text, piece.language)
        return shown | {"label": readable(piece.label)}


def _folded_diff(hunks: list[Hunk]) -> View:
    """Part a long diff into what is seen at once and what is folded."""
    head: list[Hunk] = []
    rest: list[Hunk] = []
    lines = 0
    total = sum(len(each) for _, each in hunks)
    limit = total if total <= _HEAD_DIFF + 8 else _HEAD_DIFF
    for kind, each in hunks:
        left = max(limit - lines, 0)
        head += [(kind, each[:left])] if left else []
        rest += [(kind, each[left:])] if len(each) > left else []
        lines += len(each)
    return {"kind": "diff", "label": "", "head": _diff(head), "rest": _diff(rest), "lines": total}


def _diff(hunks: list[Hunk]) -> Markup:
    tags = {"same": "span", "removed": "del", "added": "ins", "place": "span"}
    signs = {"same": " ", "removed": "-", "added": "+", "place": ""}
    made = []
    for kind, lines in hunks:
        text = escaped("\n".join(f"{signs[kind]}{line}" for line in lines))
        css = Markup(' class="place"') if kind == "place" else ""
        made.append(Markup("<{0}{1}>{2}</{0}>").format(tags[kind], css, text))
    return Markup("").join(made)


def _long(text: str) -> View:
    """Part *text* into what is seen at once and what is folded."""
    text = readable(text).rstrip("\n")
    lines = text.count("\n") + 1
    if lines <= _HEAD_LINES + 8 and len(text) <= _HEAD_CHARACTERS:
        return {"kind": "long", "label": "", "long": {"head": escaped(text), "rest": "", "lines": lines}}
    cut = min(_after_line(text, _HEAD_LINES), _HEAD_CHARACTERS)
    # at the end of a line where one is near
    cut = max(text.rfind("\n", cut // 2, cut), 0) or cut
    head, rest = text[:cut], text[cut:].removeprefix("\n")
    return {
        "kind": "long",
        "label": "",
        "long": {"head": escaped(head), "rest": escaped(rest), "lines": lines},
    }


def _after_line(text: str, count: int) -> int:
    at = -1
    for _ in range(count):
        at = text.find("\n", at + 1)
        if at < 0:
            return len(text)
    return at + 1


def _image(part: Part) -> View:
    data = part.data
    if isinstance(data, str) and data and part.label in _RASTER and len(data) <= _IMAGE_LIMIT:
        if _BASE64.fullmatch(data):
            return {
                "kind": "image",
                "label": "",
                "src": f"data:{part.label};base64,{data}",
                "alt": "Image in the transcript",
            }
        return _note(f"An image ({part.label}) whose data isn't base64.")
    if part.text and _WEB.fullmatch(part.text):
        return {
            "kind": "link",
            "label": "",
            "src": part.text,
            "alt": f"Image, not loaded: {shortened(part.text, 120)}",
        }
    size = f", {plural(len(data), 'character')} of data" if isinstance(data, str) else ""
    return _note(f"An image that isn't shown ({shortened(part.label or part.text or 'no type', 80)}{size}).")


def _html(html: Markup) -> View:
    return {"kind": "html", "label": "", "html": html}


def _note(text: str) -> View:
    return {"kind": "note", "label": "", "alt": text}


def _lines(text: str) -> str:
    return plural(text.rstrip("\n").count("\n") + 1, "line")


def _untagged(text: str) -> str:
    return re.sub(r"^\s*(?:<[\w.:/-]{1,60}>\s*)+", "", text[:2000])


def _since(seconds: float) -> str:
    # milliseconds in a margin are noise; the title has them
    return f"+{gap_text(seconds)}" if seconds >= 1 else _NEAR


def _full(at: str | None, *, exact: bool = False) -> str:
    if at is None:
        return ""
    return f"{at[:10]} {at[11:23]} UTC" if exact else f"{day_text(at)}, {clock_text(at)} UTC"
