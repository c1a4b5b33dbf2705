"""Ids of records: unique in a session, stable while its file grows, and checked for loops of parents."""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from autocode.jobs.sessions.base import Report

__all__ = ["MAX_CALLS", "MAX_IDS", "Calls", "Identities", "SavedIds"]

MAX_IDS: Final = 500_000
"""Ids of the tool's own that are remembered; records after them get ids from their position."""

MAX_CALLS: Final = 10_000
"""Tool calls that wait for their result at the same time; the oldest is forgotten first."""

# ids from positions begin with L and a digit; that of the session's own record is "session"
_USABLE: Final = re.compile(r"(?!L[0-9]|session\Z)[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
_SETTLED: Final = 0


class SavedIds(NamedTuple):
    """What :class:`Identities` knows, in few bytes: eight for each id, twelve while parents are missing.

    Args:
        seen: digests of all ids, sorted.
        trees: for each of them the tree that it is in, or 0 where that waits for nothing; empty when
            none waits.
        awaited: digest of the missing parent that tree 1, 2 … waits for.
    """

    seen: array[int]
    trees: array[int]
    awaited: array[int]


class Identities:
    """Gives each record its id and counts parents that run in a circle.

    An id of the tool's own is used once; a second record with the same one gets an id from its position,
    ``L<line>``, which the tool's own ids can't imitate. Loops are found with a union-find over the trees
    that parents form (Tarjan 1975): a loop closes at the record that an earlier one waits for. Trees that
    wait for no parent can't become part of one, so they are all one tree, 0.

    Args:
        report: gets the losses.
        limit: how many ids are remembered.
        saved: what was known before.
    """

    def __init__(self, report: Report, *, limit: int = MAX_IDS, saved: SavedIds | None = None) -> None:
        self._report = report
        self._limit = limit
        self._saved = saved or SavedIds(array("Q"), array("I"), array("Q"))
        self._trees: dict[int, int] = {}
        self._newest: tuple[str | None, int] = None, 0
        self._roots = list(range(1 + len(self._saved.awaited)))
        self._awaited: dict[int, list[int]] = {}
        for tree, parent in enumerate(self._saved.awaited, 1):
            self._awaited.setdefault(parent, []).append(tree)

    def claim(self, own: object, position: str, parent: object = None) -> str:
        """Return the id of the record at *position* whose tool calls it *own* (``None``: nothing)."""
        if own is None:
            return position
        if not isinstance(own, str) or not _USABLE.fullmatch(own):
            self._report.lose("unusable-id")
            return position
        key = _key(own)
        if self._tree(key) is not None:
            self._report.lose("duplicate-id")
            return position
        if self._is_full():
            self._report.lose("id-limit")
            return position
        self._grow(key, self._key_of(parent) if isinstance(parent, str) else None)
        self._newest = own, key
        return own

    @staticmethod
    def key(own: str) -> int:
        """Return the number under which an id is remembered."""
        return _key(own)

    def knows(self, key: int) -> bool:
        """Say whether a record with the tool's id whose :meth:`key` is *key* was seen."""
        return self._tree(key) is not None

    def part(self, record_id: str, position: str, index: int) -> str:
        """Return the id of the *index*-th record from the same object; the first keeps *record_id*."""
        if not index:
            return record_id
        wanted = f"{record_id}.{index}"
        if record_id == position:
            return wanted
        key = _key(wanted)
        if self._tree(key) is not None or self._is_full():
            return f"{position}.{index}"
        self._trees[key] = _SETTLED
        return wanted

    def dump(self) -> SavedIds:
        """Return what is known, in a form that depends on the records alone."""
        new = sorted(self._trees.items())
        places = [bisect_left(self._saved.seen, key) for key, _ in new]
        seen = _merged(self._saved.seen, places, (key for key, _ in new))
        waiting = [(parent, tree) for parent in sorted(self._awaited) for tree in self._awaited[parent]]
        if not waiting:
            return SavedIds(seen, array("I"), array("Q"))
        numbers = {self._root(tree): number for number, (_, tree) in enumerate(waiting, 1)}
        renamed = [numbers.get(self._root(tree), _SETTLED) for tree in range(len(self._roots))]
        old = self._saved.trees or array("I", bytes(4 * len(self._saved.seen)))
        if any(renamed[tree] != tree for tree in range(1 + len(self._saved.awaited))):
            old = array("I", [renamed[tree] for tree in old])
        trees = _merged(old, places, (renamed[tree] for _, tree in new))
        return SavedIds(seen, trees, array("Q", [parent for parent, _ in waiting]))

    def _key_of(self, parent: str) -> int:
        # in most transcripts a record's parent is the one before
        newest, key = self._newest
        return key if parent == newest else _key(parent)

    def _is_full(self) -> bool:
        return len(self._saved.seen) + len(self._trees) >= self._limit

    def _tree(self, key: int) -> int | None:
        """Return the tree that an id is in, or ``None`` where it wasn't seen."""
        tree = self._trees.get(key)
        if tree is not None or not self._saved.seen:
            return tree
        index = bisect_left(self._saved.seen, key)
        if index == len(self._saved.seen) or self._saved.seen[index] != key:
            return None
        return self._saved.trees[index] if self._saved.trees else _SETTLED

    def _grow(self, key: int, parent: int | None) -> None:
        tree = _SETTLED if parent is None else self._tree(parent)
        if tree is None:
            assert parent is not None
            tree = len(self._roots)
            self._roots.append(tree)
            self._awaited.setdefault(parent, []).append(tree)
        self._trees[key] = tree
        for waiting in self._awaited.pop(key, ()):
            if self._root(waiting) == self._root(tree):
                self._report.lose("cyclic-parent")
            else:
                self._roots[self._root(waiting)] = self._root(tree)

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
        self._records: OrderedDict[bytes, str] = OrderedDict()

    def made(self, call_id: object, record_id: str) -> None:
        """Note that the record *record_id* made the call *call_id*."""
        if isinstance(call_id, str):
            key = _call_key(call_id)
            self._records[key] = record_id
            self._records.move_to_end(key)
            if len(self._records) > self._limit:
                self._records.popitem(last=False)

    def find(self, call_id: object) -> str | None:
        """Return the id of the record that made the call, if it was seen."""
        return self._records.get(_call_key(call_id)) if isinstance(call_id, str) else None

    def dump(self) -> Iterator[tuple[bytes, str]]:
        """Yield a digest of each call's id, and its record's id, oldest first."""
        yield from self._records.items()

    def restore(self, calls: Iterable[tuple[bytes, str]]) -> None:
        """Take up what :meth:`dump` gave."""
        self._records = OrderedDict(calls)


def _merged(old: array[int], places: Iterable[int], new: Iterable[int]) -> array[int]:
    """Return *old* with *new* values at *places*; copies runs, so that its length hardly matters."""
    merged = array(old.typecode)
    start = 0
    for place, value in zip(places, new, strict=True):
        merged.extend(old[start:place])
        merged.append(value)
        start = place
    merged.extend(old[start:])
    return merged


def _key(text: str) -> int:
    # Eight bytes: two different ids that collide only cost the second one its own id.
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _call_key(text: str) -> bytes:
    # Sixteen: calls that collided would be linked wrongly.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
