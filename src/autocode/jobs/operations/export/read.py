"""``read``: the frozen bytes of one file into the normal form, redacted, with an account of itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Final, cast
from urllib.parse import unquote_to_bytes

from autocode.jobs.canonical import canonical_json, is_digest
from autocode.jobs.errors import RedactionFailed, SourceChanged
from autocode.jobs.kinds import Produced, StepContext
from autocode.jobs.operations.export.encoding import LARGE, encode_record, pieces_of
from autocode.jobs.operations.export.frozen import CHUNK, FrozenStream, frozen, stored
from autocode.jobs.operations.export.part import Before
from autocode.jobs.operations.export.payload import (
    ENTRY_TYPE,
    NORMAL_FORM_TYPE,
    PART_TYPE,
    RAW_TYPE,
    ReadInputs,
)
from autocode.jobs.operations.export.seen import forget
from autocode.jobs.redaction import Place, Policy, RedactionReport, Redactor, policy_with
from autocode.jobs.sessions import READERS, Record

__all__ = ["Shown", "read_session"]

_BLOCK: Final = 1 << 18
"""Bytes of lines that are searched for secrets and written together."""


class Shown(Iterator[bytes]):
    """A session, or a part of it, as an export shows it: blocks of whole lines; behind the last, its report.

    Args:
        stream: the frozen bytes.
        reader: name of the reader.
        policy: replace what it calls a secret; each session has a redactor of its own. ``None``: nothing.
        before: what is known of the parts before.
        found: told each redaction with the text that was replaced.
    """

    def __init__(
        self,
        stream: FrozenStream,
        reader: str,
        *,
        policy: Policy | None,
        before: Before,
        found: Callable[[Place, str], None] | None = None,
    ) -> None:
        # held here: a buffer that is collected closes the stream under it
        self._buffer = io.BufferedReader(stream, CHUNK)
        chosen = next(each for each in READERS if each.name == reader)
        self._reading = chosen.read(cast("BinaryIO", self._buffer), before.reading)
        self._redactor = Redactor(policy, state=before.redaction, found=found) if policy else None
        self._blocks = self._written()

    def __next__(self) -> bytes:
        return next(self._blocks)

    def _written(self) -> Iterator[bytes]:
        records: list[Record] = []
        lines: list[bytes] = []
        size = 0
        for record in self._reading:
            if record["source"]["length"] >= LARGE:
                yield self._block(records, lines)
                records, lines, size = [], [], 0
                yield from pieces_of(self._redacted(record))
                yield b"\n"
                continue
            line = encode_record(record)
            records.append(record)
            lines.append(line)
            size += len(line)
            if size >= _BLOCK:
                yield self._block(records, lines)
                records, lines, size = [], [], 0
        yield self._block(records, lines)

    def _block(self, records: Sequence[Record], lines: list[bytes]) -> bytes:
        """Return *lines* as one text, those anew whose records held secrets."""
        if not lines:
            return b""
        if self._redactor is not None:
            for index in self._redactor.suspects(lines):
                record = records[index]
                shown = self._redacted(record)
                if shown is not record:
                    lines[index] = encode_record(shown)
        lines.append(b"")
        return b"\n".join(lines)

    def records(self) -> Iterator[Record]:
        """Yield the records as they are shown, instead of the blocks that are written."""
        return map(self._redacted, self._reading)

    def _redacted(self, record: Record) -> Record:
        if self._redactor is None:
            return record
        shown: Record = self._redactor.redact_record(record["seq"], record)
        return shown

    @property
    def redaction(self) -> RedactionReport | None:
        """What was redacted so far; ``None`` where nothing is."""
        return None if self._redactor is None else self._redactor.report

    def accounts(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the reading's report, redacted as well, and that of the redaction. Call it once."""
        report = self._reading.report.to_json()
        if self._redactor is None:
            return report, None
        return self._redactor.redact(report, "/report"), self._redactor.report.to_json()

    def before_next(self, parts: Sequence[Mapping[str, Any]]) -> Before:
        """Return what the next part needs, beside the *parts* up to here."""
        if self._redactor is None:
            return Before(tuple(parts), self._reading.state())
        # the reader's state first: its text may hold secrets that get their numbers here
        reading = self._reading.state(self._redactor.mask)
        return Before(tuple(parts), reading, self._redactor.state())


def read_session(context: StepContext, inputs: ReadInputs) -> Produced:
    """Write the normal form of a session, or of a part of it; return the entry, or what the next part needs.

    The entry is a small document that names the normal form (and, without redaction, the raw bytes) by digest
    and reports what was mapped, lost, damaged and redacted. Of a session in parts, the last one's entry names
    and reports all. It depends on the bytes, the reader's revision and the policy alone.

    Raises:
        SourceChanged: the file no longer holds the bytes that ``scan`` recorded.
        SourceUnreadable: the file can't be opened.
    """
    try:
        return _entry_of(context, inputs)
    except SourceChanged:
        # the next scan must read it, whatever the file system says
        forget(context.cache_folder(), unquote_to_bytes(inputs.path))
        raise


def _entry_of(context: StepContext, inputs: ReadInputs) -> Produced:
    before = Before() if inputs.before is None else Before.from_bytes(context.read(inputs.before))
    raw = _raw_copy(context, inputs) if inputs.raw else None
    normal: Produced | None = None
    shown: Shown | None = None
    if inputs.reader is not None:
        normal, shown = _normal_form(context, inputs, inputs.reader, before)
    part = {
        "source": {"sha256": inputs.sha256, "size": inputs.size},
        "raw": None if raw is None else _named(raw),
        "normal": None if normal is None else _named(normal),
    }
    parts = [*before.parts, part]
    needs = [each.digest for each in (raw, normal) if each is not None]
    if not inputs.last:
        following = Before(tuple(parts)) if shown is None else shown.before_next(parts)
        return context.put([following.to_bytes()], PART_TYPE, needs=needs)
    report, redaction = (None, None) if shown is None else shown.accounts()
    entry: dict[str, Any] = {"report": report, "redaction": redaction}
    if inputs.whole is None:
        entry |= part
    else:
        entry |= {"source": inputs.whole.model_dump(), "parts": parts}
    return context.put([canonical_json(entry)], ENTRY_TYPE, needs=needs)


def _normal_form(
    context: StepContext, inputs: ReadInputs, reader: str, before: Before
) -> tuple[Produced, Shown]:
    with _frozen(context, inputs) as stream, context.output(NORMAL_FORM_TYPE) as output:
        shown = Shown(stream, reader, policy=_policy(inputs), before=before)
        for block in shown:
            output.write(block)
            _tell(context, inputs, stream)
        stream.prove(inputs.sha256)
        return output.finish(), shown


def _policy(inputs: ReadInputs) -> Policy | None:
    if inputs.policy is None:
        return None
    policy = policy_with(inputs.rules)
    if policy.digest != inputs.policy:
        # the program was exchanged under a running job: what is remembered under one digest keeps to it
        raise RedactionFailed("the rules of this program aren't those that the job was planned with")
    return policy


def _raw_copy(context: StepContext, inputs: ReadInputs) -> Produced:
    with _frozen(context, inputs) as stream, context.output(RAW_TYPE) as output:
        while chunk := stream.read(CHUNK):
            output.write(chunk)
            if inputs.reader is None:
                _tell(context, inputs, stream)
        stream.prove(inputs.sha256)
        return output.finish()


def _frozen(context: StepContext, inputs: ReadInputs) -> AbstractContextManager[FrozenStream]:
    if is_digest(inputs.path):
        return stored(context.open, inputs.path, inputs.name, inputs.offset, inputs.size)
    return frozen(inputs.path, inputs.name, inputs.offset, inputs.size)


def _tell(context: StepContext, inputs: ReadInputs, stream: FrozenStream) -> None:
    context.progress(stream.position, inputs.size, "bytes")


def _named(produced: Produced) -> dict[str, Any]:
    return {"digest": produced.digest, "size": produced.size}
