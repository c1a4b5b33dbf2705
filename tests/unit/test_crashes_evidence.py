"""What is gathered about a job that is over: what the ledger has, and what was left beside it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from autocode.jobs.engine.holder import holding
from autocode.jobs.engine.worker import registry
from autocode.jobs.engine.worker.registry import Registered, registered, started_at
from autocode.jobs.ledger import attempts, checkpoints, effects, jobs, results
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.checkpoints import Produced
from autocode.jobs.ledger.database import Database, sqlite_url
from autocode.jobs.projection import Outcome
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore, put_bytes
from autocode.jobs.testing.crashes.evidence import Evidence, Prefect, Struck, gather
from autocode.jobs.testing.crashes.facts import RecordedEffect
from autocode.jobs.testing.crashes.judge import judge
from autocode.jobs.testing.crashes.poller import Look, Poller
from autocode.jobs.testing.crashes.violations import Violation
from ledger_world import TickingClock, look, memo_key, new_job

JOB = "a_job"
LOCK = f"host:1:{'ab' * 16}"


@dataclass(frozen=True)
class Peace:
    """The run that nobody disturbed."""

    digest: str
    checkpoints: Mapping[str, str]


class World:
    """A home with a ledger in which a job crashed once and is complete."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.home.prepare()
        self.store = LocalStore(self.home.store)
        self.url = sqlite_url(self.home.ledger)
        self.db = Database(self.url, clock=TickingClock())
        self.db.migrate()
        jobs.enqueue(self.db, new_job(JOB))
        first = self._begin(1)
        self.step = self._put(first, b"step")
        effects.intend(self.db, first, "charge")
        effects.finish_effect(self.db, first, "charge", None)
        attempts.end(self.db, JOB, 1, Outcome.CRASHED)
        second = self._begin(2)
        self.result = self._put(second, b"result")
        results.commit_result(self.db, second, self.result)
        results.mark_verified(self.db, JOB, self.result.digest)
        for n in (1, 2):
            attempts.close_run(self.db, JOB, n)
        while look(self.db, JOB):
            pass

    def judged(self, evidence: Evidence) -> list[Violation]:
        """Judge by what the job was to do."""
        peace = Peace(self.result.digest, {"step": self.step.digest, "result": self.result.digest})
        return judge(evidence, undisturbed=peace, max_attempts_expected=2)

    def gathered(self) -> Evidence:
        """Gather what is there without asking anybody."""
        return gather(JOB, db=self.db, home=self.home)

    def _begin(self, n: int) -> Attempt:
        return attempts.begin(self.db, JOB, n, flow_run_id=f"run-{n}", holder=f"{LOCK}{n}")

    def _put(self, attempt: Attempt, data: bytes) -> Produced:
        info = put_bytes(self.store, data)
        made = Produced(info.digest, info.size, "text/plain", ())
        label = data.decode()
        checkpoints.reserve(self.db, attempt, info.digest, info.size)
        checkpoints.commit_step(self.db, attempt, memo_key(inputs=label), made, label=label, reused=False)
        return made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Give that home."""
    world = World(tmp_path)
    yield world
    world.db.close()


def test_a_job_that_went_well_has_nothing_against_it(world: World) -> None:
    """What a real ledger has of a job that crashed once breaks no rule, by whatever way it is read."""
    for db in (world.db, world.url):
        evidence = gather(JOB, db=db, home=world.home)

        assert world.judged(evidence) == []
        assert [each.outcome for each in evidence.ledger.attempts] == ["crashed", "completed"]
        assert evidence.ledger.recorded == [RecordedEffect("charge", 1, done=True)]


def test_a_job_that_nobody_knows_has_no_facts(world: World) -> None:
    """A job that the ledger lost is evidence too, and no error."""
    evidence = gather("nobody", db=world.db, home=world.home)

    assert (evidence.ledger.status, evidence.ledger.attempts, evidence.ledger.result) == (None, [], None)


def test_the_look_at_the_log_can_begin_behind_a_cursor(world: World) -> None:
    """A round among hundreds reads its own events, and untold ones last."""
    jobs.enqueue(world.db, new_job("later"))
    every = world.gathered().ledger.events

    evidence = gather(JOB, db=world.db, home=world.home, events_after=2)

    assert evidence.ledger.events == every[2:]
    assert [(every[0].cursor, every[-1].cursor, every[-1].job_id)] == [(1, None, "later")]
    assert world.judged(evidence) == []


def test_references_of_other_jobs_are_theirs(world: World) -> None:
    """Ids that differ in what is a wildcard, or go on with a colon, are other jobs'."""
    for job_id in ("a-job", f"{JOB}:2", JOB + "2"):
        jobs.enqueue(world.db, new_job(job_id))
        other = attempts.begin(world.db, job_id, 1, flow_run_id=job_id, holder="other")
        checkpoints.reserve(world.db, other, world.step.digest, world.step.size)

    assert world.gathered().ledger.references == {
        (world.step.digest, f"job:{JOB}"),
        (world.result.digest, f"job:{JOB}"),
        (world.result.digest, f"result:{JOB}"),
    }


def test_a_damaged_object_is_found(world: World) -> None:
    """The bytes of each checkpoint and of the result are read."""
    path = world.store.path_of(world.step.digest)
    path.unlink()

    assert list(world.gathered().damaged) == [world.step.digest]


def test_what_was_left_is_found(world: World) -> None:
    """Files of the job's attempts and of nobody who lives count; those of others who live don't."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (world.home.run / "holders").mkdir()
    (world.home.run / "holders" / f"{'ab' * 16}1").touch()
    with world.store.stage() as staging, holding(world.home):
        staging.write(b"half")
        staging_files = [path.name for path in world.home.store.rglob("*.tmp")]
        with registered(world.home, "other-run", 1, ""):
            (world.home.run / "children" / str(ended.pid)).write_text(
                json.dumps(
                    {"pid": ended.pid, "began": "x", "flow_run_id": "r", "worker": 1, "worker_began": ""}
                )
            )
            evidence = world.gathered()

    assert evidence.temp_files == staging_files != []
    assert evidence.holder_files == [f"{'ab' * 16}1"]
    assert evidence.child_files == [str(ended.pid)]
    assert evidence.living == []


def test_a_process_that_lives_on_is_found(world: World) -> None:
    """A child is known by its file, and by having been seen once its file is gone."""
    with registered(world.home, "run-1", 1, ""):
        by_file = world.gathered()
        seen = registry.children(world.home)
    by_sight = gather(JOB, db=world.db, home=world.home, seen=seen)
    reused = [Registered(os.getpid(), "another boot", "run-1", 1, "")]

    assert (by_file.living, by_file.child_files) == ([os.getpid()], [str(os.getpid())])
    assert (by_sight.living, by_sight.child_files) == ([os.getpid()], [])
    assert gather(JOB, db=world.db, home=world.home, seen=reused).living == []
    assert seen[0].began == started_at(os.getpid())


class _Prefect(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = f"Basic {base64.b64encode(b'autocode:s3cret').decode()}"
        known = self.path == "/api/flow_runs/run-2"
        status = 401 if self.headers.get("Authorization") != allowed else 200 if known else 404
        body = b'{"state_type": "COMPLETED"}' if status == 200 else b"{}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def prefect() -> Iterator[Prefect]:
    """Give a Prefect that knows one run and asks for a password."""
    server = HTTPServer(("127.0.0.1", 0), _Prefect)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield Prefect(f"http://127.0.0.1:{server.server_port}/api", "autocode:s3cret")
    server.shutdown()
    server.server_close()
    thread.join()


def test_prefect_is_asked_for_each_run(world: World, prefect: Prefect) -> None:
    """A run that Prefect forgot is gone, and one that it says nothing of isn't final."""
    evidence = gather(JOB, db=world.db, home=world.home, prefect=prefect)
    refused = gather(JOB, db=world.db, home=world.home, prefect=replace(prefect, auth=""))
    away = gather(JOB, db=world.db, home=world.home, prefect=replace(prefect, url="http://127.0.0.1:9/api"))

    assert evidence.run_states == {"run-1": "GONE", "run-2": "COMPLETED"}
    assert world.judged(evidence) == []
    assert refused.run_states == dict.fromkeys(["run-1", "run-2"], "no answer (401)")
    assert away.run_states == dict.fromkeys(["run-1", "run-2"], "no answer (ConnectError)")
    assert len(world.judged(away)) == 2


def test_what_the_poller_saw_of_the_job_is_taken_over(world: World) -> None:
    """What was wrong, and for how long the struck attempt was shown as running."""
    poller = Poller(lambda: "", lambda: "", world.store)
    poller.watch(JOB)
    poller._jobs[JOB].looks.append(Look(12.0, {"status": "running", "attempts": 1}))
    poller.wrong += [f"{JOB}: attempts fell", "other: attempts fell"]

    evidence = gather(JOB, db=world.db, home=world.home, poller=poller, struck=Struck(1, 10.0))

    assert (evidence.wrong, evidence.shown_running) == ([f"{JOB}: attempts fell"], 2.0)
    assert gather(JOB, db=world.db, home=world.home, poller=poller).shown_running is None
