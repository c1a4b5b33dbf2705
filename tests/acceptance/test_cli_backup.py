"""``autocode-jobs backup`` and ``restore``: beside a job that runs, under kills, on full disks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from inotify_simple import INotify, flags

from acceptance.command import PROGRAM, Command, Done
from acceptance.machine import SmallDisk, small_disk, wait_until_stopped
from acceptance.undisturbed import Undisturbed, steps_of
from autocode.jobs.engine.system import open_system
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from backup_world import make_step
from ledger_world import started

pytest_plugins = ["fixtures_engine", "fixtures_undisturbed"]

pytestmark = pytest.mark.timeout(600)

_MEGABYTES = 24


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, own_sources: None) -> Command:
    """Give the command of a home with some objects that take a while to copy."""
    home = Home(tmp_path_factory.mktemp("full") / "home")
    with open_system(home) as system:
        attempt = started(system.db)
        for number in range(_MEGABYTES // 4):
            make_step(system.db, LocalStore(home.store), attempt, os.urandom(4 << 20), label=f"read {number}")
    return Command(home.path)


@pytest.fixture(scope="module")
def whole(full: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a backup of that home."""
    file = tmp_path_factory.mktemp("whole") / "whole.tar"
    done = full.run("backup", file)
    assert done.status == 0, done.err
    return file


def names(folder: Path) -> list[str]:
    """Return what lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_a_job_that_runs_at_the_time_completes_in_the_restored_home(
    undisturbed: Undisturbed, command: Command, tmp_path: Path, own_sources: None
) -> None:
    """A half-done export is backed up while it runs; restored elsewhere, the same command completes it.

    The attempt that ran counts as lost, and what it had finished isn't done again.
    """
    arguments = ("export", undisturbed.sessions, "-o", tmp_path / "out", "--json")
    running = command.start(*arguments, AUTOCODE_CRASH="step.after-checkpoint:4=pause")
    try:
        wait_until_stopped(running.pid)
        made = command.run("backup", tmp_path / "b.tar", "--json")
    finally:
        running.kill()
        running.communicate()
    command.wait_until_gone()
    checked = command.run("restore", tmp_path / "b.tar", "--check", "--json")
    other = Command(tmp_path / "elsewhere" / "home")

    restored = other.run("restore", tmp_path / "b.tar", "--json")
    at_once = json.loads(other.run("jobs", "list", "--json").out)
    ended = other.run(*arguments)
    other.wait_until_gone()

    assert (made.status, checked.status, restored.status) == (0, 0, 0), (made.err, checked.err, restored.err)
    assert made.job["rows"] == checked.job["rows"] == restored.job["rows"]
    assert restored.job["restored_epoch"] != made.job["epoch"]
    assert ended.status == 0, ended.err
    job = ended.job
    assert job["result"]["digest"] == undisturbed.digest
    assert steps_of(job) == undisturbed.checkpoints
    assert [entry["attempt"] for entry in job["history"]][:4] == [1] * 4
    assert job["attempts"] == 2
    assert at_once["status"] == "retrying"
    told = other.run("jobs", "explain", job["job_id"]).out
    assert "attempt 1 was running when the backup was made" in told
    assert re.search("run 1    .*, of before the restore", told)
    assert not re.search("run 2    .*, of before the restore", told)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("what", ["backup", "restore"])
def test_a_kill_or_ctrl_c_half_way_shows_nothing(
    full: Command, whole: Path, tmp_path: Path, number: signal.Signals, what: str
) -> None:
    """Neither file nor home is there afterwards; what a kill leaves is removed by the next run."""
    place = tmp_path / "place"
    place.mkdir()
    command = full if what == "backup" else Command(place / "home")
    arguments: tuple[str | Path, ...] = (
        ("backup", place / "b.tar") if what == "backup" else ("restore", whole)
    )
    with closing(INotify()) as watcher:
        watcher.add_watch(place, flags.CREATE)
        process = command.start(*arguments)
        watcher.read(timeout=120_000)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    left = names(place)

    again = command.run(*arguments)

    if number is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
        assert [Path(name).suffix for name in left] == [".partial"]
    else:
        assert (process.returncode, left) == (130, []), err
        assert "Traceback" not in err
    assert again.status == 0, again.err
    assert names(place) == ["b.tar" if what == "backup" else "home"]


def _on(disk: SmallDisk, command: Command, *arguments: str | Path) -> Done:
    done = subprocess.run(
        disk.inside(PROGRAM, *arguments), env=command.environ(), capture_output=True, text=True, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_full_disk_leaves_neither_backup_nor_home(full: Command, whole: Path, tmp_path: Path) -> None:
    """Status 1 and a sentence about the disk, nothing on it; with room, both succeed."""
    with small_disk(tmp_path / "disk", f"{_MEGABYTES // 2}m") as disk:
        target = Command(disk.folder / "home")

        tight = [_on(disk, full, "backup", disk.folder), _on(disk, target, "restore", whole)]
        left = names(disk.view)
        subprocess.run(disk.inside("mount", "-o", f"remount,size={_MEGABYTES * 4}m", disk.folder), check=True)
        roomy = [_on(disk, full, "backup", disk.folder / "b.tar"), _on(disk, target, "restore", whole)]
        there = names(disk.view)

    assert [done.status for done in tight] == [1, 1], tight
    assert all("no room left" in done.err and "\n  next: Free some space" in done.err for done in tight), (
        tight
    )
    assert left == []
    assert [done.status for done in roomy] == [0, 0], roomy
    assert there == ["b.tar", "home"]


def test_an_object_that_is_missing_is_named(full: Command, tmp_path: Path) -> None:
    """Status 1 with the object and its job, and JSON that lists it; with --allow-missing status 0."""
    home = shutil.copytree(full.home, tmp_path / "home")
    path = next((home / "store" / "objects" / "sha256").glob("[0-9a-f][0-9a-f]/*"))
    path.unlink()
    command = Command(home)

    refused = command.run("backup", tmp_path / "b.tar", "--json")
    allowed = command.run("backup", tmp_path / "b.tar", "--allow-missing")

    assert refused.status == 1
    assert [(each["digest"], each["jobs"]) for each in refused.job["missing"]] == [
        (f"sha256:{path.name}", ["job"])
    ]
    assert f"sha256:{path.name}" in refused.err
    assert allowed.status == 0, allowed.err
    assert f"sha256:{path.name}" in allowed.out
    assert "the Prefect database" in allowed.out
