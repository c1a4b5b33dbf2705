"""Reader for claude.ai: ``conversations.json`` of a data export, or a single conversation from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, ClassVar, Final

from autocode.jobs.sessions.base import Reading, Record, label, word
from autocode.jobs.sessions.claude_content import drafts_of
from autocode.jobs.sessions.document import Member
from autocode.jobs.sessions.document_mapping import (
    EACH,
    ROOT,
    DocumentMapper,
    Draft,
    Layout,
    Scope,
    rest_of,
    text_of,
)
from autocode.jobs.sessions.head import opened_document
from autocode.jobs.sessions.mapping import begin
from autocode.jobs.sessions.titles import is_title

__all__ = ["ClaudeAiReader"]

_ROLES: Final = {"human": "user", "assistant": "assistant"}
_NOBODY: Final = "00000000-0000-4000-8000-000000000000"
_USED: Final = (
    "uuid",
    "sender",
    "content",
    "created_at",
    "parent_message_uuid",
    "attachments",
    "files",
    "text",
)


class ClaudeAiReader:
    """Reads conversations of claude.ai, one or all that an account has."""

    name: Final = "claude-ai"
    revision: Final = 1
    in_parts: Final = False

    def matches(self, head: bytes) -> bool:
        """Say whether *head* begins with a conversation, or a list of them."""
        return "chat_messages" in opened_document(head)

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """See :meth:`autocode.jobs.sessions.base.Reader.read`."""
        return begin(self, _Conversations, stream, state)


class _Conversations(DocumentMapper):
    layout: ClassVar[Layout] = {
        ROOT: {EACH: "conversation", "chat_messages": "messages"},
        "conversation": {"chat_messages": "messages"},
        "messages": {},
    }
    scopes: ClassVar[frozenset[str]] = frozenset({ROOT, "conversation"})

    def completes(self, fields: Mapping[str, Any]) -> bool:
        return "uuid" in fields and "name" in fields

    def recognises(self, place: str, value: Any) -> bool:
        return isinstance(value, dict) and ("sender" if place == "messages" else "chat_messages") in value

    def begin(self, scope: Scope) -> Iterator[Record]:
        fields = scope.fields
        session_id, title, model = (text_of(fields.get(name)) for name in ("uuid", "name", "model"))
        used = ["created_at", *(["uuid"] if session_id is not None else [])]
        if title is not None and is_title(title):
            used.append("name")
        else:
            title = None
        if model is not None:
            self._report.saw_model(label(model))
        # The web page names a conversation that has no name yet by the empty text.
        yield self.head(
            scope, fields.get("created_at"), {"session_id": session_id, "title": title or None}, used
        )

    def item(self, item: Member) -> Iterator[Record]:
        message = item.found.value
        if not isinstance(message, dict):
            yield self.unknown(item.found)
            return
        parent = message.get("parent_message_uuid")
        about: dict[str, Any] = {
            "own": message.get("uuid"),
            "parent": None if parent == _NOBODY else parent,
            "when": message.get("created_at"),
        }
        role = _ROLES.get(word(message.get("sender")))
        drafts = self._drafts(message, role) if role else []
        if not drafts:
            name = message.get("sender")
            yield from self.not_understood(item.found, "unknown-shape", name, **about)
            return
        extra = rest_of(message, *_USED)
        text = message.get("text")
        if text is not None and not (isinstance(text, str) and _is_told(text, drafts)):
            extra["text"] = text
        if parent is not None and not isinstance(parent, str):
            extra["parent_message_uuid"] = parent
        yield from self.tell(item.found, drafts, extra=extra, **about)

    def _drafts(self, message: dict[str, Any], role: str) -> list[Draft]:
        """Return the records of a message; its attached files are parts of what was said with them."""
        content = message.get("content")
        drafts = []
        if content:
            drafts = [
                Draft(*each) for each in drafts_of({"role": role, "content": content}, role, self._report)
            ]
            if not drafts:
                return []
        text = message.get("text")
        files = [
            {"type": "document", "data": file}
            for name in ("attachments", "files")
            for file in _listed(message.get(name))
        ]
        said = next((draft for draft in drafts if draft.kind == "message"), None)
        if said is None and (files or not drafts):
            said = Draft("message", {"role": role, "content": []})
            drafts.append(said)
        if said is not None:
            if isinstance(text, str) and text and not _texts(drafts):
                said.fields["content"].insert(0, {"type": "text", "text": text})
            said.fields["content"] += files
        return drafts


def _listed(files: object) -> list[Any]:
    return files if isinstance(files, list) else [] if files is None else [files]


def _texts(drafts: list[Draft]) -> list[str]:
    parts = [part for draft in drafts if draft.kind == "message" for part in draft.fields["content"]]
    return [part["text"] for part in parts if part["type"] == "text"]


def _is_told(text: str, drafts: list[Draft]) -> bool:
    """Say whether the message's text, which repeats its blocks, says nothing beyond the records."""
    texts = _texts(drafts)
    return any(text.strip() == between.join(texts).strip() for between in ("", "\n", "\n\n", " "))
