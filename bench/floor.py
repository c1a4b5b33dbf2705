"""The least that an exporter of this normal form in Python has to do, so that the budget can be judged by it.

One pass over the same bytes in one process, with libraries alone: no record is made, nothing is checked,
stored or committed. Whoever writes JSON records in Python pays this before the first line of their own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import orjson
import zstandard

from autocode.jobs.redaction import DEFAULT_POLICY
from autocode.jobs.redaction.linear import bytes_search

__all__ = ["floor", "main"]

_BLOCK: Final = 1 << 18
_LEVEL: Final = 3


def floor(folder: Path) -> dict[str, float]:
    """Read every session in *folder* once, and return the bytes and what they cost: seconds and CPU seconds.

    For each file: SHA-256 of its bytes, ``orjson.loads`` of each line, ``orjson.dumps`` of its value with
    sorted keys, one search of RE2 for all rules over the lines, SHA-256 and zstd of them. Lines that aren't
    JSON are left out. What has to be there once, such as the compiled search, isn't counted.
    """
    search = bytes_search("|".join(f"(?:{rule.sieve})" for rule in DEFAULT_POLICY.rules))
    search(b"")
    size = 0
    start, cpu = time.perf_counter(), time.process_time()
    for path in sorted(folder.glob("*.jsonl")):
        data = path.read_bytes()
        size += len(data)
        hashlib.sha256(data).digest()
        digest = hashlib.sha256()
        stream = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
        for block in _blocks(data):
            search(block)
            digest.update(block)
            stream.compress(block)
        stream.flush()
    return {"bytes": size, "whole": time.perf_counter() - start, "cpu": time.process_time() - cpu}


def _blocks(data: bytes) -> Iterator[bytes]:
    """Yield the lines of *data*, parsed and written anew, in blocks of a quarter of a mebibyte."""
    lines: list[bytes] = []
    size = 0
    for line in data.split(b"\n"):
        try:
            lines.append(orjson.dumps(orjson.loads(line), option=orjson.OPT_SORT_KEYS))
        except ValueError:
            continue
        size += len(line)
        if size >= _BLOCK:
            yield b"\n".join(lines)
            lines, size = [], 0
    yield b"\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of one folder as JSON: run as a process of its own, which nothing has warmed up."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description=__doc__)
    parser.add_argument("folder", type=Path)
    sys.stdout.write(json.dumps(floor(parser.parse_args(arguments).folder)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
