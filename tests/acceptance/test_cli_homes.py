"""Homes and output folders as they shouldn't be: newer, read-only, full, damaged, oddly named."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from acceptance.command import PROGRAM, Command, Done
from acceptance.machine import bound_by_permissions, small_disk, wait_until_stopped
from autocode.jobs.engine.server import private_server
from autocode.jobs.settings import Home
from autocode.jobs.testing.samples import write_samples

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Small:
    """Sessions, and a home whose server the tests keep alive."""

    command: Command
    sessions: Path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    """Write sessions of some megabytes."""
    folder = tmp_path_factory.mktemp("homes")
    write_samples(folder / "sessions", seed=23, sessions=4, megabytes=4)
    command = Command(folder / "home")
    Home(command.home).prepare()
    with private_server(Home(command.home)):
        yield Small(command, folder / "sessions")


def bound(command: Command, *arguments: str | Path) -> Done:
    """Run the command as somebody whom permissions bind."""
    done = subprocess.run(
        bound_by_permissions(PROGRAM, *arguments),
        env=command.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def state_of(folder: Path) -> dict[str, str]:
    """Return every path below *folder* with the digest of what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in folder.rglob("*")
    }


def assert_refused(done: Done, status: int, detail: str) -> None:
    """Assert that the command said what is wrong and what to do, and nothing else."""
    assert done.status == status, done.err
    assert done.out == ""
    assert detail in done.err
    assert "\n  next: " in done.err
    assert "Traceback" not in done.err


COMMANDS = (["export", "{sessions}"], ["jobs", "list"], ["verify"], ["artifacts", "get", "sha256:01234567"])


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: words[0])
def test_a_home_of_a_newer_version_is_left_alone(small: Small, tmp_path: Path, arguments: list[str]) -> None:
    """``format`` says 99: status 2, and nothing in the home is made or changed."""
    command = Command(tmp_path / "home")
    command.home.mkdir()
    (command.home / "format").write_text("99\n")
    before = state_of(command.home)

    done = command.run(*(each.format(sessions=small.sessions) for each in arguments))

    assert_refused(done, 2, "has format '99'")
    assert "Upgrade autocode-jobs" in done.err
    assert state_of(command.home) == before


def test_a_ledger_of_a_newer_version_is_left_alone(small: Small, tmp_path: Path) -> None:
    """The ledger's schema is 9999: status 2, and its rows stay as they are."""
    command = Command(tmp_path / "home")
    assert command.run("jobs", "list").status == 0
    ledger = command.home / "ledger.db"
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("UPDATE schema_version SET version_num = '9999'")
        connection.commit()
        before = list(connection.iterdump())

    done = command.run("export", small.sessions)

    assert_refused(done, 2, "The ledger has schema 9999")
    with closing(sqlite3.connect(ledger)) as connection:
        assert list(connection.iterdump()) == before


def test_a_damaged_ledger_is_named(small: Small, tmp_path: Path) -> None:
    """A ledger that is no database: status 2, and the file is kept for whoever wants to mend it."""
    command = Command(tmp_path / "home")
    Home(command.home).prepare()
    (command.home / "ledger.db").write_bytes(b"this is no database" * 1000)

    done = command.run("export", small.sessions)

    assert_refused(done, 2, "The ledger's file is damaged")
    assert (command.home / "ledger.db").read_bytes() == b"this is no database" * 1000


def test_a_home_that_is_a_file_is_refused(small: Small, tmp_path: Path) -> None:
    """``AUTOCODE_HOME`` names a file: status 2."""
    (tmp_path / "home").write_text("mine")

    done = Command(tmp_path / "home").run("export", small.sessions)

    assert_refused(done, 2, "can't be used")
    assert (tmp_path / "home").read_text() == "mine"


def test_a_read_only_home_is_refused(small: Small, tmp_path: Path) -> None:
    """A home that this user may not write to: status 2 for a new one and for one with a ledger."""
    parent = tmp_path / "closed"
    parent.mkdir(mode=0o500)
    command = Command(tmp_path / "home")
    assert command.run("jobs", "list").status == 0
    for path in (command.home, *command.home.rglob("*")):
        path.chmod(0o500 if path.is_dir() else 0o400)
    before = state_of(command.home)

    new = bound(Command(parent / "home"), "export", small.sessions)
    old = bound(command, "export", small.sessions)

    assert_refused(new, 2, "Permission denied")
    assert_refused(old, 2, "Permission denied")
    assert state_of(command.home) == before
    for path in (command.home, *command.home.rglob("*")):
        path.chmod(0o700)


def test_a_home_may_be_called_anything(small: Small, tmp_path: Path) -> None:
    """Spaces, ``#``, ``%``, ``?``, quotes and letters of the world in the home and the output folder."""
    folder = tmp_path / "it's a#b%20c?d größe 中文"
    command = Command(folder / "home")

    done = command.run("export", small.sessions, "-o", folder / "out")

    assert done.status == 0, done.err
    check = next(line for line in done.out.splitlines() if line.startswith("check it "))
    subprocess.run(["sh", "-c", check.removeprefix("check it ")], check=True, capture_output=True)
    command.wait_until_gone()


class TestOutputFolders:
    """Where the bundle shall go."""

    def test_a_folder_that_may_not_be_written_is_found_out_before_the_work(
        self, small: Small, tmp_path: Path
    ) -> None:
        """Status 2, and no job was accepted."""
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        before = small.command.run("jobs", "list", "--json").out

        done = bound(small.command, "export", small.sessions, "-o", closed / "out")

        assert_refused(done, 2, f"{closed} can't be written to")
        assert small.command.run("jobs", "list", "--json").out == before

    def test_something_else_of_the_same_name_is_kept(self, small: Small, tmp_path: Path) -> None:
        """The job is complete, the bundle isn't written, status 1; the other folder stays as it is."""
        first = small.command.run("export", small.sessions, "-o", tmp_path / "one", "--json")
        name = next((tmp_path / "one").iterdir()).name
        (tmp_path / "two" / name).mkdir(parents=True)
        (tmp_path / "two" / name / "mine").write_text("mine")

        second = small.command.run("export", small.sessions, "-o", tmp_path / "two", "--json")

        assert first.status == 0, first.err
        assert second.status == 1
        assert second.job["status"] == "complete"
        assert "is there already and isn't this export" in second.err
        assert f"autocode-jobs artifacts get {first.job['result']['digest']} -o FOLDER" in second.err
        assert state_of(tmp_path / "two") == {
            name: "",
            f"{name}/mine": hashlib.sha256(b"mine").hexdigest(),
        }

    def test_the_same_bundle_again_is_no_error(self, small: Small, tmp_path: Path) -> None:
        """A bundle that is there already, byte by byte, is left and named again."""
        outputs = []
        for _ in range(2):
            done = small.command.run("export", small.sessions, "-o", tmp_path, "--zip", "--json")
            assert done.status == 0, done.err
            outputs.append(state_of(tmp_path))

        assert outputs[0] == outputs[1]

    @pytest.mark.parametrize("more", [[], ["--zip"]], ids=["folder", "zip"])
    def test_a_full_disk_leaves_nothing_there(self, small: Small, tmp_path: Path, more: list[str]) -> None:
        """No room for the bundle: status 1, the job stays complete, and it can be got once there is room."""
        with small_disk(tmp_path / "disk", "300k") as disk:
            out = disk.folder / "out"

            full = _run(
                disk.inside(PROGRAM, "export", small.sessions, "-o", out, "--json", *more), small.command
            )
            left = state_of(disk.view)
            subprocess.run(disk.inside("mount", "-o", "remount,size=100m", disk.folder), check=True)
            digest = full.job["result"]["digest"]
            got = _run(disk.inside(PROGRAM, "artifacts", "get", digest, "-o", out, *more), small.command)
            written = [path.name for path in (disk.view / "out").iterdir()]

        assert full.status == 1
        assert full.job["status"] == "complete"
        assert "has no room left" in full.err
        assert left == {}
        assert got.status == 0, got.err
        assert written == [f"autocode-export-{digest[7:19]}{'.zip' if more else ''}"]


@pytest.mark.parametrize("size", ["32k", "400k"], ids=["at the start", "with the server"])
def test_a_full_disk_under_the_home_is_told_and_overcome(small: Small, tmp_path: Path, size: str) -> None:
    """Status 1 and a sentence about the disk; with room, the same command ends well."""
    with small_disk(tmp_path / "disk", size) as disk:
        command = Command(disk.folder / "home")
        export = disk.inside(PROGRAM, "export", small.sessions, "-o", tmp_path / "out", "--json")

        full = _run(export, command)
        subprocess.run(disk.inside("mount", "-o", "remount,size=200m", disk.folder), check=True)
        again = _run(export, command)
        command.wait_until_gone()

    assert_refused(full, 1, "room left")
    assert "\n  next: Free some space and run the same command again" in full.err
    assert again.status == 0, again.err
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_a_disk_that_fills_up_within_a_step_costs_no_finished_step(small: Small, tmp_path: Path) -> None:
    """The disk is filled while a step writes: status 1, no half object; with room, the rest is done."""
    with small_disk(tmp_path / "disk", "60m") as disk:
        command = Command(disk.folder / "home")
        export = disk.inside(PROGRAM, "export", small.sessions, "-o", tmp_path / "out", "--json")
        process = subprocess.Popen(
            export,
            env=command.environ(AUTOCODE_CRASH="step.mid-write:6=pause"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until_stopped(process.pid)
        ballast = disk.view / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        process.send_signal(signal.SIGCONT)
        full = Done(-1, *process.communicate(timeout=300))
        temporary = [path for path in disk.view.rglob("*") if path.parent.name == "tmp"]
        ballast.unlink()
        again = _run(export, command)
        command.wait_until_gone()

    assert process.returncode == 1, full.err
    assert "no room left" in full.err or "the disk is full" in full.err
    assert full.err.splitlines()[-1].startswith("  next: Free some space and run the same command again")
    assert "Traceback" not in full.err
    assert temporary == []
    assert again.status == 0, again.err
    assert "reused from earlier" in again.err
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_a_closed_stdout_is_nobody_s_file(small: Small) -> None:
    """With stdout closed the command still works, and writes into no file that got its number."""
    done = subprocess.run(
        ["sh", "-c", '"$0" jobs list --json >&-', PROGRAM],
        env=small.command.environ(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def _run(command: list[str], on: Command) -> Done:
    done = subprocess.run(
        command, env=on.environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)
