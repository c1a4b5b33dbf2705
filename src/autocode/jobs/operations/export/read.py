"""``read``: the frozen bytes of one file into the normal form, redacted, with an account of itself."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast
from urllib.parse import unquote_to_bytes

from autocode.jobs.canonical import canonical_json
from autocode.jobs.errors import SourceChanged, SourceUnreadable, Transient
from autocode.jobs.kinds import Produced, StepContext
from autocode.jobs.operations.export.payload import ENTRY_TYPE, NORMAL_FORM_TYPE, RAW_TYPE, ReadInputs
from autocode.jobs.redaction import DEFAULT_POLICY, Redactor
from autocode.jobs.sessions import READERS, Reader

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["FrozenStream", "read_session"]

_FLUSH: Final = 1 << 18
_CHUNK: Final = 1 << 20


class FrozenStream(io.RawIOBase):
    """The first *size* bytes of a file, hashed as they pass; a file that shrank ends early.

    Args:
        file: the opened file.
        size: how many bytes belong to the frozen input.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__()
        self._file = file
        self._left = size
        self._digest = hashlib.sha256()
        self.position = 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill *buffer*; return how many bytes came, 0 at the end."""
        view = memoryview(buffer).cast("B")
        data = self._file.read(min(len(view), self._left))
        view[: len(data)] = data
        self._digest.update(data)
        self._left -= len(data)
        self.position += len(data)
        return len(data)

    def drain(self) -> str:
        """Read what is left, and return the digest of all."""
        while self.read(_CHUNK):
            pass
        return "sha256:" + self._digest.hexdigest()


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
        redactor = Redactor(DEFAULT_POLICY) if inputs.policy is not None else None
        normal, report = _normal_form(context, inputs, _reader(inputs.reader), redactor)
        entry["normal"] = _named(normal)
        entry["report"] = report
        entry["redaction"] = None if redactor is None else redactor.report.to_json()
        needs.append(normal.digest)
    return context.put([canonical_json(entry)], ENTRY_TYPE, needs=needs)


def _normal_form(
    context: StepContext, inputs: ReadInputs, reader: Reader, redactor: Redactor | None
) -> tuple[Produced, dict[str, Any]]:
    with _frozen(inputs) as stream, context.output(NORMAL_FORM_TYPE) as output:
        reading = reader.read(cast("BinaryIO", io.BufferedReader(stream, _CHUNK)))
        pending: list[bytes] = []
        size = 0
        for record in reading:
            shown = record if redactor is None else redactor.redact_record(record["seq"], record)
            pending.append(canonical_json(shown))
            size += len(pending[-1])
            if size >= _FLUSH:
                output.write(b"\n".join(pending) + b"\n")
                pending, size = [], 0
                context.progress(inputs.done_before + stream.position, inputs.total, "bytes")
        if pending:
            output.write(b"\n".join(pending) + b"\n")
        _same_bytes(stream, inputs)
        report = reading.report.to_json()
        if redactor is not None:
            report = redactor.redact(report, "/report")
        return output.finish(), report


def _raw_copy(context: StepContext, inputs: ReadInputs) -> Produced:
    with _frozen(inputs) as stream, context.output(RAW_TYPE) as output:
        while chunk := stream.read(_CHUNK):
            output.write(chunk)
        _same_bytes(stream, inputs)
        return output.finish()


@contextmanager
def _frozen(inputs: ReadInputs) -> Iterator[FrozenStream]:
    path = os.fsdecode(unquote_to_bytes(inputs.path))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise SourceChanged(f"{inputs.name} vanished after it was scanned.") from error
    except OSError as error:
        raise SourceUnreadable(f"{inputs.name} can't be opened: {error.strerror}.") from error
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SourceChanged(f"{inputs.name} is no regular file any more.")
        try:
            yield FrozenStream(cast("BinaryIO", file), inputs.size)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise Transient(f"{inputs.name} could not be read: {error.strerror}.") from error


def _same_bytes(stream: FrozenStream, inputs: ReadInputs) -> None:
    if stream.drain() != inputs.sha256 or stream.position != inputs.size:
        raise SourceChanged(
            f"{inputs.name} no longer starts with the {inputs.size} bytes that were scanned.",
        )


def _reader(name: str) -> Reader:
    return next(reader for reader in READERS if reader.name == name)


def _named(produced: Produced) -> dict[str, Any]:
    return {"digest": produced.digest, "size": produced.size}
