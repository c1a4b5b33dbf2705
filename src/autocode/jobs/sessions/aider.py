"""Reader for aider: ``.aider.chat.history.md``, to which every session in a repository is appended.

Written by ``InputOutput.append_chat_history`` (aider/io.py); seen in versions 0.47 and 0.48. There are no ids
and no times but the local one at which a session began. What the tool prints about itself is an event; it
names the model and the tokens of each answer, rounded as it prints them
(aider/coders/base_coder.py, ``calculate_and_show_tokens_and_cost``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from autocode.jobs.sessions.aider_blocks import Block, Blocks
from autocode.jobs.sessions.base import Found, Reading, Record, Report, label
from autocode.jobs.sessions.mapping import Mapper, begin
from autocode.jobs.sessions.parts import PART
from autocode.jobs.sessions.state import Saved
from autocode.jobs.sessions.usage import count_of

__all__ = ["AiderReader"]

_NOT_JSON: Final = re.compile(rb"[\s\0]*+(?:\xef\xbb\xbf)?[\s\0]*+[^\s\0\[{]")
_BEGINNING: Final = re.compile(
    rb"^# aider chat started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[ \r]*+"
    rb"\n[ \r]*+(?:\Z|\n[ \r\n]*+(?:\Z|> |#{1,4} ))",
    re.MULTILINE,
)
_VERSION: Final = re.compile(r"^Aider v(\S{1,64})", re.MULTILINE)
_MODEL: Final = re.compile(r"^(?:Main m|M)odels?: (\S{1,200}) (?:with|using) ", re.MULTILINE)
_COUNT: Final = r"([0-9][0-9.,]{0,15}[kM]?)"
_TOKENS: Final = re.compile(
    rf"^Tokens: {_COUNT} sent(?:, {_COUNT} cache write)?(?:, {_COUNT} cache hit)?, {_COUNT} received\."
    r"(?:\s{1,3}Cost: \$([0-9]{1,9}\.[0-9]{1,9}) (?:message|request|send), \$[0-9.]{1,20} session\.)?",
    re.MULTILINE,
)
_SCALE: Final = {"k": 1_000, "M": 1_000_000}


class AiderReader:
    """Reads chat histories of aider, with all their sessions.

    Args:
        part: bytes after which a part of a source ends with the line; only tests want another.
    """

    name: Final = "aider"
    revision: Final = 1
    in_parts: Final = True

    def __init__(self, part: int = PART) -> None:
        self._part = part

    def matches(self, head: bytes) -> bool:
        """Say whether a line in *head* begins a session, and nothing but one follows."""
        return bool(_NOT_JSON.match(head)) and _BEGINNING.search(head) is not None

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """See :meth:`autocode.jobs.sessions.base.Reader.read`."""
        return begin(self, lambda report, saved: _History(report, saved, self._part), stream, state)


class _History(Mapper):
    def __init__(self, report: Report, saved: Saved | None, part: int) -> None:
        super().__init__(report, saved)
        self._blocks = Blocks(report, part, saved.facts["blocks"] if saved else None)
        self._model: str | None = saved.texts["model"] if saved else None
        # a session waits for what aider prints first: its version
        self._waiting: Block | None = None

    def texts(self) -> dict[str, Any]:
        return {"model": self._model}

    def facts(self) -> dict[str, Any]:
        return {"blocks": self._blocks.facts()}

    def records(self, stream: BinaryIO) -> Iterator[Record]:
        self._report.head_known = True
        for block in self._blocks.read(stream):
            if self._waiting is not None or (not self._report.sessions and block.kind != "started"):
                yield self._session(block)
            if block.kind == "started":
                self._waiting = block
                self._model = None
            elif block.kind != "cut":
                yield self._record(block)
        if self._waiting is not None or not self._report.sessions:
            yield self._session(None)

    def _session(self, following: Block | None) -> Record:
        """Return the record of the session that waits, or of one whose beginning isn't in the source."""
        header, self._waiting = self._waiting, None
        found = Found(None, header.offset, header.length, header.position) if header else None
        record = self.session(None, found)
        record |= dict.fromkeys(
            ("session_id", "agent_id", "parent_session_id", "cwd", "git_branch", "tool_version")
        )
        record["model_provider"] = None
        if header is not None:
            record["raw_at"] = header.text.decode("ascii")
            if following is not None and following.kind == "printed":
                match = _VERSION.search(following.text.decode("utf-8", "replace"))
                record["tool_version"] = match[1] if match else None
        return record

    def _record(self, block: Block) -> Record:
        kind = {"printed": "event", "text": "unknown"}.get(block.kind, "message")
        found = Found(None, block.offset, block.length, block.position)
        record = self._recorder.make(kind, block.position, None, None, found)
        text = self._decoded(block.text)
        if kind == "message":
            role = "user" if block.kind == "typed" else "assistant"
            record |= {"role": role, "content": [{"type": "text", "text": text}]}
            if role == "assistant" and self._model is not None:
                record["model"] = self._model
        elif kind == "event":
            record |= {"name": "output", "data": {"text": text}}
            self._saw_output(text, record)
        else:
            self._report.lose("unknown-type:text")
            record |= {"name": "text", "data": {"text": text}}
        if block.continues:
            (record["data"] if kind == "unknown" else record.setdefault("extra", {}))["continues"] = True
        return record

    def _decoded(self, data: bytes) -> str:
        text = data.decode("utf-8", "replace")
        self._report.lose("invalid-utf8", text.count("\ufffd") - data.count(b"\xef\xbf\xbd"))
        return text

    def _saw_output(self, text: str, record: Record) -> None:
        for match in _MODEL.finditer(text):
            self._model = match[1]
            self._report.saw_model(label(match[1]))
        for match in _TOKENS.finditer(text):
            sent, written, hit, received = (_count(number) for number in match.groups()[:4])
            self._report.lose(
                "rounded-count", any((number or "")[-1:] in _SCALE for number in match.groups()[:4])
            )
            usage = {
                "input": max(0, sent - written - hit),
                "output": received,
                "cache_read": hit,
                "cache_write": written,
            }
            self._totals.add(usage)
            before = record.get("usage", {})
            record["usage"] = {name: count + before.get(name, 0) for name, count in usage.items()}
            if self._model is not None:
                record["model"] = self._model
            if match[5]:
                record["cost_usd"] = round(record.get("cost_usd", 0) + float(match[5]), 6)


def _count(number: str | None) -> int:
    """Return the tokens that aider printed, such as ``847``, ``2.4k``, ``12k`` or ``12,345``."""
    if number is None:
        return 0
    scale = _SCALE.get(number[-1], 1)
    try:
        return count_of(round(float(number.rstrip("kM").replace(",", "")) * scale))
    except ValueError:
        return 0
