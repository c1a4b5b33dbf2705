"""The title of a session: one that a user gave, else one that a model gave, else the last summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from autocode.jobs.sessions.identity import Identities

__all__ = ["MAX_SUMMARIES", "MAX_TITLE", "Titles", "is_title"]

MAX_TITLE: Final = 1000
"""Characters that a title may have. A longer one is none: cut, it might end within a secret, unrecognised."""

MAX_SUMMARIES: Final = 1000
"""Summaries that are remembered until it is known whose they are; the oldest is forgotten first."""


def is_title(text: str) -> bool:
    """Say whether *text* is short enough for a title; its record has it in any case."""
    return len(text) <= MAX_TITLE


class Titles:
    """Collects what may become the title of a Claude Code session."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._summaries: dict[int, str] = {}

    def given(self, kind: str, title: str) -> None:
        """Note a title; of each *kind*, ``custom-title`` and ``ai-title``, the last one counts."""
        if is_title(title):
            self._given[kind] = title

    def summarised(self, leaf: str, text: str) -> None:
        """Note a summary of the messages up to *leaf*."""
        key = Identities.key(leaf)
        self._summaries.pop(key, None)
        if is_title(text):
            self._summaries[key] = text
        if len(self._summaries) > MAX_SUMMARIES:
            del self._summaries[next(iter(self._summaries))]

    def best(self, identities: Identities) -> str | None:
        """Return the title, or ``None`` where there is none.

        Old versions put summaries of other sessions at the top; one is ours if we hold its last message.
        """
        ours = [text for leaf, text in self._summaries.items() if identities.knows(leaf)]
        return self._given.get("custom-title") or self._given.get("ai-title") or (ours[-1] if ours else None)

    def texts(self) -> dict[str, Any]:
        """Return the titles and summaries, for a state."""
        return {"given": self._given, "summaries": list(self._summaries.values())}

    def keys(self) -> list[int]:
        """Return the digest of each summary's last message, for a state."""
        return list(self._summaries)

    def restore(self, texts: Mapping[str, Any], keys: Sequence[int]) -> None:
        """Take up what :meth:`texts` and :meth:`keys` gave."""
        self._given = dict(texts["given"])
        self._summaries = dict(zip(keys, texts["summaries"], strict=True))
