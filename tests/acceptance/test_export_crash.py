"""The real command is killed by SIGKILL, run again, and compared with one that nobody disturbed."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from inotify_simple import INotify, flags
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, TaskRun
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from acceptance.command import Command
from acceptance.undisturbed import Undisturbed, cursors_without_gaps, nothing_left, steps_of
from autocode.jobs import crash
from autocode.jobs.engine.server import Address
from autocode.jobs.settings import Home

pytest_plugins = ["fixtures_engine", "fixtures_undisturbed"]

# commands that start Prefect, on a machine that others may be using
pytestmark = pytest.mark.timeout(900)


# how long Prefect may take to write down what its clients told it; far above what a busy machine needs
SECONDS_TO_RECORD = 60.0


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


async def prefect_view(
    address: Address, known: set[UUID], cached: int
) -> tuple[list[FlowRun], list[TaskRun]]:
    """Ask Prefect's own API for the flow runs that it didn't know before, and for their task runs.

    The server records task runs from events, some time after the process that sent them has ended
    (prefect/server/services/task_run_recorder.py): the answer is awaited until it shows *cached* steps.
    """
    deadline = time.monotonic() + SECONDS_TO_RECORD
    with temporary_settings({PREFECT_API_URL: address.url, PREFECT_API_AUTH_STRING: address.auth}):
        async with get_client() as client:
            while True:
                runs = [run for run in await client.read_flow_runs() if run.id not in known]
                of_them = FlowRunFilter(id=FlowRunFilterId(any_=[run.id for run in runs]))
                tasks = await client.read_task_runs(flow_run_filter=of_them)
                if cached_steps(tasks) >= cached or time.monotonic() > deadline:
                    return runs, tasks
                await asyncio.sleep(0.2)


def cached_steps(tasks: list[TaskRun]) -> int:
    """Count the steps that Prefect shows as Cached: one task run may say that it stands for several."""
    names = [task.name for task in tasks if task.state is not None and task.state.name == "Cached"]
    many = [re.fullmatch(r"read (\d+) sessions", name) for name in names]
    return sum(int(match[1]) if match else 1 for match in many)


# an export changes nothing in the world, so it has no effect to be killed behind, and a command tells nobody
@pytest.mark.parametrize(
    "point", [point for point in crash.POINTS if not point.startswith(("effect.", "notify."))]
)
def test_an_export_killed_at_any_crash_point_ends_with_the_same_bundle(
    point: str, undisturbed: Undisturbed, guest: Command, host: tuple[Home, Address], tmp_path: Path
) -> None:
    """Kill the process at each crash point; the second run yields what an undisturbed one does."""
    nth = ":4" if point.startswith("step.") else ""
    # in a folder of their own, so that the job is another one than that of the test before
    sessions = shutil.copytree(undisturbed.sessions, tmp_path / "sessions")
    arguments = ("export", sessions, "-o", tmp_path / "out", "--json")
    _, address = host
    before, _ = asyncio.run(prefect_view(address, set(), 0))

    killed = guest.run(*arguments, AUTOCODE_CRASH=f"{point}{nth}")
    assert killed.status == -signal.SIGKILL, killed.err
    with opened_files(sessions) as opened:
        again = guest.run(*arguments)
    assert again.status == 0, again.err
    done_before = [entry for entry in again.job["history"] if entry["attempt"] == 1]
    in_the_middle = point.startswith("step.")
    runs, tasks = asyncio.run(
        prefect_view(address, {run.id for run in before}, len(done_before) if in_the_middle else 0)
    )

    job = again.job
    assert job["result"]["digest"] == undisturbed.digest
    # the scan names the folder, which is the test's own; what was read and made doesn't
    assert [step for step, _ in steps_of(job)] == [step for step, _ in undisturbed.checkpoints]
    assert steps_of(job)[1:] == undisturbed.checkpoints[1:]
    attempts = {entry["attempt"] for entry in job["history"]}
    read_before = [entry for entry in done_before if entry["step"].startswith("read ")]
    read_now = [
        entry for entry in job["history"] if entry["attempt"] == 2 and entry["step"].startswith("read ")
    ]
    if in_the_middle:
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
    if in_the_middle:
        assert cached_steps(tasks) == len(done_before)
    nothing_left(guest)
    cursors_without_gaps(guest.home)
