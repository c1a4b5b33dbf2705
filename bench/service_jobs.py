"""Jobs through the API of a running service: how long they take, how many a second, and after a kill."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx
import sqlalchemy as sa

from autocode.jobs.ledger import schema as t
from autocode.jobs.testing.scenarios import NOOP, SLOW, witnessed
from bench import processes
from bench.service_home import Up, until

__all__ = ["Burst", "Kill", "One", "burst", "enqueue", "kill_child", "kill_tree", "one"]

_COMPLETE_SECONDS: Final = 120.0
_HELD_SECONDS: Final = 30
_SLOW_SECONDS: Final = 100.0
_RUNNING_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class One:
    """One job that had the service for itself; seconds.

    Args:
        enqueue: from the request until the answer 202.
        seen: from the request until the client had read that it is complete.
        ledger: between the ledger's own times of the two.
    """

    enqueue: float
    seen: float
    ledger: float


@dataclass(frozen=True, slots=True)
class Burst:
    """Many jobs at once.

    Args:
        enqueue: seconds of each request until its answer, one after the other.
        per_second: jobs, from the first request until the last was complete.
        cpu: processor seconds a job by part, children included.
    """

    enqueue: list[float]
    per_second: float
    cpu: dict[str, float]


@dataclass(frozen=True, slots=True)
class Kill:
    """From a kill until the next attempt's step ran; seconds.

    Args:
        ended: until the ledger had the killed attempt as ended.
        backoff: the pause that the job's kind asks for.
        running: until the step ran again, the backoff included.
    """

    ended: float
    backoff: float
    running: float


def enqueue(up: Up, kind: str, **payload: Any) -> tuple[str, float]:
    """Ask for a job; return its id and the seconds that the answer took."""
    body = {"kind": kind, "payload": {"salt": uuid.uuid4().hex, **payload}}
    began = time.perf_counter()
    answer = up.client.post("/v1/jobs", json=body)
    seconds = time.perf_counter() - began
    if answer.status_code != httpx.codes.ACCEPTED:
        raise SystemExit(f"the API answered {answer.status_code}: {answer.text}")
    job_id: str = answer.json()["job_id"]
    return job_id, seconds


def one(up: Up) -> One:
    """Run one job that does nothing, and wait for it as a client does."""
    began = time.perf_counter()
    job_id, seconds = enqueue(up, NOOP.name, witness="none")
    job = _completed(up, job_id)
    seen = time.perf_counter() - began
    return One(seconds, seen, _between(job["times"]["enqueued_at"], job["times"]["completed_at"]))


def burst(up: Up, number: int) -> Burst:
    """Ask for *number* jobs that do nothing, then wait until all of them are complete."""
    before = processes.cpu_seconds(processes.of_home(up.home.path))
    began = time.time()
    asked = [enqueue(up, NOOP.name, witness="none") for _ in range(number)]
    jobs = [_completed(up, job_id) for job_id, _ in asked]
    after = processes.cpu_seconds(processes.of_home(up.home.path))
    last = max(datetime.fromisoformat(job["times"]["completed_at"]).timestamp() for job in jobs)
    return Burst(
        enqueue=[seconds for _, seconds in asked],
        per_second=number / (last - began),
        cpu={part: (after[part] - before[part]) / number for part in after},
    )


def kill_child(up: Up, folder: Path) -> Kill:
    """Kill the process of a running attempt."""
    return _kill(up, folder, lambda child: [child])


def kill_tree(up: Up, folder: Path) -> Kill:
    """Kill the worker, its zygote and the attempt's process at once; ``up`` starts another worker."""

    def tree(_child: int) -> list[int]:
        worker = next(each.pid for each in processes.of_home(up.home.path) if each.part == "worker")
        return [worker, *processes.descendants(worker)]

    return _kill(up, folder, tree)


def _kill(up: Up, folder: Path, victims: Callable[[int], list[int]]) -> Kill:
    witness = folder / f"witness-{uuid.uuid4().hex}"
    job_id, _ = enqueue(up, SLOW.name, witness=str(witness), seconds=_SLOW_SECONDS)
    until(lambda: len(witnessed(witness)) == 1, within=_RUNNING_SECONDS)
    child = int(witnessed(witness)[0].split()[1])
    doomed = victims(child)
    began = time.time()
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: len(witnessed(witness)) > 1, within=_RUNNING_SECONDS)
    running = time.time() - began
    with up.ledger() as db, db.read() as tx:
        query = sa.select(t.attempts).where(t.attempts.c.job_id == job_id).order_by(t.attempts.c.n)
        first, *_, last = tx.execute(query)
    up.client.post(f"/v1/jobs/{job_id}/cancel", json={"reason": "measured"}).raise_for_status()
    until(lambda: _status(up, job_id) in {"complete", "dead"}, within=_RUNNING_SECONDS, pause=0.1)
    return Kill(
        ended=first.ended_at.timestamp() - began,
        backoff=(last.due_at - first.ended_at).total_seconds(),
        running=running,
    )


def _completed(up: Up, job_id: str) -> dict[str, Any]:
    end = time.monotonic() + _COMPLETE_SECONDS
    while time.monotonic() < end:
        answer = up.client.get(f"/v1/jobs/{job_id}", headers={"Prefer": f"wait={_HELD_SECONDS}"})
        job: dict[str, Any] = answer.raise_for_status().json()
        if job["status"] == "complete":
            return job
        if job["status"] == "dead":
            raise SystemExit(f"{job_id} is dead: {job['error']}")
    raise SystemExit(f"{job_id} is not complete after {_COMPLETE_SECONDS:.0f} s")


def _status(up: Up, job_id: str) -> str:
    status: str = up.client.get(f"/v1/jobs/{job_id}").raise_for_status().json()["status"]
    return status


def _between(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
