"""From measurements to a table that a person reads, with everything that is needed to judge it."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

__all__ = ["about", "as_markdown", "conditions_of", "into_page", "table"]

_VERSIONS: Final = ("autocode-jobs", "orjson", "prefect", "zstandard")
_MB: Final = 1_000_000
_MIB: Final = 1 << 20
_NS: Final = 1000
"""Nanoseconds a byte that a second a megabyte is."""

_PHASES: Final = ("until_server", "until_claim", "scan", "read", "bundle_and_verify", "deliver")


def about() -> dict[str, Any]:
    """Return what the figures depend on: machine, versions, load, date."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {_memory()} GB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": {name: version(name) for name in _VERSIONS}
        | {"zstd": _first_line("zstd", "--version"), "tar": _first_line("tar", "--version")},
        "load_before": os.getloadavg()[0],
    }


def as_markdown(document: dict[str, Any]) -> str:
    """Return the results as tables in Markdown."""
    return "".join(
        (
            _conditions(document),
            "\n",
            table(
                (
                    "corpus",
                    "peer",
                    "job",
                    "speed beside peer",
                    "after the server",
                    "whole command",
                    "CPU",
                    "memory",
                ),
                [_first_row(each) for each in document["results"]],
            ),
            "\n",
            table(
                (
                    "corpus",
                    "peer",
                    "half of it",
                    "floor, one process",
                    f"floor, {document['processes']} processes",
                    "floor, CPU a byte",
                    "job",
                    "job, CPU a byte",
                ),
                [_floor_row(each, document["processes"]) for each in document["results"]],
            ),
            "\n",
            table(
                ("corpus", "first", "nothing changed", "share", "one session grown", "share"),
                [_again_row(each) for each in document["results"]],
            ),
            "\n",
            table(
                (
                    "corpus",
                    "until the server answers",
                    "until the claim",
                    "scan",
                    "read",
                    "bundle",
                    "deliver",
                ),
                [_phase_row(each) for each in document["results"]],
            ),
            "\n",
            table(
                ("corpus", *(name for name in document["results"][0]["stages"])),
                [_stage_row(each) for each in document["results"]],
            ),
        )
    )


def into_page(page: Path, text: str, *, name: str) -> None:
    """Replace what stands between the page's two marks of this *name* by *text*."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, found, rest = page.read_text("utf-8").partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"{page} has no place for {name}: {begin.strip()} {end.strip()}")
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")


def conditions_of(facts: dict[str, Any]) -> str:
    """Return what :func:`about` found out as a sentence."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return f"{facts['date']}; {facts['machine']}; {facts['system']}; {versions}."


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _conditions(document: dict[str, Any]) -> str:
    facts = document["about"]
    made_of = ", ".join(sorted({each["made_of"] for each in document["results"]}))
    return (
        f"{conditions_of(facts)} n = {document['n']}, medians "
        f"(least to most). Load {facts['load_before']:.1f} before, {facts['load_after']:.1f} after. "
        f"Corpora: copies of {made_of} under other ids. {document['seconds']} s in all.\n"
    )


def _first_row(result: dict[str, Any]) -> tuple[str, ...]:
    first, peer = result["first"], result["peer"]
    size = result["bytes"] / _MB
    beside = _median(peer, "whole") / _median(first, "job")
    return (
        _corpus(result),
        f"{_spread(peer, 'whole')}, {size / _median(peer, 'whole'):.0f} MB/s",
        f"{_spread(first, 'job')}, {size / _median(first, 'job'):.0f} MB/s",
        f"{beside:.0%}",
        _spread(first, "after_server"),
        _spread(first, "whole"),
        f"{_median(first, 'cpu'):.1f} s",
        f"{_most(first, 'peak')} MiB + server {_most(first, 'peak_server')} MiB",
    )


def _floor_row(result: dict[str, Any], processes: int) -> tuple[str, ...]:
    size = result["bytes"] / _MB
    peer, floor, job = (
        size / _median(result[kind], name)
        for kind, name in (("peer", "whole"), ("floor", "whole"), ("first", "job"))
    )
    # both start the same program; what the first one takes beyond the other is the reading
    reading = _median(result["first"], "cpu") - _median(result["unchanged"], "cpu")
    return (
        _corpus(result),
        f"{peer:.0f} MB/s",
        f"{peer / 2:.0f} MB/s",
        f"{floor:.0f} MB/s",
        f"{floor * processes:.0f} MB/s",
        f"{_median(result['floor'], 'cpu') / size * _NS:.1f} ns",
        f"{job:.0f} MB/s",
        f"{max(0.0, reading) / size * _NS:.1f} ns",
    )


def _again_row(result: dict[str, Any]) -> tuple[str, ...]:
    first = _median(result["first"], "job")
    cells = [_corpus(result), f"{first:.2f} s"]
    for kind in ("unchanged", "grown"):
        cells += [_spread(result[kind], "job"), f"{_median(result[kind], 'job') / first:.0%}"]
    return tuple(cells)


def _phase_row(result: dict[str, Any]) -> tuple[str, ...]:
    return (_corpus(result), *(f"{_median(result['first'], name):.2f} s" for name in _PHASES))


def _stage_row(result: dict[str, Any]) -> tuple[str, ...]:
    return (_corpus(result), *(f"{speed:.0f} MB/s" for speed in result["stages"].values()))


def _corpus(result: dict[str, Any]) -> str:
    return f"{result['bytes'] / _MB:.0f} MB in {result['files']}"


def _median(runs: list[dict[str, float]], name: str) -> float:
    return median(each[name] for each in runs)


def _most(runs: list[dict[str, float]], name: str) -> int:
    return round(max(each[name] for each in runs) / _MIB)


def _spread(runs: list[dict[str, float]], name: str) -> str:
    values = [each[name] for each in runs]
    return f"{median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "?")


def _memory() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()[0].replace(",", " ").split()
    return next(word.lstrip("v") for word in words if word.lstrip("v")[:1].isdigit())
