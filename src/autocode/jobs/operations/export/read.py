"""``read``: the frozen bytes of one file into the normal form, redacted, with an account of itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, cast

from autocode.jobs.canonical import canonical_json
from autocode.jobs.kinds import Produced, StepContext
from autocode.jobs.operations.export.encoding import LARGE, encode_record, pieces_of
from autocode.jobs.operations.export.frozen import CHUNK, FrozenStream, frozen
from autocode.jobs.operations.export.payload import ENTRY_TYPE, NORMAL_FORM_TYPE, RAW_TYPE, ReadInputs
from autocode.jobs.redaction import DEFAULT_POLICY, Redactor
from autocode.jobs.sessions import READERS, Record

__all__ = ["Shown", "read_session"]

_FLUSH: Final = 1 << 18


class Shown(Iterator[Record]):
    """The records of a session as an export shows them; when all were taken, its report.

    Args:
        stream: the frozen bytes.
        reader: name of the reader.
        redact: replace secrets; each session has a redactor of its own.
    """

    def __init__(self, stream: FrozenStream, reader: str, *, redact: bool) -> None:
        # held here: a buffer that is collected closes the stream under it
        self._buffer = io.BufferedReader(stream, CHUNK)
        chosen = next(each for each in READERS if each.name == reader)
        self._reading = chosen.read(cast("BinaryIO", self._buffer))
        self._redactor = Redactor(DEFAULT_POLICY) if redact else None

    def __next__(self) -> Record:
        record = next(self._reading)
        if self._redactor is None:
            return record
        shown: Record = self._redactor.redact_record(record["seq"], record)
        return shown

    def accounts(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the reading's report, redacted as well, and that of the redaction. Call it once."""
        report = self._reading.report.to_json()
        if self._redactor is None:
            return report, None
        return self._redactor.redact(report, "/report"), self._redactor.report.to_json()


def read_session(context: StepContext, inputs: ReadInputs) -> Produced:
    """Write the session's normal form and its entry; return the entry.

    The entry is a small document that names the normal form (and, without redaction, the raw bytes) by digest
    and reports what was mapped, lost, damaged and redacted. It depends on the bytes, the reader's revision
    and the policy alone.

    Raises:
        SourceChanged: the file no longer starts with the bytes that ``scan`` recorded.
        SourceUnreadable: the file can't be opened.
    """
    raw = _raw_copy(context, inputs) if inputs.raw else None
    entry: dict[str, Any] = {
        "source": {"sha256": inputs.sha256, "size": inputs.size},
        "raw": None if raw is None else _named(raw),
        "normal": None,
        "report": None,
        "redaction": None,
    }
    needs = [] if raw is None else [raw.digest]
    if inputs.reader is not None:
        normal, entry["report"], entry["redaction"] = _normal_form(context, inputs, inputs.reader)
        entry["normal"] = _named(normal)
        needs.append(normal.digest)
    return context.put([canonical_json(entry)], ENTRY_TYPE, needs=needs)


def _normal_form(
    context: StepContext, inputs: ReadInputs, reader: str
) -> tuple[Produced, dict[str, Any], dict[str, Any] | None]:
    with frozen(inputs) as stream, context.output(NORMAL_FORM_TYPE) as output:
        shown = Shown(stream, reader, redact=inputs.policy is not None)
        _write_lines(shown, output.write, lambda: _tell(context, inputs, stream))
        stream.prove(inputs)
        report, redaction = shown.accounts()
        return output.finish(), report, redaction


def _write_lines(
    records: Iterator[Record], write: Callable[[bytes], None], flushed: Callable[[], None]
) -> None:
    """Write records as JSON lines, a quarter of a mebibyte at a time."""
    pending: list[bytes] = []
    size = 0
    for record in records:
        if record["source"]["length"] >= LARGE:
            write(b"".join(pending))
            pending, size = [], 0
            for piece in pieces_of(record):
                write(piece)
            write(b"\n")
            flushed()
            continue
        line = encode_record(record)
        pending += (line, b"\n")
        size += len(line)
        if size >= _FLUSH:
            write(b"".join(pending))
            pending, size = [], 0
            flushed()
    write(b"".join(pending))


def _raw_copy(context: StepContext, inputs: ReadInputs) -> Produced:
    with frozen(inputs) as stream, context.output(RAW_TYPE) as output:
        while chunk := stream.read(CHUNK):
            output.write(chunk)
            if inputs.reader is None:
                _tell(context, inputs, stream)
        stream.prove(inputs)
        return output.finish()


def _tell(context: StepContext, inputs: ReadInputs, stream: FrozenStream) -> None:
    context.progress(inputs.done_before + stream.position, inputs.total, "bytes")


def _named(produced: Produced) -> dict[str, Any]:
    return {"digest": produced.digest, "size": produced.size}
