"""The real command is killed by SIGKILL, run again, and compared with one that nobody disturbed."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from inotify_simple import INotify, flags
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, TaskRun
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from acceptance.command import Command
from autocode.jobs import crash
from autocode.jobs.engine.server import Address, private_server
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore, verify_store
from autocode.jobs.testing.samples import write_samples

pytest_plugins = ["fixtures_engine"]

# thirty runs of a command that starts Prefect, on a machine that others may be using
pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Undisturbed:
    """The sessions, and the export of them that ran without a crash."""

    sessions: Path
    job: dict[str, Any]

    @property
    def digest(self) -> str:
        """The bundle's digest."""
        return str(self.job["result"]["digest"])

    @property
    def checkpoints(self) -> list[tuple[str, str]]:
        """Step and digest of each checkpoint."""
        return steps_of(self.job)


def steps_of(job: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the job's steps and their digests, in order."""
    return [(entry["step"], entry["digest"]) for entry in job["history"]]


@pytest.fixture
def command(tmp_path: Path, migrated: Path) -> Command:
    """Give the command a home of its own, in which Prefect's database is migrated already."""
    home = Home(tmp_path / "home")
    home.prepare()
    for file in migrated.iterdir():
        if file.is_file():
            shutil.copy2(file, home.prefect)
    return Command(home.path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Export sample sessions once, in peace."""
    folder = tmp_path_factory.mktemp("peace")
    write_samples(folder / "sessions", seed=3, sessions=5, megabytes=0.5)
    done = Command(folder / "home").run("export", folder / "sessions", "-o", folder / "out", "--json")
    assert done.status == 0, done.err
    return Undisturbed(folder / "sessions", done.job)


@contextmanager
def opened_files(folder: Path) -> Iterator[set[str]]:
    """Watch which files below *folder* are opened for the length of the block, by asking the kernel."""
    seen: set[str] = set()
    with closing(INotify()) as watcher:
        names = {
            watcher.add_watch(each, flags.OPEN): each
            for each in (folder, *(path for path in folder.rglob("*") if path.is_dir()))
        }
        done = threading.Event()

        def collect() -> None:
            while not done.is_set():
                for event in watcher.read(timeout=50):
                    if not event.mask & flags.ISDIR:
                        seen.add(str(names[event.wd] / event.name))

        thread = threading.Thread(target=collect)
        thread.start()
        try:
            yield seen
        finally:
            done.set()
            thread.join()


async def prefect_view(address: Address) -> tuple[list[FlowRun], list[TaskRun]]:
    """Ask Prefect's own API for the flow runs and task runs of a home."""
    with temporary_settings({PREFECT_API_URL: address.url, PREFECT_API_AUTH_STRING: address.auth}):
        async with get_client() as client:
            runs = await client.read_flow_runs()
            tasks = await client.read_task_runs()
    return runs, tasks


def nothing_left(command: Command) -> None:
    """Assert that no process of the home lives on, and that every object is whole."""
    command.wait_until_gone()
    report = verify_store(LocalStore(command.home / "store"))
    assert report.ok, report.as_dict()


def cursors_without_gaps(home: Path) -> None:
    """Assert that the event log's cursors are consecutive and that revisions never fall within a job."""
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        rows = ledger.execute("SELECT cursor, job_id, rev FROM events ORDER BY cursor").fetchall()
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    revs: dict[str, int] = {}
    for _, job_id, rev in rows:
        assert rev >= revs.get(job_id, 0)
        revs[job_id] = rev


@pytest.mark.parametrize("point", crash.POINTS)
def test_an_export_killed_at_any_crash_point_ends_with_the_same_bundle(
    point: str, undisturbed: Undisturbed, command: Command, tmp_path: Path
) -> None:
    """Kill the process at each crash point; the second run yields what an undisturbed one does."""
    nth = ":4" if point.startswith("step.") else ""

    arguments = ("export", undisturbed.sessions, "-o", tmp_path / "out", "--json")
    # the test keeps the private server alive over both runs, since a start costs seconds
    with private_server(Home(command.home)) as address:
        killed = command.run(*arguments, AUTOCODE_CRASH=f"{point}{nth}")
        with opened_files(undisturbed.sessions) as opened:
            again = command.run(*arguments)
        runs, tasks = asyncio.run(prefect_view(address))

    assert killed.status == -signal.SIGKILL, killed.err
    assert again.status == 0, again.err
    job = again.job
    assert job["result"]["digest"] == undisturbed.digest
    assert steps_of(job) == undisturbed.checkpoints
    attempts = {entry["attempt"] for entry in job["history"]}
    done_before = [entry for entry in job["history"] if entry["attempt"] == 1]
    read_before = [entry for entry in done_before if entry["step"].startswith("read ")]
    read_now = [
        entry for entry in job["history"] if entry["attempt"] == 2 and entry["step"].startswith("read ")
    ]
    if point.startswith("step."):
        assert attempts == {1, 2}
        # only the sessions that attempt 1 had not read are opened again
        assert len(opened) == len(read_now)
        assert len(read_before) + len(read_now) == len(undisturbed.checkpoints) - 2
    states = sorted(run.state.type.value for run in runs if run.state is not None)
    expected = {
        "enqueue.after-commit": ["COMPLETED"],
        "submit.after-create": ["COMPLETED"],
        "result.after": ["COMPLETED"],
    }.get(point, ["COMPLETED", "CRASHED"])
    if point != "reconcile.before-commit":
        assert states == expected
    cached = [task for task in tasks if task.state is not None and task.state.name == "Cached"]
    if point.startswith("step."):
        assert len(cached) == len(done_before)
    nothing_left(command)
    cursors_without_gaps(command.home)


def test_thirty_kills_at_random_moments_change_nothing(
    undisturbed: Undisturbed, command: Command, tmp_path: Path
) -> None:
    """Kill the command thirty times from outside, at random moments; the bundle stays the same."""
    seed = int(os.environ.get("AUTOCODE_KILL_SEED", "20261130"))
    draw = random.Random(seed)
    arguments = ("export", undisturbed.sessions, "-o", tmp_path / "out", "--json")
    kills = 0
    # the test keeps the server alive, so that most moments fall into the export and not into a start
    with private_server(Home(command.home)):
        while kills < 30:
            process = command.start(*arguments)
            try:
                process.communicate(timeout=draw.uniform(0.3, 6.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
        final = command.run(*arguments)

    assert final.status == 0, f"seed {seed}: {final.err}"
    assert final.job["result"]["digest"] == undisturbed.digest
    assert steps_of(final.job) == undisturbed.checkpoints
    nothing_left(command)
    cursors_without_gaps(command.home)
