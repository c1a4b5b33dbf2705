"""Corpora of raw sessions in any size: generated ones and real ones, copied under other ids."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autocode.jobs.testing.samples import write_samples

__all__ = ["Corpus", "grow", "make_corpus", "templates"]

_GENERATED: Final = 20.0
_UUID: Final = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CALL: Final = re.compile(
    rb"(?<=toolu_)[0-9A-Za-z]{16,}|(?<=call_)[0-9A-Za-z]{16,}|(?<=msg_)[0-9A-Za-z]{16,}"
)
_LARGE: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Corpus:
    """Session files in a folder.

    Args:
        folder: where they are.
        files: their number.
        size: their bytes in all.
        made_of: what the copies are copies of.
    """

    folder: Path
    files: int
    size: int
    made_of: str


def templates(folder: Path, samples: Path | None) -> tuple[list[Path], str]:
    """Return session files to copy from: real ones in *samples*, else ones generated in *folder*."""
    if samples is not None:
        found = sorted(path for path in samples.rglob("*.jsonl") if 0 < path.stat().st_size <= _LARGE)
        return found, "real sessions"
    made = folder / "templates"
    if not made.exists():
        write_samples(made, seed=11, sessions=60, megabytes=_GENERATED)
    return sorted(made.rglob("*.jsonl")), "generated sessions"


def make_corpus(folder: Path, sources: list[Path], made_of: str, *, size: int, sessions: int) -> Corpus:
    """Fill *folder* with about *size* bytes in *sessions* files, no two of them equal.

    A file is one template after another under one session id until it has its share of the bytes; every id in
    it is its own. The same arguments give the same bytes.
    """
    folder.mkdir(parents=True)
    written = 0
    queue = _endless(sources)
    for number in range(sessions):
        share = (size - written) // (sessions - number)
        with (folder / f"{number:05}.jsonl").open("wb") as file:
            for piece in _session(queue, number, share):
                file.write(piece)
                written += len(piece)
    os.sync()
    return Corpus(folder, sessions, written, made_of)


def grow(corpus: Corpus, *, step: int) -> int:
    """Append a copy of its own last line to the middle session; return how many bytes that was."""
    path = corpus.folder / f"{corpus.files // 2:05}.jsonl"
    line = path.read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
    text = _with_ids(line, f"grown {step}") + b"\n"
    with path.open("ab") as file:
        file.write(text)
    return len(text)


def _endless(sources: list[Path]) -> Iterator[bytes]:
    while True:
        for path in sources:
            yield path.read_bytes()


def _session(queue: Iterator[bytes], number: int, share: int) -> Iterator[bytes]:
    left = share
    copy = 0
    while left > 0:
        text = _with_ids(next(queue), f"{number} {copy}").rstrip(b"\n") + b"\n"
        if len(text) > left:
            # whole lines, and one at least
            end = text.find(b"\n", left)
            text = text[: end + 1] if end >= 0 else text
        yield text
        left -= len(text)
        copy += 1


def _with_ids(text: bytes, salt: str) -> bytes:
    known: dict[bytes, bytes] = {}

    def other(match: re.Match[bytes]) -> bytes:
        old = match[0]
        new = known.get(old)
        if new is None:
            digest = hashlib.blake2b(old, key=salt.encode(), digest_size=32).hexdigest().encode()
            new = digest[: len(old)] if b"-" not in old else _dashed(digest)
            known[old] = new
        return new.ljust(len(old), b"0")

    return _CALL.sub(other, _UUID.sub(other, text))


def _dashed(digest: bytes) -> bytes:
    return b"-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
