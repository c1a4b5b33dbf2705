"""Many writers, several stampers and a reader at once: the reader misses nothing and sees nothing twice."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from itertools import pairwise

import pytest

from autocode.jobs.ledger import attempts, events, queries, results
from autocode.jobs.ledger.database import Database
from autocode.jobs.model import TRANSITIONS, JobStatus
from autocode.jobs.projection import Outcome
from ledger_world import begin, commit, look, produced, started, told

JOBS = 6
WRITERS = ("t0", "t1", "p0", "p1")
FACTS = ["enqueued", "begun", "checkpoint", "checkpoint", "ended", "begun", "checkpoint", "ended"]


def write(url: str, name: str) -> None:
    """Lead some jobs through two attempts each, to a result."""
    database = Database(url)
    for number in range(JOBS):
        job_id = f"{name}-{number}"
        first = started(database, job_id)
        commit(database, first, f"{job_id} a")
        attempts.renew(database, first)
        commit(database, first, "shared by all")
        attempts.end(database, job_id, 1, Outcome.CRASHED)
        second = begin(database, job_id, 2)
        commit(database, second, f"{job_id} b")
        results.commit_result(database, second, produced(job_id))
    database.close()


def stamp_until(url: str, quiet: threading.Event) -> None:
    """Verify and stamp whatever is open, until writers are done and nothing is left."""
    database = Database(url)
    while True:
        last = quiet.is_set()
        for job_id in queries.open_jobs(database):
            results.mark_verified(database, job_id, produced(job_id).digest)
            look(database, job_id)
            for n in (1, 2):
                attempts.close_run(database, job_id, n)
        if last and not queries.open_jobs(database):
            break
    database.close()


def read_until(url: str, stamped: threading.Event, heard: list[int]) -> None:
    """Follow the events by cursor, until stampers are done and nothing is left."""
    database = Database(url)
    while True:
        last = stamped.is_set()
        page = events.read_after(database, heard[-1] if heard else 0, limit=7)
        heard.extend(row.cursor for row in page)
        if last and not page:
            break
    database.close()


@pytest.mark.timeout(300)
def test_a_reader_hears_everything_once(database: Database, ledger_url: str) -> None:
    """While many write and two reconcilers stamp, a reader hears each cursor once, in order."""
    heard: list[int] = []
    quiet, stamped = threading.Event(), threading.Event()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write, args=(ledger_url, name)) for name in WRITERS if name[0] == "p"]
    threads = [threading.Thread(target=write, args=(ledger_url, name)) for name in WRITERS if name[0] == "t"]
    stampers = [threading.Thread(target=stamp_until, args=(ledger_url, quiet)) for _ in range(2)]
    reader = threading.Thread(target=read_until, args=(ledger_url, stamped, heard))
    for process in processes:
        process.start()
    for thread in (*threads, *stampers, reader):
        thread.start()

    for process in processes:
        process.join()
    for thread in threads:
        thread.join()
    quiet.set()
    for thread in stampers:
        thread.join()
    stamped.set()
    reader.join()

    assert [process.exitcode for process in processes] == [0, 0]
    assert heard == list(range(1, len(heard) + 1))
    for name in WRITERS:
        for number in range(JOBS):
            mine = told(database, f"{name}-{number}")
            assert [event["fact"] for event in mine if event["fact"] != "projected"] == FACTS
            seen = [JobStatus(event["data"]["status"]) for event in mine]
            assert all(a is b or b in TRANSITIONS[a] for a, b in pairwise(seen))
            assert seen[-1] is JobStatus.COMPLETE
            assert [event["rev"] for event in mine] == sorted(event["rev"] for event in mine)
    assert Counter(row.job_id for row in events.read_after(database, 0, limit=10_000)).total() == len(heard)
