"""How the readers of JSON documents go about it: the session's own fields, its items, what lies between."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple

from autocode.jobs.sessions.base import Found, Record, Report, label
from autocode.jobs.sessions.document import EACH, ROOT, Layout, Member, Opened, parts_of_document
from autocode.jobs.sessions.identity import MAX_CALLS
from autocode.jobs.sessions.mapping import Mapper, joined
from autocode.jobs.sessions.state import Saved
from autocode.jobs.sessions.times import of_epoch

__all__ = [
    "EACH",
    "HELD",
    "ROOT",
    "DocumentMapper",
    "Draft",
    "Layout",
    "Run",
    "Scope",
    "rest_of",
    "text_of",
    "thinking",
]

HELD: Final = 8 * 1024 * 1024
"""Bytes of items that wait for the session's fields, where these stand behind them."""


_SESSION: Final = (
    "session_id", "agent_id", "parent_session_id", "cwd", "git_branch", "tool_version", "model_provider",
    "title",
)  # fmt: skip


class Draft(NamedTuple):
    """A record that has no number and no id yet.

    Args:
        kind: its type.
        fields: its own fields.
        when: its time as the tool wrote it, where that isn't the item's.
    """

    kind: str
    fields: dict[str, Any]
    when: object = None


@dataclass(slots=True)
class Run:
    """Fields of a session that follow one another with nothing between them.

    Args:
        first: the first one.
        fields: names and values.
        end: offset behind the last one.
        damaged: how many damaged spans there were.
    """

    first: Found
    fields: dict[str, Any]
    end: int
    damaged: int

    @property
    def found(self) -> Found:
        """All of it."""
        return Found(self.fields, self.first.offset, self.end - self.first.offset, self.first.position)


@dataclass(slots=True)
class Scope:
    """A container whose fields describe what is in it: a session, or a part of one.

    Args:
        opened: where it began.
        fields: its fields so far; of two with one name the last one wins.
        header: the fields that it begins with.
        run: the fields that may still be followed by further ones.
        waiting: what comes behind the header and wasn't told yet.
        size: bytes of the items that wait.
        is_told: whether its own record was made.
        last: id of the record that was made last in it.
    """

    opened: Opened
    fields: dict[str, Any] = field(default_factory=dict)
    header: Run | None = None
    run: Run | None = None
    waiting: list[Member | Run] = field(default_factory=list)
    size: int = 0
    is_told: bool = False
    last: str | None = None


class DocumentMapper(Mapper):
    """Maps documents in which sessions are objects and their messages, steps or events are members of those.

    The session's record shows the fields that its object begins with; fields that stand elsewhere are told as
    events named ``fields``. Where the session's identity stands behind its items, they wait for it, up to
    8 MiB of them.
    """

    layout: ClassVar[Layout]
    """Which containers are opened."""

    scopes: ClassVar[frozenset[str]] = frozenset({ROOT})
    """The places whose members are fields of a session."""

    named: ClassVar[frozenset[str]] = frozenset()
    """The places that are objects, so that their members have names."""

    held: ClassVar[int] = HELD
    """Bytes of items that wait until the fields are known."""

    def __init__(self, report: Report, saved: Saved | None) -> None:
        super().__init__(report, saved)
        self._stack: list[Scope | None] = []
        self._within = 0
        self._renamed: dict[str, str] = {}

    @abstractmethod
    def begin(self, scope: Scope) -> Iterator[Record]:
        """Yield the record of a session, or of a part of one, from the fields that are known."""

    @abstractmethod
    def item(self, item: Member) -> Iterator[Record]:
        """Yield the records of a member of a container that is no scope; :attr:`scope` is around it."""

    def completes(self, fields: Mapping[str, Any]) -> bool:
        """Say whether *fields* name the session, so that its record need not wait for more."""
        return bool(fields)

    def recognises(self, place: str, value: Any) -> bool:  # noqa: ARG002 - readers look at the place
        """Say whether *value* may be a member of *place*; see :func:`parts_of_document`."""
        return isinstance(value, dict)

    def finish(self, scope: Scope) -> Iterator[Record]:
        """Yield what is left of *scope* at its end."""
        yield from self._tell(scope)

    def records(self, stream: BinaryIO) -> Iterator[Record]:
        """See :meth:`Mapper.records`."""
        report = self._report
        for part in parts_of_document(stream, report, self.layout, recognises=self.recognises):
            scope = self.scope
            if isinstance(part, Opened):
                is_scope = part.place in self.scopes and not part.is_list
                if scope is not None:
                    scope.run = None
                    if is_scope:
                        yield from self._tell(scope)
                self._stack.append(Scope(part) if is_scope else None)
            elif not isinstance(part, Member):
                closed = self._stack[-1]
                if closed is not None:
                    yield from self.finish(closed)
                self._stack.pop()
            elif scope is not None and self._stack[-1] is scope:
                self._take_field(scope, part)
            else:
                yield from self._take_item(scope, part)
        if not report.sessions:
            yield self.session(None)
        report.padding -= self._within

    def session(self, at: str | None, found: Found | None = None) -> Record:
        """See :meth:`Mapper.session`; what isn't known is null."""
        return super().session(at, found) | dict.fromkeys(_SESSION)

    @property
    def scope(self) -> Scope | None:
        """The innermost scope."""
        return next((scope for scope in reversed(self._stack) if scope is not None), None)

    @property
    def depth(self) -> int:
        """How many scopes there are around the innermost one."""
        return sum(scope is not None for scope in self._stack) - 1

    def head(self, scope: Scope, at: object, shown: Mapping[str, Any], used: Sequence[str]) -> Record:
        """Return the ``session`` record of *scope*, and enter it in the report.

        Args:
            scope: the session.
            at: its time, as the tool wrote it.
            shown: the record's own fields; ``title`` becomes that of the report.
            used: names of the fields that need not be repeated in ``extra``.
        """
        time = self.time(of_epoch(at))
        record = self.session(time, self._place_of(scope))
        record |= shown
        if time is None and at is not None:
            record["raw_at"] = at
        header = scope.header.fields if scope.header else {}
        if rest := rest_of(header, *used):
            record["extra"] = rest
        report = self._report
        report.session_id, report.agent_id = record["session_id"], record["agent_id"]
        report.parent_session_id, report.title = record["parent_session_id"], record["title"]
        scope.last = record["id"]
        self._renamed = {}
        return record

    def tell(
        self,
        found: Found,
        drafts: Sequence[Draft],
        *,
        own: object = None,
        parent: object = None,
        when: object = None,
        extra: Mapping[str, Any] | None = None,
        is_side: bool = False,
    ) -> Iterator[Record]:
        """Yield the records of an item.

        Args:
            found: the item.
            drafts: its records, at least one.
            own: the tool's id.
            parent: the tool's id of the item that it follows.
            when: its time as the tool wrote it: RFC 3339, or seconds since 1970.
            extra: what has no place of its own, for the first record.
            is_side: it's on a side chain.
        """
        base = self._identities.claim(own, found.position, parent)
        if isinstance(own, str) and base != own and len(self._renamed) < MAX_CALLS:
            self._renamed[own] = base
        follows = self._renamed.get(parent, parent) if isinstance(parent, str) else None
        for index, draft in enumerate(drafts):
            written = when if draft.when is None else draft.when
            at = self.time(of_epoch(written))
            record_id = self._identities.part(base, found.position, index)
            record = self._recorder.make(draft.kind, record_id, at, follows, found)
            if at is None and written is not None:
                record["raw_at"] = written
            if is_side:
                record["sidechain"] = True
            record |= draft.fields
            rest = dict(extra or {}) if index == 0 and draft.kind != "unknown" else {}
            if index == 0 and own is not None and base != own and draft.kind != "unknown":
                rest["id"] = own
            if rest:
                record["extra"] = joined(record.get("extra", {}), rest)
            self.link(record)
            if self.scope is not None:
                self.scope.last = record_id
            yield record

    def not_understood(self, item: Found, reason: str, name: object, **about: Any) -> Iterator[Record]:
        """Yield a record that holds an item whole, counted under *reason* and *name*."""
        self._report.lose(f"{reason}:{label(name)}")
        data = {"name": name if isinstance(name, str) else None, "data": item.value}
        yield from self.tell(item, [Draft("unknown", data)], **about)

    def _place_of(self, scope: Scope) -> Found:
        found = scope.opened.found
        return scope.header.found if scope.header else Found(None, found.offset, 0, found.position)

    def _take_field(self, scope: Scope, part: Member) -> None:
        run, found = scope.run, part.found
        name = str(part.key)
        scope.fields[name] = found.value
        if run is None or run.damaged != self._report.damaged_total:
            scope.run = run = Run(found, {}, found.offset, self._report.damaged_total)
            if scope.header is None and not scope.is_told and not scope.waiting:
                scope.header = run
            else:
                scope.waiting.append(run)
        run.fields[name] = found.value
        self._within += found.offset - run.end
        run.end = found.offset + found.length

    def _take_item(self, scope: Scope | None, part: Member) -> Iterator[Record]:
        if scope is None:
            if not self._report.sessions:
                yield self.session(None)
            yield self.unknown(part.found)
            return
        scope.run = None
        scope.waiting.append(part)
        scope.size += part.found.length
        if scope.is_told or scope.size > self.held or self.completes(scope.fields):
            yield from self._tell(scope)

    def _tell(self, scope: Scope) -> Iterator[Record]:
        if not scope.is_told:
            scope.is_told = True
            yield from self.begin(scope)
        waiting, scope.waiting, scope.size = scope.waiting, [], 0
        for each in waiting:
            if isinstance(each, Member) and each.key is not None and each.place not in self.named:
                yield self.unknown(each.found._replace(value={each.key: each.found.value}))
            elif isinstance(each, Member):
                yield from self.item(each)
            else:
                is_side = self.depth > 0
                draft = Draft("event", {"name": "fields", "data": each.fields})
                parent = scope.last if is_side else None
                yield from self.tell(each.found, [draft], parent=parent, is_side=is_side)


def rest_of(value: Mapping[str, Any], *used: str) -> dict[str, Any]:
    """Return the fields of *value* that aren't *used* and not null."""
    return {key: item for key, item in value.items() if key not in used and item is not None}


def text_of(value: object) -> str | None:
    """Return *value* where it's a string."""
    return value if isinstance(value, str) else None


def thinking(text: str) -> dict[str, Any]:
    """Return the fields of a ``thinking`` record whose text is all that there was."""
    return {"text": text, "signed": False, "encrypted": False}
