"""The benchmarks run, whatever they measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.slow
def test_the_benchmark_measures_a_megabyte(tmp_path: Path) -> None:
    """One run on 1 MB gives the figures of peer, floor, export and stages, and tables of them."""
    output = tmp_path / "result.json"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench.export",
            "--sizes",
            "1",
            "-n",
            "1",
            "--no-settle",
            "--output",
            str(output),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )

    (result,) = json.loads(output.read_text())["results"]
    kinds = ("peer", "floor", "first", "unchanged", "grown")
    assert {kind: len(result[kind]) for kind in kinds} == dict.fromkeys(kinds, 1)
    assert result["floor"][0]["bytes"] == result["bytes"]
    assert result["floor"][0]["cpu"] > 0
    assert all(speed > 0 for speed in result["stages"].values())
    assert "| 1 MB in 5 |" in done.stdout


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_benchmark_measures_a_service(tmp_path: Path) -> None:
    """A service on a home of its own gives figures for jobs one by one and at once, and tables of them."""
    output = tmp_path / "result.json"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    tiny = {"starts": 0, "latencies": 2, "bursts": 1, "burst": 2, "kills": 0, "idle": 0.5, "peer-burst": 0}
    options = [f"--{name}={value}" for name, value in tiny.items()]

    done = subprocess.run(
        [sys.executable, "-m", "bench.service", "--short", *options, "--output", str(output)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
    )

    result = json.loads(output.read_text())
    assert all(0 < each["enqueue"] < each["seen"] for each in result["ones"])
    assert len(result["bursts"][0]["enqueue"]) == 2
    assert all(size > 0 for size in result["idle"]["memory"].values())
    assert "| jobs a second, 2 at once |" in done.stdout


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_benchmark_measures_events(tmp_path: Path) -> None:
    """A service with a few who follow gives how late they are told; none misses an event."""
    output = tmp_path / "result.json"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    options = ["--followers", "3", "--jobs", "2", "--reads", "5", "--output", str(output)]

    done = subprocess.run(
        [sys.executable, "-m", "bench.events", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
    )

    (row,) = json.loads(output.read_text())["rows"]
    assert (row["followers"], row["missing"]) == (3, 0)
    assert 0 < row["latency"]["p50"] <= row["latency"]["p99"]
    assert row["memory"] > 0
    assert "| 3 |" in done.stdout
