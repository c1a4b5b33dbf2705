"""One file at successive moments, each exported into one home: what is read again, and what comes out."""

from __future__ import annotations

import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from autocode.jobs.sessions import PART, Cutter
from export_context import Job, export, job_over, line, run

SCAN = sys.modules["autocode.jobs.operations.export.scan"]
SMALL = 4096


class _Counting(io.FileIO):
    """A file that counts what is read from it, below everything that an export does."""

    count: Counter[str]
    place: str

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(-1 if size is None else size)
        assert data is not None
        self.count[self.place] += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        size = super().readinto(buffer)
        assert size is not None
        self.count[self.place] += size
        return size


@contextmanager
def bytes_read() -> Iterator[Counter[str]]:
    """Count the bytes read from each file that is opened unbuffered, by the path that the system gives it."""
    count: Counter[str] = Counter()
    real: Callable[..., Any] = os.fdopen

    def fdopen(descriptor: int, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if (mode, options.get("buffering")) != ("rb", 0):
            return real(descriptor, mode, *arguments, **options)
        file = _Counting(descriptor, "rb", closefd=options.get("closefd", True))
        file.count, file.place = count, str(Path(f"/dev/fd/{descriptor}").resolve())
        return file

    with mock.patch.object(os, "fdopen", fdopen):
        yield count


def exported(moments: Sequence[bytes], folder: Path) -> list[tuple[str, int, int]]:
    """Export *moments* of one file in a row; return each artifact, and what ``scan`` and ``read`` read."""
    root = folder / "root"
    root.mkdir()
    path = root / "session.jsonl"
    job = job_over(root, folder / "one")
    done = []
    for number, content in enumerate(moments):
        path.write_bytes(content)
        scanned: list[int] = []
        with bytes_read() as count:

            def before(step: str, *, scanned: list[int] = scanned, count: Counter[str] = count) -> None:
                if step == "read" and not scanned:
                    scanned.append(count[str(path)])

            job = Job(job.context, job.payload, memo=job.memo, job_id=f"job-{number}", before=before)
            digest = run(job)
        done.append((digest, scanned[0], count[str(path)] - scanned[0]))
    return done


def fresh(moments: Sequence[bytes], folder: Path) -> list[str]:
    """Export each of *moments* into a home of its own; return the artifacts."""
    digests = []
    for number, content in enumerate(moments):
        root = folder / f"root-{number}"
        root.mkdir()
        (root / "session.jsonl").write_bytes(content)
        digests.append(export(root, folder / f"home-{number}")[1])
    return digests


def parts_of(content: bytes, size: int) -> list[bytes]:
    """Cut *content* as docs/normal-form.md says, without the code that does it."""
    parts = []
    while (end := content.find(b"\n", size) + 1) and end < len(content):
        parts.append(content[:end])
        content = content[end:]
    return [*parts, content]


def new_bytes(moments: Sequence[bytes], size: int) -> list[int]:
    """Return what each moment must cost: all behind the whole parts that were there as such before."""
    costs = []
    seen: list[list[bytes]] = []
    for content in moments:
        parts = parts_of(content, size)
        known = max((_common(parts, old) for old in seen), default=0)
        costs.append(sum(map(len, parts[known:])))
        seen.append(parts)
    return costs


def _common(parts: list[bytes], old: list[bytes]) -> int:
    # the last part is read to its end, with a report: it helps only the very same file
    if parts == old:
        return len(parts)
    pairs = zip(parts[:-1], old[:-1], strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def said(first: int, count: int) -> bytes:
    """Return *count* lines of about 400 bytes."""
    return b"".join(line(f"{n} " + "x" * 200, uuid=f"u{n}") for n in range(first, first + count))


def successors() -> list[bytes]:
    """Return seven moments: grown four times, then rewritten at its head, cut short, and as it once was."""
    grown = said(0, 20)
    moments = [grown]
    for first, count in ((20, 1), (21, 30), (51, 2)):
        grown += said(first, count)
        moments.append(grown)
    moments.append(grown + said(53, 1)[:-9])
    rewritten = line("another beginning", uuid="u-new") + grown[grown.index(b"\n") + 1 :]
    return [*moments, rewritten, grown[: len(grown) // 2], moments[1]]


def test_a_growing_file_costs_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where whole parts are as they were, what follows them is read; where the head differs, everything."""
    monkeypatch.setattr(SCAN, "Cutter", partial(Cutter, SMALL))
    moments = successors()

    done = exported(moments, tmp_path)

    costs = new_bytes(moments, SMALL)
    assert [cost for _, _, cost in done] == costs
    assert [scanned for _, scanned, _ in done] == [len(content) for content in moments]
    assert costs[0] == len(moments[0])
    assert costs[1] < SMALL + 2 * 500
    assert costs[-1] == 0
    assert costs[-3] == len(moments[-3])


def test_a_growing_file_gives_the_artifacts_of_fresh_homes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was exported before leaves no trace in an artifact."""
    monkeypatch.setattr(SCAN, "Cutter", partial(Cutter, SMALL))
    moments = successors()

    done = exported(moments, tmp_path)

    assert [digest for digest, _, _ in done] == fresh(moments, tmp_path)


@pytest.mark.needs_samples
def test_a_real_session_at_six_moments(tmp_path: Path) -> None:
    """The sample's moments, one after another as one file: each costs what is new, with the right artifact.

    No moment of the sample extends the one before, byte for byte, so each is read whole.
    """
    folder = Path(os.environ["AUTOCODE_SAMPLES"]) / "growth"
    moments = [path.read_bytes() for path in sorted(folder.glob("*/*.jsonl"))]

    done = exported(moments, tmp_path)

    assert [cost for _, _, cost in done] == new_bytes(moments, PART) == [len(content) for content in moments]
    assert [digest for digest, _, _ in done] == fresh(moments, tmp_path)
    assert len(moments) == 6


@pytest.mark.needs_samples
def test_a_real_session_that_grows_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest moment of the sample as it must have grown: only its last part is read again."""
    monkeypatch.setattr(SCAN, "Cutter", partial(Cutter, 1 << 16))
    folder = Path(os.environ["AUTOCODE_SAMPLES"]) / "growth"
    lines = max((path.read_bytes() for path in folder.glob("*/*.jsonl")), key=len).splitlines(keepends=True)
    moments = [b"".join(lines[: len(lines) * part // 6]) for part in range(1, 7)]

    done = exported(moments, tmp_path)

    assert [cost for _, _, cost in done] == new_bytes(moments, 1 << 16)
    assert [digest for digest, _, _ in done] == fresh(moments, tmp_path)
    assert sum(cost for _, _, cost in done) < sum(map(len, moments)) / 2
