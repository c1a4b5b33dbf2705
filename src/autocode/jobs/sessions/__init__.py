"""Readers: the bytes of a tool's transcript to one normal form, with a report of what was lost.

``docs/normal-form.md`` specifies the records. A reader is chosen by content::

    with open(path, "rb") as stream:
        reader = sniff(stream.read(HEAD_BYTES))
        stream.seek(0)
        reading = reader.read(stream)
        for record in reading: ...
        reading.report.to_json()

A long source can be read in parts (:class:`Cutter` says where they end), each with the state behind the one
before: ``reader.read(part, state)``.
"""

from autocode.jobs.sessions.base import FORMAT, Reader, Reading, Record, Report, Span, is_kept
from autocode.jobs.sessions.parts import PART, Cutter, Part
from autocode.jobs.sessions.sniff import HEAD_BYTES, READERS, kind_of, sniff

__all__ = [
    "FORMAT",
    "HEAD_BYTES",
    "PART",
    "READERS",
    "Cutter",
    "Part",
    "Reader",
    "Reading",
    "Record",
    "Report",
    "Span",
    "is_kept",
    "kind_of",
    "sniff",
]
