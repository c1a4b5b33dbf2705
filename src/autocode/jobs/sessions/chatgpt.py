"""Reader for ChatGPT: ``conversations.json`` of a data export, or a single conversation from it.

A conversation is a tree of nodes; the path from its ``current_node`` up to the root is what the user saw
last, the other branches are answers that were generated anew and questions that were edited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, ClassVar, Final

from autocode.jobs.sessions.base import Found, Reading, Record, label
from autocode.jobs.sessions.chatgpt_content import drafts_of, is_understood
from autocode.jobs.sessions.document import Member
from autocode.jobs.sessions.document_mapping import (
    EACH,
    ROOT,
    DocumentMapper,
    Draft,
    Layout,
    Scope,
    rest_of,
)
from autocode.jobs.sessions.head import opened_document
from autocode.jobs.sessions.mapping import begin
from autocode.jobs.sessions.titles import is_title

__all__ = ["ChatGptReader"]

_MESSAGE: Final = frozenset({"author", "content"})
_HELD: Final = 32 * 1024 * 1024


class ChatGptReader:
    """Reads conversations of ChatGPT, one or all that an account has."""

    name: Final = "chatgpt"
    revision: Final = 1
    in_parts: Final = False

    def matches(self, head: bytes) -> bool:
        """Say whether *head* begins with a conversation, or a list of them."""
        shown = opened_document(head).keys()
        return "mapping" in shown and not shown.isdisjoint({"title", "create_time", "current_node"})

    def read(self, stream: BinaryIO, state: bytes | None = None) -> Reading:
        """See :meth:`autocode.jobs.sessions.base.Reader.read`."""
        return begin(self, _Conversations, stream, state)


class _Conversations(DocumentMapper):
    layout: ClassVar[Layout] = {
        ROOT: {EACH: "conversation", "mapping": "mapping"},
        "conversation": {"mapping": "mapping"},
        "mapping": {},
    }
    scopes: ClassVar[frozenset[str]] = frozenset({ROOT, "conversation"})
    named: ClassVar[frozenset[str]] = frozenset({"mapping"})
    held: ClassVar[int] = _HELD

    def completes(self, fields: Mapping[str, Any]) -> bool:  # noqa: ARG002 - which branch is seen, the end says
        return False

    def recognises(self, place: str, value: Any) -> bool:
        if place == "mapping":
            return isinstance(value, dict) and "message" in value
        return isinstance(value, dict) and "mapping" in value

    def begin(self, scope: Scope) -> Iterator[Record]:
        fields = scope.fields
        names = [name for name in ("conversation_id", "id") if isinstance(fields.get(name), str)]
        session_id = fields[names[0]] if names else None
        title = fields.get("title")
        shown = {"session_id": session_id, "title": title if _is_title(title) else None}
        used = [name for name in names if fields[name] == session_id]
        used += ["create_time", *(["title"] if shown["title"] is not None else [])]
        yield self.head(scope, fields.get("create_time"), shown, used)

    def finish(self, scope: Scope) -> Iterator[Record]:
        """Tell the nodes of the path to the current one, then the others."""
        nodes = [each for each in scope.waiting if isinstance(each, Member)]
        if not scope.is_told:
            path = _path(nodes, scope.fields.get("current_node"))
            on_path = {id(node) for node in path}
            others = [each for each in scope.waiting if id(each) not in on_path]
            scope.waiting = []
            yield from super().finish(scope)
            children = _children(nodes)
            for node in path:
                yield from self._node(node, children)
            for each in others:
                if isinstance(each, Member):
                    yield from self._node(each, children, is_side=bool(path))
                else:
                    scope.waiting.append(each)
        yield from super().finish(scope)

    def item(self, item: Member) -> Iterator[Record]:
        # Only of a conversation that is too long to wait for its end.
        self._report.lose("branch-unknown")
        yield from self._node(item, None)

    def _node(
        self, member: Member, children: Mapping[str, list[str]] | None, *, is_side: bool = False
    ) -> Iterator[Record]:
        node = member.found.value
        if not isinstance(node, dict) or "message" not in node:
            # its name may be nowhere else
            named = member.found._replace(value={str(member.key): node})
            yield from self.not_understood(named, "unknown-shape", "node")
            return
        about: dict[str, Any] = {
            "own": member.key,
            "parent": node.get("parent"),
            "is_side": is_side,
            "extra": _about_node(member.key, node, children),
        }
        message = node["message"]
        if message is None:
            yield from self.tell(member.found, [Draft("event", {"name": "node", "data": {}})], **about)
        elif not isinstance(message, dict) or not message.keys() >= _MESSAGE or not is_understood(message):
            shape = message.get("content") if isinstance(message, dict) else None
            name = shape.get("content_type") if isinstance(shape, dict) else "message"
            del about["extra"]
            yield from self.not_understood(member.found, "unknown-type", name, **about)
        else:
            yield from self._message(member.found, message, about)

    def _message(self, found: Found, message: dict[str, Any], about: dict[str, Any]) -> Iterator[Record]:
        drafts, extra = drafts_of(message, self._report)
        model = _object(message.get("metadata")).get("model_slug")
        if isinstance(model, str):
            drafts[0].fields["model"] = model
            self._report.saw_model(label(model))
        about["extra"] |= extra
        if "id" in message and message["id"] == about["own"]:
            about["extra"].pop("id", None)
        parent = about["parent"]
        for record in self.tell(found, drafts, when=message.get("create_time"), **about):
            if record["type"] == "tool_call":
                # A call has no id of its own: its answer is the node that follows.
                self._calls.made(record["id"], record["id"])
            elif record["type"] == "tool_result" and isinstance(parent, str):
                record["call"] = self._calls.find(parent)
            yield record


def _path(nodes: list[Member], current: object) -> list[Member]:
    """Return the nodes from the root to the current one; without one, to the last that has no child."""
    by_key = {node.key: node for node in nodes}
    if not isinstance(current, str) or current not in by_key:
        parents = {_object(node.found.value).get("parent") for node in nodes if _is_linked(node)}
        current = next((node.key for node in reversed(nodes) if node.key not in parents), None)
    path: dict[str, Member] = {}
    while isinstance(current, str) and current in by_key and current not in path:
        path[current] = by_key[current]
        current = _object(by_key[current].found.value).get("parent")
    return list(reversed(path.values()))


def _is_linked(node: Member) -> bool:
    return isinstance(_object(node.found.value).get("parent"), str)


def _children(nodes: list[Member]) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {}
    for node in nodes:
        if _is_linked(node):
            children.setdefault(node.found.value["parent"], []).append(str(node.key))
    return children


def _about_node(
    key: str | None, node: dict[str, Any], children: Mapping[str, list[str]] | None
) -> dict[str, Any]:
    """Return the fields of a node that its records don't say; its children are said by their parents."""
    rest = rest_of(node, "message", "id", "parent", "children")
    if node.get("id") != key:
        rest["id"] = node.get("id")
    if node.get("parent") is not None and not isinstance(node["parent"], str):
        rest["parent"] = node["parent"]
    if children is None or node.get("children") != children.get(str(key), []):
        rest["children"] = node.get("children")
    return {"node": rest} if rest else {}


def _is_title(value: object) -> bool:
    return isinstance(value, str) and is_title(value)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
