"""A whole service on a home of its own, work for it, and the ways in which its processes are killed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from autocode.jobs.client import Client, discover
from autocode.jobs.ledger.database import Database
from autocode.jobs.operations.export import EXPORT
from autocode.jobs.postgres.place import url_of
from autocode.jobs.resource import Job
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from autocode.jobs.testing import scenarios as s
from autocode.jobs.testing.crashes.event_log import event_faults, read_events
from autocode.jobs.testing.crashes.poller import Poller
from autocode.jobs.testing.samples import write_samples
from engine_world import SOURCES
from export_context import job_over, run
from postgres_world import pids, temporary_home
from service_command import Service, until
from worker_world import children_of, comm_of, gone

__all__ = ["PATIENCE", "SLOTS", "Exported", "Kills", "kill", "service_world", "state_of"]

PAUSE = "step.after-checkpoint:4=pause"
"""Where an export stops in the middle: the scan and three sessions are done, two and the bundle are left."""

SLOTS = 3
"""How many jobs the worker runs side by side."""

PATIENCE = 180.0
"""Seconds for anything to come; far above what a busy machine needs."""


@dataclass(frozen=True)
class Exported:
    """An export on its way.

    Args:
        job_id: the job.
        digest: what an export of the same sessions left that nobody disturbed.
        steps: how many it took.
    """

    job_id: str
    digest: str
    steps: int


class Kills:
    """The service, and what the tests do to it."""

    def __init__(self, home: Home, service: Service, folder: Path) -> None:
        self.home = home
        self.service = service
        self.folder = folder
        self.store = LocalStore(home.store)
        self.watcher = Poller(self._url, lambda: (home.run / "token").read_text().strip(), self.store)
        self._count = 0

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Give a client that waits through restarts."""
        found = discover(self.home, {}, patience=PATIENCE)
        assert found is not None
        with found:
            yield found

    @property
    def witness(self) -> Path:
        """The file that the steps of the scenarios append to."""
        return self.folder / "witness"

    def lines(self, job_id: str, word: str) -> list[str]:
        """Return what the job's steps told of this kind (``begin`` or ``effect``)."""
        return [line for line in s.witnessed(self.witness) if line.startswith(word) and job_id in line]

    def errand(self, job_id: str, *, watched: bool = True) -> str:
        """Ask for a job with one effect that takes until :meth:`let_end`, and watch it."""
        payload = {
            "witness": str(self.witness),
            "salt": job_id,
            "gate": str(self._gate(job_id)),
            "seconds": 2 * PATIENCE,
        }
        with self.client() as client:
            client.enqueue(s.ERRAND.name, payload, job_id=job_id)
        if watched:
            self.watcher.watch(job_id)
        return job_id

    def let_end(self, *job_ids: str) -> None:
        """Let these errands end."""
        for job_id in job_ids:
            self._gate(job_id).touch()

    def begun(self, job_id: str, times: int = 1) -> int:
        """Wait until the errand was begun so many times; return the process that began it last."""
        self.wait(lambda: len(self.lines(job_id, "begin")) >= times and self.lines(job_id, "effect") != [])
        return int(self.lines(job_id, "begin")[-1].split()[1])

    def paused_export(self) -> tuple[Exported, int]:
        """Ask for an export; return it and its process, which has stopped itself in the middle."""
        self._count += 1
        sessions = self.folder / f"sessions-{self._count}"
        write_samples(sessions, seed=self._count, sessions=5, megabytes=0.3)
        undisturbed = job_over(sessions, self.folder / f"peace-{self._count}")
        digest = run(undisturbed)
        job_id = f"export-{self._count}"
        self._arm()
        with self.client() as client:
            source = {"root": self.home.add_root(sessions)}
            client.enqueue(EXPORT.name, {"sources": [source]}, job_id=job_id)
        self.watcher.watch(job_id)
        self.wait(lambda: self._stopped() != [])
        return Exported(job_id, digest, len(undisturbed.ran)), self._stopped()[0]

    def done(self, *job_ids: str) -> list[Job]:
        """Wait until the jobs are over; return them."""
        with self.client() as client:
            return [client.wait(job_id, timeout=PATIENCE) for job_id in job_ids]

    def pid(self, part: str) -> int:
        """Return the process of a part."""
        found: int = self.service.health(part)["pid"]
        return found

    def zygote(self) -> int:
        """Return the process that the worker's children are forked from."""
        worker = self.pid("worker")
        return next(pid for pid in children_of(worker) if comm_of(pid) == "jobs-zygote")

    def postgres(self) -> list[int]:
        """Return the postmaster, and then its backends."""
        postmaster = pids(self.home)[1]
        return [postmaster, *children_of(postmaster)]

    @contextmanager
    def restarted(self, *parts: str) -> Iterator[None]:
        """Expect that these parts come back as other processes, and others stay."""
        before = {name: self.service.health(name) for name in ("prefect", "api", "reconcile", "worker")}
        yield
        for part in parts:
            self.wait(lambda part=part: self._anew(part, before[part]))
        after = {name: self.service.health(name)["restarts"] for name in before}
        assert after == {name: each["restarts"] + (name in parts) for name, each in before.items()}

    def end_everything(self) -> None:
        """Kill every process of the service at once, the supervisor first."""
        found = [self.service.pid, *self.service.processes(), *self.postgres()]
        kill(found)
        self.wait(lambda: all(gone(pid) for pid in found))
        self.service.end()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the ledger's database."""
        url = url_of(self.home)
        assert url is not None
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            return connection.execute(query.encode()).fetchall()

    def legal_events(self) -> None:
        """Assert that every event was told, without gaps, and that every move is one the contract knows."""
        url = url_of(self.home)
        assert url is not None
        with closing(Database(url)) as database, database.read() as tx:
            events = read_events(tx)
        assert [event for event in events if event.cursor is None] == []
        assert list(event_faults(events)) == []

    def wait(self, condition: Any, within: float = PATIENCE) -> None:
        """Wait until something holds."""
        until(condition, within=within, told=lambda: f"{self.watcher.wrong} {self.service.told()}")

    def _anew(self, part: str, before: dict[str, Any]) -> bool:
        now = self.service.health(part)
        return bool(now["state"] == "ready" and now["restarts"] > before["restarts"])

    def _url(self) -> str:
        # a restarted API has the address that it had before
        found: str = json.loads((self.home.run / "api.json").read_text())["url"]
        return found

    def _gate(self, job_id: str) -> Path:
        return self.folder / f"gate-{job_id}"

    def _arm(self) -> None:
        # a crash point strikes once a home: with its token it has struck already
        _token(self.home).unlink(missing_ok=True)

    def _stopped(self) -> list[int]:
        return [
            int(path.name)
            for path in (self.home.run / "children").glob("[0-9]*")
            if state_of(int(path.name)) == "T"
        ]


def state_of(pid: int) -> str:
    """Return a process's state as the kernel names it: ``T`` is stopped; empty for one that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def kill(found: Iterable[int], number: int = signal.SIGKILL) -> float:
    """Send a signal to each process; return when."""
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return time.monotonic()


def _token(home: Home) -> Path:
    return home.run / "crash" / f"fired-{hashlib.sha256(PAUSE.encode()).hexdigest()[:16]}"


@contextmanager
def service_world() -> Iterator[Kills]:
    """Give a service with the scenarios' kinds, and leave nothing of it running."""
    with temporary_home() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOCODE_HOME", str(home.path))
        environ = {
            "AUTOCODE_POSTGRES_FOLDER": os.environ["AUTOCODE_POSTGRES_FOLDER"],
            "AUTOCODE_KINDS": s.__name__,
            "AUTOCODE_CRASH": PAUSE,
            "AUTOCODE_WORKERS": str(SLOTS),
            "PYTHONPATH": str(SOURCES),
            # a job may be held for as long as the test needs
            "AUTOCODE_DRAIN_SECONDS": "1",
        }
        _token(home).parent.mkdir(parents=True)
        _token(home).touch()
        service = Service(home.path, environ=environ)
        folder = home.path.parent / "work"
        folder.mkdir()
        world = Kills(home, service, folder)
        try:
            service.start()
            with world.watcher:
                yield world
        finally:
            service.close()
