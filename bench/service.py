"""``make bench-service``: ``autocode-jobs up`` on a fresh home, beside Prefect's own process worker.

Both work on the same Prefect server, in one go, each with as many jobs at once, but never at the same time.
Medians with spread are printed as tables and, with ``--write``, written into docs/performance.md and
bench/results/service.json. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from autocode.jobs.settings import Home
from bench import processes, service_jobs
from bench.report import about, into_page
from bench.service_home import Up, started, temporary
from bench.service_report import as_markdown

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "performance.md"
RESULT: Final = ROOT / "bench" / "results" / "service.json"

_FULL: Final = {
    "starts": 3,
    "latencies": 200,
    "bursts": 3,
    "burst": 60,
    "kills": 5,
    "idle": 20.0,
    "peer_latencies": 8,
    "peer_burst": 16,
}
_SHORT: Final = {
    "starts": 1,
    "latencies": 20,
    "bursts": 1,
    "burst": 30,
    "kills": 1,
    "idle": 5.0,
    "peer_latencies": 2,
    "peer_burst": 6,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure as the command line says."""
    options = _options(arguments)
    sizes: dict[str, Any] = dict(_SHORT if options.short else _FULL)
    sizes |= {name: value for name in sizes if (value := getattr(options, name)) is not None}
    machine = about()
    began = time.monotonic()
    document: dict[str, Any] = {"about": machine, "workers": options.workers, "sizes": sizes}
    with temporary(options.folder) as (home, environ):
        first = _starts(home, environ, options.folder, sizes["starts"])
        _say("the last start")
        with started(home, environ, "--workers", str(options.workers)) as up:
            first["warm" if sizes["starts"] else "cold"].append(_start(up))
            document |= first | _running(up, sizes, options.workers, home.path.parent)
    machine["load_after"] = os.getloadavg()[0]
    document["seconds"] = round(time.monotonic() - began)
    text = as_markdown(document)
    sys.stdout.write(text)
    if options.write:
        into_page(PAGE, text, name="bench-service")
    for path in filter(None, (options.output, RESULT if options.write else None)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.service", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few repetitions, below three minutes")
    parser.add_argument("--workers", type=int, default=4, help="jobs at once, of both")
    for name, value in _FULL.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), help=f"{value} otherwise")
    parser.add_argument("--folder", type=Path, help="where to work, by a short path; $TMPDIR otherwise")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file")
    parser.add_argument(
        "--write", action="store_true", help="write docs/performance.md and bench/results/service.json"
    )
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    sys.stderr.write(f"{datetime.now().astimezone():%H:%M:%S} {text}, load {os.getloadavg()[0]:.1f}\n")


def _starts(
    home: Home, environ: dict[str, str], folder: Path | None, number: int
) -> dict[str, list[dict[str, Any]]]:
    """Start *number* services on empty homes, the last of them *home*, and one less on that home again."""
    cold, warm = [], []
    for each in range(number):
        _say(f"cold start {each + 1}")
        if each < number - 1:
            with temporary(folder) as (other, its), started(other, its) as up:
                cold.append(_start(up))
        else:
            with started(home, environ) as up:
                cold.append(_start(up))
    for each in range(number - 1):
        _say(f"warm start {each + 1}")
        with started(home, environ) as up:
            warm.append(_start(up))
    return {"cold": cold, "warm": warm}


def _start(up: Up) -> dict[str, Any]:
    return {"seconds": up.seconds, "cpu": up.cpu, "parts": up.parts, "load": os.getloadavg()[0]}


def _running(up: Up, sizes: dict[str, Any], workers: int, folder: Path) -> dict[str, Any]:
    """Measure a service that runs: idle, one job at a time, many at once, the peer, and kills."""
    loads = {}

    def say(what: str) -> None:
        loads[what] = os.getloadavg()[0]
        _say(what)

    say("the idle system")
    # the first job of a service loads what the others find
    service_jobs.one(up)
    idle = _idle(up, sizes["idle"])
    say("jobs one at a time")
    ones = [asdict(service_jobs.one(up)) for _ in range(sizes["latencies"])]
    say("many jobs at once")
    bursts = [asdict(service_jobs.burst(up, sizes["burst"])) for _ in range(sizes["bursts"])]
    peer = None
    if sizes["peer_burst"]:
        say("the process worker")
        peer = _peer(up, workers, sizes["peer_latencies"], sizes["peer_burst"])
    say("kills of an attempt's process")
    children = [asdict(service_jobs.kill_child(up, folder)) for _ in range(sizes["kills"])]
    say("kills of the worker and all its processes")
    trees = [asdict(service_jobs.kill_tree(up, folder)) for _ in range(sizes["kills"])]
    return {
        "idle": idle,
        "ones": ones,
        "bursts": bursts,
        "peer": peer,
        "kills_of_child": children,
        "kills_of_tree": trees,
        "loads": loads,
    }


def _idle(up: Up, seconds: float) -> dict[str, Any]:
    """Return memory and processor time by part while nothing is asked for."""
    its = processes.of_home(up.home.path)
    before = processes.cpu_seconds(its)
    began = time.monotonic()
    time.sleep(seconds)
    after = processes.cpu_seconds(its)
    passed = time.monotonic() - began
    used = {part: (after[part] - before[part]) / passed for part in after}
    return {"seconds": passed, "cpu": used, "memory": processes.memory(its)}


def _peer(up: Up, workers: int, latencies: int, jobs: int) -> dict[str, Any]:
    url, auth = up.prefect
    with tempfile.TemporaryDirectory(prefix="bench-peer-") as folder:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        environ |= {
            "PREFECT_API_URL": url,
            "PREFECT_API_AUTH_STRING": auth,
            "PREFECT_HOME": folder,
            "DO_NOT_TRACK": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), environ.get("PYTHONPATH")))),
        }
        done = subprocess.run(
            [sys.executable, "-m", "bench.service_peer", str(workers), str(latencies), str(jobs)],
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


if __name__ == "__main__":
    sys.exit(main())
