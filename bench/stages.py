"""What each stage of reading does alone, in this process: where the time of an export goes."""

from __future__ import annotations

import hashlib
import io
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import zstandard

from autocode.jobs.operations.export.encoding import encode_record
from autocode.jobs.redaction import DEFAULT_POLICY, Redactor
from autocode.jobs.sessions import HEAD_BYTES, Record, sniff
from autocode.jobs.sessions.jsonvalue import loads
from bench.corpus import Corpus

__all__ = ["stages"]

_ENOUGH: Final = 8_000_000


def stages(corpus: Corpus) -> dict[str, float]:
    """Return the speed of each stage, in megabytes of source a second, on a few megabytes of *corpus*."""
    sources = []
    size = 0
    for path in sorted(corpus.folder.glob("*.jsonl")):
        sources.append(path.read_bytes())
        size += len(sources[-1])
        if size > _ENOUGH:
            break
    lines = [line for source in sources for line in source.split(b"\n") if line]
    records: list[list[Record]] = []
    speeds: dict[str, float] = {}

    def measure(name: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        speeds[name] = size / 1e6 / (time.perf_counter() - start)

    measure("sha256", lambda: [hashlib.sha256(source).digest() for source in sources])
    measure("parse", lambda: [_parsed(line) for line in lines])
    measure("parse and map", lambda: records.extend(_records(source) for source in sources))
    encoded: list[list[bytes]] = []
    measure(
        "encode", lambda: encoded.extend([encode_record(each) for each in session] for session in records)
    )
    pairs = zip(records, encoded, strict=True)
    measure("redact", lambda: [_redacted(session, text) for session, text in pairs])
    compressor = zstandard.ZstdCompressor(level=3)
    measure("zstd", lambda: [compressor.compress(b"\n".join(session)) for session in encoded])
    return speeds


def _parsed(line: bytes) -> object:
    try:
        return loads(line, Counter())
    except ValueError:
        return None


def _records(source: bytes) -> list[Record]:
    reader = sniff(source[:HEAD_BYTES])
    return list(reader.read(io.BytesIO(source))) if reader else []


def _redacted(session: list[Record], encoded: list[bytes]) -> list[Record]:
    redactor = Redactor(DEFAULT_POLICY)
    suspects = getattr(redactor, "suspects", None)
    chosen = range(len(session)) if suspects is None else suspects(encoded)
    return [redactor.redact_record(session[index]["seq"], session[index]) for index in chosen]
