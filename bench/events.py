"""``make bench-events``: how soon those who follow events are told, and what they cost the service.

A real ``autocode-jobs up`` on a home of its own runs small jobs one after the other while some follow. Tables
are printed and, with ``--write``, written into docs/performance.md and bench/results/events.json. Nothing is
asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from bench import processes, service_jobs
from bench.report import about, conditions_of, into_page, table
from bench.service_home import Up, started, temporary

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "performance.md"
RESULT: Final = ROOT / "bench" / "results" / "events.json"

_MS: Final = 1000
_MB: Final = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure as the command line says."""
    options = _options(arguments)
    began = time.monotonic()
    document: dict[str, Any] = {"about": about(), "jobs": options.jobs, "rows": []}
    with temporary(options.folder) as (home, environ), started(home, environ) as up:
        # the first job of a service loads what the others find
        service_jobs.one(up)
        for followers in options.followers:
            _say(f"{followers} who follow")
            document["rows"].append(_measure(up, followers, options.jobs, options.reads))
    document["about"]["load_after"] = os.getloadavg()[0]
    document["seconds"] = round(time.monotonic() - began)
    text = as_markdown(document)
    sys.stdout.write(text)
    if options.write:
        into_page(PAGE, text, name="bench-events")
    for path in filter(None, (options.output, RESULT if options.write else None)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def as_markdown(document: dict[str, Any]) -> str:
    """Return the results as a table in Markdown."""
    facts = document["about"]
    head = ("follow", "fact → follower p50", "p95", "p99", "n", "missing", "API's memory", "status read p50")
    rows = [
        (
            str(row["followers"]),
            *(f"{row['latency'][name] * _MS:.0f} ms" for name in ("p50", "p95", "p99")),
            str(row["messages"]),
            str(row["missing"]),
            f"{row['memory'] / _MB:.0f} MB",
            f"{row['read']['p50'] * _MS:.1f} ms",
            f"{row['read']['p99'] * _MS:.1f} ms",
            f"{row['read']['per_second']:.0f}",
        )
        for row in document["rows"]
    ]
    return (
        f"{conditions_of(facts)} {document['jobs']} jobs, one after the other. "
        f"Load {facts['load_before']:.1f} before, {facts['load_after']:.1f} after. "
        f"{document['seconds']} s in all.\n\n"
        f"{table((*head, 'p99', 'reads a second'), rows)}"
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.events", description=__doc__)
    parser.add_argument(
        "--followers", type=lambda text: [int(each) for each in text.split(",")], default=[1, 100, 500]
    )
    parser.add_argument("--jobs", type=int, default=40, help="jobs for each number of followers")
    parser.add_argument("--reads", type=int, default=500, help="status reads for each of them")
    parser.add_argument("--folder", type=Path, help="where to work, by a short path; $TMPDIR otherwise")
    parser.add_argument("--output", type=Path, help="write the figures as JSON to this file")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md and bench/results")
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    sys.stderr.write(f"{datetime.now().astimezone():%H:%M:%S} {text}, load {os.getloadavg()[0]:.1f}\n")


def _measure(up: Up, followers: int, jobs: int, reads: int) -> dict[str, Any]:
    first, job_id = _newest(up)
    with _following(up, followers) as process:
        for _ in range(jobs):
            service_jobs.one(up)
        read = _reads(up, job_id, reads)
        memory = processes.proportional_set(up.pid_of("api"))
        # what is on its way arrives; the figures come from the events' own times
        time.sleep(1.0)
        events = _newest(up)[0] - first
        written, _ = process.communicate(timeout=120)
    found = json.loads(written)
    return {
        "followers": followers,
        "latency": _shares(found["latencies"]),
        "messages": len(found["latencies"]),
        "missing": sum(events - told for told in found["told"]),
        "memory": memory,
        "read": read,
    }


@contextmanager
def _following(up: Up, count: int) -> Iterator[subprocess.Popen[str]]:
    url = str(up.client.base_url).rstrip("/")
    token = up.client.headers["Authorization"].removeprefix("Bearer ")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "bench.events_followers",
            f"{url.replace('http', 'ws', 1)}/v1/events",
            str(count),
        ],
        env={**os.environ, "AUTOCODE_TOKEN": token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the followers could not connect")
        yield process
    finally:
        process.kill()
        process.wait()


def _newest(up: Up) -> tuple[int, str]:
    """Return the newest cursor, as a number, and the newest job."""
    page = up.client.get("/v1/jobs", params={"page_size": 1}).raise_for_status().json()
    return int(page["event_cursor"].rpartition(":")[2]), page["jobs"][0]["job_id"]


def _reads(up: Up, job_id: str, count: int) -> dict[str, float]:
    """Read the status of one job again and again on one connection."""
    seconds = []
    began = time.monotonic()
    for _ in range(count):
        asked = time.monotonic()
        up.client.get(f"/v1/jobs/{job_id}").raise_for_status()
        seconds.append(time.monotonic() - asked)
    return {**_shares(seconds), "per_second": count / (time.monotonic() - began)}


def _shares(values: list[float]) -> dict[str, float]:
    cuts = quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


if __name__ == "__main__":
    sys.exit(main())
