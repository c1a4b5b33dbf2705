"""``make bench-export``: the export of raw sessions beside ``tar | zstd -3 | sha256sum`` on the same files.

Both run alternately, in one go, each several times, and so does the floor, the least that Python's libraries
take for this normal form (``bench/floor.py``). Medians and spread are printed as a table and, with
``--write``, written into docs/performance.md and bench/results/export.json. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from autocode.jobs.engine.workers import processes
from bench.corpus import Corpus, grow, make_corpus, templates
from bench.measure import Measured, run
from bench.report import about, as_markdown, into_page
from bench.stages import stages

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "performance.md"
RESULT: Final = ROOT / "bench" / "results" / "export.json"
_PROGRAM: Final = Path(sys.executable).parent / "autocode-jobs"
_PEER: Final = 'tar -cf - -C "$1" . | zstd -3 -c | sha256sum'
_MB: Final = 1_000_000
_SETTLE_SECONDS: Final = 125


@dataclass
class Runs:
    """All runs on one corpus."""

    corpus: Corpus
    peer: list[Measured] = field(default_factory=list)
    floor: list[dict[str, float]] = field(default_factory=list)
    first: list[dict[str, float]] = field(default_factory=list)
    unchanged: list[dict[str, float]] = field(default_factory=list)
    grown: list[dict[str, float]] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        peer = [{"whole": each.seconds, "cpu": each.cpu, "peak": each.peak} for each in self.peer]
        return {
            "bytes": self.corpus.size,
            "files": self.corpus.files,
            "made_of": self.corpus.made_of,
            "peer": peer,
            "floor": self.floor,
            "first": self.first,
            "unchanged": self.unchanged,
            "grown": self.grown,
            "stages": self.stages,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure as the command line says."""
    options = _options(arguments)
    samples = os.environ.get("AUTOCODE_SAMPLES")
    machine = about()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.folder) as name:
        folder = Path(name)
        sources, made_of = templates(folder, Path(samples) if samples else None)
        results, corpora = [], []
        for size in options.sizes:
            sessions = options.sessions or max(2, min(500, 5 * size))
            corpora.append(
                make_corpus(folder / f"{size}MB", sources, made_of, size=size * _MB, sessions=sessions)
            )
        if options.settle:
            _say(f"{_SETTLE_SECONDS} s until files are old enough for an export to believe in them")
            time.sleep(_SETTLE_SECONDS)
        for size, corpus in zip(options.sizes, corpora, strict=True):
            runs = Runs(corpus)
            for number in range(options.n):
                _say(f"{size} MB, {corpus.files} sessions: run {number + 1} of {options.n}")
                _once(runs, folder, number)
            runs.stages = stages(corpus)
            results.append(runs.to_json())
            shutil.rmtree(corpus.folder)
    machine["load_after"] = os.getloadavg()[0]
    document = {
        "about": machine,
        "n": options.n,
        "processes": max(1, processes()),
        "results": results,
        "seconds": round(time.monotonic() - began),
    }
    text = as_markdown(document)
    sys.stdout.write(text)
    if options.write:
        into_page(PAGE, text, name="bench-export")
    for path in filter(None, (options.output, RESULT if options.write else None)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.export", description=__doc__)
    parser.add_argument("--sizes", type=_sizes, default=[1, 10, 100], help="in MB, as in 1,10,100,1000")
    parser.add_argument("-n", type=int, default=3, help="runs of each kind")
    parser.add_argument("--sessions", type=int, help="files in each corpus; 5 a megabyte up to 500 otherwise")
    parser.add_argument(
        "--folder", type=Path, help="where to work, on the disk to measure; $TMPDIR otherwise"
    )
    parser.add_argument(
        "--no-settle",
        dest="settle",
        action="store_false",
        help="don't wait for two minutes: what is unchanged is read again then",
    )
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file")
    parser.add_argument(
        "--write", action="store_true", help="write docs/performance.md and bench/results/export.json"
    )
    options = parser.parse_args(arguments)
    if options.n < 1:
        parser.error("-n must be 1 at least")
    return options


def _sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _say(text: str) -> None:
    sys.stderr.write(f"{datetime.now().astimezone():%H:%M:%S} {text}\n")


def _once(runs: Runs, folder: Path, number: int) -> None:
    """Run the peer, the floor, a first export, one with nothing changed, and one with one session grown."""
    home, out = folder / "home", folder / "out"
    runs.peer.append(
        run(["bash", "-o", "pipefail", "-c", _PEER, "peer", runs.corpus.folder], dict(os.environ))
    )
    runs.floor.append(_floor(runs.corpus))
    runs.first.append(_export(runs.corpus, home, out))
    runs.unchanged.append(_export(runs.corpus, home, out))
    grow(runs.corpus, step=number)
    runs.grown.append(_export(runs.corpus, home, out))
    _let_server_end(home)
    shutil.rmtree(home)


def _floor(corpus: Corpus) -> dict[str, float]:
    # in a process of its own, so that nothing of this one is in it
    measured = run([sys.executable, "-m", "bench.floor", corpus.folder], dict(os.environ))
    figures: dict[str, float] = json.loads(measured.out)
    return figures


def _export(corpus: Corpus, home: Path, out: Path) -> dict[str, float]:
    environment = {**os.environ, "AUTOCODE_HOME": str(home)}
    command: list[str | Path] = [_PROGRAM, "export", corpus.folder, "-o", out, "--json"]
    measured = run(command, environment, watched=home / "run" / "server.json")
    shutil.rmtree(out)
    return _phases(json.loads(measured.out.splitlines()[-1]), measured)


def _phases(job: dict[str, Any], measured: Measured) -> dict[str, float]:
    """Return the seconds of each phase, by the clocks of the job resource and of the server's own file."""
    end = measured.began + measured.seconds
    server = max(measured.began, measured.written)
    started, completed = (_seconds(job["times"][name]) for name in ("started_at", "completed_at"))
    steps = [(entry["step"], _seconds(entry["at"])) for entry in job["history"]]
    scanned = next(at for step, at in steps if step == "scan")
    read = max((at for step, at in steps if step.startswith("read")), default=scanned)
    return {
        "whole": measured.seconds,
        "until_server": server - measured.began,
        "after_server": end - server,
        "job": completed - started,
        "until_claim": started - server,
        "scan": scanned - started,
        "read": read - scanned,
        "bundle_and_verify": completed - read,
        "deliver": end - completed,
        "cpu": measured.cpu,
        "peak": measured.peak,
        "peak_server": measured.peak_server,
    }


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _let_server_end(home: Path) -> None:
    """Wait until the home's Prefect server has ended: it outlives its last client by two seconds."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and _serves(home):
        time.sleep(0.1)


def _serves(home: Path) -> bool:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.fsencode(home) in (entry / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


if __name__ == "__main__":
    sys.exit(main())
