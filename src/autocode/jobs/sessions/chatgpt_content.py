"""The content of a ChatGPT message, by ``content_type``, to records and parts of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from autocode.jobs.sessions.base import Report, label, word
from autocode.jobs.sessions.document_mapping import Draft, rest_of, thinking
from autocode.jobs.sessions.jsonvalue import loads

__all__ = ["drafts_of", "is_understood"]

_ROLES: Final = frozenset({"user", "assistant", "system", "developer", "tool"})
_TEXTS: Final = {
    "code": ("text", "language"),
    "execution_output": ("text",),
    "system_error": ("text", "name"),
    "tether_browsing_display": ("result", "summary"),
    "tether_quote": ("text", "title"),
}
"""Types whose content is one text, under the first of these names; what the others say stays beside it."""

_EVENTS: Final = frozenset({"model_editable_context", "reasoning_recap", "user_editable_context"})
_PARTS: Final = frozenset({"text", "multimodal_text"})


def is_understood(message: dict[str, Any]) -> bool:
    """Say whether the role and the content of *message* have a known shape."""
    content, author = message["content"], message["author"]
    if (
        not isinstance(content, dict)
        or not isinstance(author, dict)
        or word(author.get("role")) not in _ROLES
    ):
        return False
    kind = word(content.get("content_type"))
    if kind in _PARTS:
        return isinstance(content.get("parts"), list)
    if kind == "thoughts":
        return isinstance(content.get("thoughts"), list)
    return kind in _EVENTS or (kind in _TEXTS and isinstance(content.get(_TEXTS[kind][0]), str))


def drafts_of(message: dict[str, Any], report: Report) -> tuple[list[Draft], dict[str, Any]]:
    """Return the records of a message that is understood, and what they don't say of it.

    What the assistant writes to anybody but the user is a tool call, what a tool writes is its result.
    """
    content = message["content"]
    kind = content["content_type"]
    extra = rest_of(message, "author", "content", "create_time", "recipient")
    author = rest_of(message["author"], "role")
    if author.get("metadata") == {}:
        del author["metadata"]
    if author:
        extra["author"] = author
    if message.get("recipient") not in (None, "all") and not _is_call(message):
        extra["recipient"] = message["recipient"]
    if kind in _EVENTS:
        return [Draft("event", {"name": kind, "data": content | {"role": message["author"]["role"]}})], extra
    if kind == "thoughts":
        drafts = _thoughts(content["thoughts"], report)
        used: tuple[str, ...] = ("content_type", "thoughts")
    else:
        parts, used = _parts(content, kind, report)
        drafts = [_spoken(message, parts)]
    if rest := rest_of(content, *used):
        extra["content"] = rest
    if kind not in {"text", "thoughts"}:
        extra["content_type"] = kind
    return drafts, extra


def _spoken(message: dict[str, Any], parts: list[dict[str, Any]]) -> Draft:
    role = message["author"]["role"]
    if role == "tool":
        is_error = True if message["content"]["content_type"] == "system_error" else None
        fields = {"call_id": None, "call": None, "is_error": is_error, "content": parts}
        return Draft("tool_result", fields)
    if _is_call(message):
        texts = [part["text"] for part in parts if part["type"] == "text"]
        given: Any = _arguments("".join(texts)) if len(texts) == len(parts) else parts
        return Draft("tool_call", {"call_id": None, "name": message["recipient"], "input": given})
    return Draft("message", {"role": role, "content": parts})


def _is_call(message: dict[str, Any]) -> bool:
    recipient = message.get("recipient")
    kind = message["content"]["content_type"]
    return (
        message["author"]["role"] == "assistant"
        and isinstance(recipient, str)
        and recipient != "all"
        and (kind in _PARTS or kind in _TEXTS)
    )


def _arguments(text: str) -> Any:
    """Return the object that is written in a text, or the text where it isn't exactly one."""
    changed: Counter[str] = Counter()
    try:
        value = loads(text.encode("utf-8", "surrogatepass"), changed)
    except ValueError:
        return text
    return value if isinstance(value, dict) and not changed else text


def _thoughts(thoughts: list[Any], report: Report) -> list[Draft]:
    drafts = []
    for thought in thoughts:
        texts = [thought.get(key) for key in ("summary", "content")] if isinstance(thought, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            report.lose(f"unknown-shape:{label('thought')}")
            drafts.append(Draft("unknown", {"name": "thought", "data": thought}))
            continue
        fields: dict[str, Any] = {
            "text": "\n\n".join(filter(None, texts)),
            "signed": False,
            "encrypted": False,
        }
        if rest := rest_of(thought, "summary", "content"):
            fields["extra"] = rest
        drafts.append(Draft("thinking", fields))
    return drafts or [Draft("thinking", thinking(""))]


def _parts(
    content: dict[str, Any], kind: str, report: Report
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the parts of a content, and the names of its fields that they stand for."""
    if kind in _TEXTS:
        name = _TEXTS[kind][0]
        return [{"type": "text", "text": content[name]}], ("content_type", name)
    parts = [_part(part, report) for part in content["parts"] if part != ""]
    return parts, ("content_type", "parts")


def _part(part: Any, report: Report) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = word(part.get("content_type")) if isinstance(part, dict) else ""
    maker = _MAKERS.get(kind)
    if maker is not None and (made := maker(part)) is not None:
        return made
    report.lose(f"unknown-part:{label(kind or part)}")
    return {"type": "unknown", "data": part}


def _image(part: dict[str, Any]) -> dict[str, Any] | None:
    if not isinstance(part.get("asset_pointer"), str):
        return None
    rest = rest_of(part, "asset_pointer", "content_type")
    return {"type": "image", "url": part["asset_pointer"]} | ({"extra": rest} if rest else {})


def _transcription(part: dict[str, Any]) -> dict[str, Any] | None:
    if not isinstance(part.get("text"), str):
        return None
    return {"type": "text", "text": part["text"], "extra": rest_of(part, "text")}


def _document(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "document", "data": part}


_MAKERS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]]] = {
    "audio_asset_pointer": _document,
    "audio_transcription": _transcription,
    "image_asset_pointer": _image,
    "real_time_user_audio_video_asset_pointer": _document,
}
