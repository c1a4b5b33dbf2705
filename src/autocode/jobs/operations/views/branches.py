"""Where the conversation that is shown ends, and what lies beside it begins."""

from __future__ import annotations

from typing import Any, Final

from autocode.jobs.operations.views.blocks import Branch, Stamp
from autocode.jobs.operations.views.sources import Record
from autocode.jobs.operations.views.wording import first_line

__all__ = ["Branches", "branch_name", "branch_text"]

_REMEMBERED: Final = 20_000
"""Records to which a branch can be traced back; a ChatGPT conversation that is held has fewer."""

_FORKS: Final = frozenset({"chatgpt"})
"""Tools whose side chains are branches that a user left, not the work of subagents."""

_TRAJECTORY: Final = "subagent_trajectory"


class Branches:
    """Follows the records of one session and tells where side chains begin and end.

    Args:
        agent: whether the session is a subagent's, all of which is a side chain.
    """

    def __init__(self, *, agent: bool = False) -> None:
        self._agent = agent
        self._tool: str | None = None
        self._words: dict[str, str] = {}
        self._node: tuple[Any, set[str]] = (None, set())
        self._aside = False

    def begin(self, session: Record) -> None:
        """Take the ``session`` record: which tool it was, and whose transcript."""
        self._tool = session.get("tool")
        self._agent = self._agent or session.get("agent_id") is not None

    def step(self, record: Record, stamp: Stamp) -> Branch | None:
        """Take a record, and return what begins or ends with it; ``None`` where the talk goes on."""
        aside = stamp.sidechain and not self._agent
        begins = aside and (not self._aside or self._forks(record))
        ends = self._aside and not aside
        self._aside = aside
        made = None
        if begins or ends:
            parent = record.get("parent") if begins else None
            made = Branch(
                Stamp(stamp.id),
                begins,
                is_fork=self._tool in _FORKS,
                parent=parent if parent in self._words else None,
                words=self._words.get(parent or "", ""),
            )
        self.note(record)
        return made

    def note(self, record: Record) -> None:
        """Remember *record*, from which a branch may fork."""
        own = str(record.get("id"))
        place = record.get("source", {}).get("offset"), record.get("parent")
        if place != self._node[0]:
            self._node = place, set()
        self._node[1].add(own)
        if record["type"] == "session":
            return
        self._words[own] = _words(record)
        if len(self._words) > _REMEMBERED:
            del self._words[next(iter(self._words))]

    def _forks(self, record: Record) -> bool:
        parent = record.get("parent")
        if self._tool not in _FORKS:
            begins = record["type"] == "message" and parent is None
            return begins or record.get("name") == _TRAJECTORY
        place, ids = self._node
        return parent not in ids and (record.get("source", {}).get("offset"), parent) != place


def _words(record: Record) -> str:
    if record["type"] != "message":
        return first_line(str(record.get("text") or record.get("name") or ""), 60)
    parts = [part for part in record.get("content", []) if isinstance(part, dict)]
    return first_line(" ".join(str(part.get("text") or "")[:400] for part in parts), 60)


def branch_name(branch: Branch) -> str:
    """Return what kind of branch begins, in words for readers."""
    return "Branch not taken" if branch.is_fork else "Aside: a subagent or a branch"


def branch_text(branch: Branch) -> str:
    """Return the heading of a branch that begins, as plain text."""
    origin = f", forked from “{branch.words or 'a record'}”" if branch.parent is not None else ""
    return f"{branch_name(branch)}{origin}"
