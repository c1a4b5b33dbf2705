"""Ids of records: unique in a session, stable while its file grows, and checked for loops of parents."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from typing import Final

from autocode.jobs.sessions.base import Report

__all__ = ["MAX_CALLS", "MAX_IDS", "Calls", "Identities"]

MAX_IDS: Final = 500_000
"""Ids of the tool's own that are remembered; records after them get ids from their position."""

MAX_CALLS: Final = 10_000
"""Tool calls that wait for their result at the same time; the oldest is forgotten first."""

_USABLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_RESERVED: Final = re.compile(r"L[0-9].*|session")


class Identities:
    """Gives each record its id and counts parents that run in a circle.

    An id of the tool's own is used once; a second record with the same one gets an id from its position,
    ``L<line>``, which the tool's own ids can't imitate. Loops are found with a union-find over the trees
    that parents form (Tarjan 1975): a loop closes at the record that an earlier one waits for.
    """

    def __init__(self, report: Report, *, limit: int = MAX_IDS) -> None:
        self._report = report
        self._limit = limit
        self._trees: dict[int, int] = {}
        self._roots: list[int] = []
        self._awaited: dict[int, list[int]] = {}

    def claim(self, own: object, position: str, parent: object = None) -> str:
        """Return the id of the record at *position* whose tool calls it *own* (``None``: nothing)."""
        if own is None:
            return position
        if not isinstance(own, str) or not _USABLE.fullmatch(own) or _RESERVED.fullmatch(own):
            self._report.lose("unusable-id")
            return position
        key = _key(own)
        if key in self._trees:
            self._report.lose("duplicate-id")
            return position
        if len(self._trees) >= self._limit:
            self._report.lose("id-limit")
            return position
        self._grow(key, _key(parent) if isinstance(parent, str) else None)
        return own

    def knows(self, own: str) -> bool:
        """Say whether a record with the tool's id *own* was seen."""
        return _key(own) in self._trees

    def part(self, record_id: str, position: str, index: int) -> str:
        """Return the id of the *index*-th record from the same object; the first keeps *record_id*."""
        if not index:
            return record_id
        wanted = f"{record_id}.{index}"
        if record_id == position:
            return wanted
        key = _key(wanted)
        if key in self._trees or len(self._trees) >= self._limit:
            return f"{position}.{index}"
        self._trees[key] = self._new_tree()
        return wanted

    def _grow(self, key: int, parent: int | None) -> None:
        if parent is None:
            tree = self._new_tree()
        elif parent in self._trees:
            tree = self._trees[parent]
        else:
            tree = self._new_tree()
            self._awaited.setdefault(parent, []).append(tree)
        self._trees[key] = tree
        for waiting in self._awaited.pop(key, ()):
            if self._root(waiting) == self._root(tree):
                self._report.lose("cyclic-parent")
            else:
                self._roots[self._root(waiting)] = self._root(tree)

    def _new_tree(self) -> int:
        self._roots.append(len(self._roots))
        return len(self._roots) - 1

    def _root(self, tree: int) -> int:
        roots = self._roots
        while roots[tree] != tree:
            roots[tree] = roots[roots[tree]]
            tree = roots[tree]
        return tree


class Calls:
    """Remembers which record made a tool call, until many others have been made."""

    def __init__(self, *, limit: int = MAX_CALLS) -> None:
        self._limit = limit
        self._records: OrderedDict[str, str] = OrderedDict()

    def made(self, call_id: object, record_id: str) -> None:
        """Note that the record *record_id* made the call *call_id*."""
        if isinstance(call_id, str):
            self._records[call_id] = record_id
            self._records.move_to_end(call_id)
            if len(self._records) > self._limit:
                self._records.popitem(last=False)

    def find(self, call_id: object) -> str | None:
        """Return the id of the record that made the call, if it was seen."""
        return self._records.get(call_id) if isinstance(call_id, str) else None


def _key(text: str) -> int:
    # Eight bytes: two different ids that collide only cost the second one its own id.
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
