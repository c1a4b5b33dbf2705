"""Ctrl-C, SIGTERM and SIGKILL at every stage of an export: it ends at once, leaves nothing, and goes on."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest
from inotify_simple import INotify, flags

from acceptance.command import PROGRAM, Command, Done, until
from acceptance.machine import terminal, text_of, wait_until_stopped
from autocode.jobs.engine.server import private_server
from autocode.jobs.settings import Home
from autocode.jobs.testing.samples import write_samples

pytestmark = pytest.mark.timeout(600)

_PROMPT_SECONDS: Final = 40
"""How long a stop may take here, where two cores run many tests; a person waits one to three seconds."""


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Return the command of a home whose server the tests keep alive; each test has sessions of its own."""
    command = Command(tmp_path_factory.mktemp("interrupted") / "home")
    assert command.run("jobs", "list").status == 0
    with private_server(Home(command.home)):
        yield command


@contextmanager
def held(command: Command, *arguments: str | Path, at: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command, and give it when it stopped itself at the crash point *at*."""
    # a point fires once for a home: an earlier test may have used it up
    shutil.rmtree(command.home / "run" / "crash", ignore_errors=True)
    process = command.start(*arguments, AUTOCODE_CRASH=f"{at}=pause")
    try:
        wait_until_stopped(process.pid)
        yield process
    finally:
        process.kill()
        process.communicate()


def own_sessions(folder: Path, *, megabytes: float = 0.2) -> Path:
    """Write sessions that no other test has, so that no step of theirs is known yet."""
    write_samples(folder / "sessions", seed=zlib.crc32(os.fsencode(folder)), sessions=3, megabytes=megabytes)
    return folder / "sessions"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write sessions whose bundle takes a while to write."""
    return own_sessions(tmp_path_factory.mktemp("large"), megabytes=8)


def ended(process: subprocess.Popen[str]) -> Done:
    """Wait for a process that was told to stop."""
    out, err = process.communicate(timeout=_PROMPT_SECONDS)
    return Done(process.returncode, out, err)


def assert_quiet(done: Done) -> None:
    """Assert that the end was one of ours: status 130, a sentence, nothing of Python or a library."""
    assert done.status == 130, done.err
    assert done.out == ""
    assert not re.search(r"Traceback|Error|Exception|Warning|prefect", done.err), done.err


@pytest.mark.parametrize(
    ("number", "point", "kept"),
    [
        pytest.param(signal.SIGINT, "step.before", "has no finished step yet", id="Ctrl-C in scan"),
        pytest.param(signal.SIGINT, "step.mid-write:2", "keeps 1 finished step (scan)", id="Ctrl-C in read"),
        pytest.param(
            signal.SIGINT,
            "step.after-checkpoint:3",
            "keeps 3 finished steps (scan, read x2)",
            id="Ctrl-C between reads",
        ),
        pytest.param(
            signal.SIGTERM, "step.mid-write:4", "keeps 2 finished steps (scan, read)", id="SIGTERM in read"
        ),
        # the other of two files that are read side by side may be done before anybody looks at the signal
        pytest.param(
            signal.SIGHUP,
            "step.mid-write:3",
            ("keeps 1 finished step (scan)", "keeps 2 finished steps (scan, read)"),
            id="SIGHUP in read",
        ),
    ],
)
def test_a_stop_hands_the_attempt_back_and_the_same_command_goes_on(
    command: Command, tmp_path: Path, number: signal.Signals, point: str, kept: str | tuple[str, ...]
) -> None:
    """The process is held at a point, told to stop and let go; the second run reuses what was done."""
    arguments = ("export", own_sessions(tmp_path), "-o", tmp_path / "out")
    with held(command, *arguments, at=point) as process:
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        stopped = ended(process)

    again = command.run(*arguments, "--json")

    assert_quiet(stopped)
    assert again.status == 0, again.err
    allowed = (kept,) if isinstance(kept, str) else kept
    told = [
        f"Interrupted. Job {again.job['job_id']} {each}; the same command goes on with it."
        for each in allowed
    ]
    assert any(each in stopped.err for each in told), stopped.err
    assert again.job["attempts"] == 2
    reused = [entry["step"] for entry in again.job["history"] if entry["attempt"] == 1]
    assert (f"keeps {len(reused)} finished step" if reused else "no finished step") in stopped.err
    if reused:
        assert f"Going on with job {again.job['job_id']}: {len(reused)} finished step" in again.err
        assert f"{len(reused)} reused from earlier attempts (scan" in again.err


def test_ctrl_c_while_the_server_starts_is_prompt_and_leaves_no_process(tmp_path: Path) -> None:
    """On a home without a server, Ctrl-C in its start ends the command at once, and the server too."""
    command = Command(tmp_path / "home")
    arguments = ("export", own_sessions(tmp_path), "-o", tmp_path / "out")

    with terminal([PROGRAM, *arguments], command.environ()) as screen:
        screen.read_until("starting the Prefect server")
        until(lambda: len(command.processes()) > 0, within=60)
        screen.press("\x03")
        status = screen.end(within=_PROMPT_SECONDS)
    command.wait_until_gone()

    shown = text_of(screen.seen)
    assert status == 130
    assert "has no finished step yet; the same command goes on with it." in shown
    assert "Traceback" not in shown
    assert not (tmp_path / "out").exists()
    assert command.run("jobs", "list", "--json").job["status"] == "queued"


def test_ctrl_c_before_anything_runs_is_quiet(command: Command, tmp_path: Path) -> None:
    """A Ctrl-C that comes while Python still imports ends with 130 as well, and without a traceback."""
    process = command.start("jobs", "list")
    # the interpreter runs, and our handler doesn't yet: that moment is over when SIGTERM is caught
    until(lambda: _catches(process.pid, signal.SIGTERM), within=60)

    process.send_signal(signal.SIGINT)
    stopped = ended(process)

    assert stopped.status in {0, 130}
    assert "Traceback" not in stopped.err


class TestWhileTheBundleIsWritten:
    """The job is complete, and its bundle half-way into the output folder."""

    # SIGTERM is heard as SIGINT is: it needs no zip of its own
    @pytest.mark.parametrize(
        ("number", "zipped"),
        [
            pytest.param(signal.SIGINT, False, id="SIGINT, folder"),
            pytest.param(signal.SIGINT, True, id="SIGINT, zip"),
            pytest.param(signal.SIGTERM, False, id="SIGTERM, folder"),
            pytest.param(signal.SIGKILL, False, id="SIGKILL, folder"),
            pytest.param(signal.SIGKILL, True, id="SIGKILL, zip"),
        ],
    )
    def test_nothing_half_written_stays(
        self, command: Command, large: Path, tmp_path: Path, number: signal.Signals, *, zipped: bool
    ) -> None:
        """After a stop the output folder is empty; after a kill the next run clears it up and finishes."""
        out = tmp_path / "out"
        out.mkdir()
        arguments: list[str | Path] = ["export", large, "-o", out, *(["--zip"] if zipped else [])]
        stopped = self._stopped_while_writing(command, arguments, out, number)
        left = list(out.iterdir())

        again = command.run(*arguments, "--json")

        if number is signal.SIGKILL:
            assert stopped.status == -signal.SIGKILL
            assert [path.suffix for path in left] == [".partial"]
        else:
            assert_quiet(stopped)
            assert "is complete; the same command writes its bundle" in stopped.err
            assert left == []
        assert again.status == 0, again.err
        name = f"autocode-export-{again.job['result']['digest'][7:19]}{'.zip' if zipped else ''}"
        assert [path.name for path in out.iterdir()] == [name]

    @staticmethod
    def _stopped_while_writing(
        command: Command, arguments: list[str | Path], out: Path, number: signal.Signals
    ) -> Done:
        with closing(INotify()) as watcher:
            watcher.add_watch(out, flags.CREATE)
            process = command.start(*arguments)
            watcher.read(timeout=120_000)
            process.send_signal(number)
            return ended(process)


def test_a_follower_that_leaves_doesn_t_stop_the_job(command: Command, tmp_path: Path) -> None:
    """Ctrl-C in the second of two equal commands says that the first still runs, and it ends well."""
    arguments = ("export", own_sessions(tmp_path, megabytes=40), "-o", tmp_path / "out")
    before = _checkpoints(command.home)
    first = command.start(*arguments)
    until(lambda: _checkpoints(command.home) > before, within=120)

    with terminal([PROGRAM, *arguments], command.environ()) as screen:
        screen.read_until("is running: following it")
        screen.press("\x03")
        status = screen.end(within=_PROMPT_SECONDS)
    _, err = first.communicate(timeout=300)

    assert status == 130
    assert "Another command still runs job" in text_of(screen.seen)
    assert first.returncode == 0, err


def test_two_equal_exports_at_once_are_one_job(command: Command, tmp_path: Path) -> None:
    """Both end with 0, the same job and the same bundle, which was made once."""
    arguments = ("export", own_sessions(tmp_path), "-o", tmp_path / "out", "--json")
    both = [command.start(*arguments) for _ in range(2)]
    done = [Done(-1, *process.communicate(timeout=150)) for process in both]

    assert [process.returncode for process in both] == [0, 0], [each.err for each in done]
    assert done[0].job["job_id"] == done[1].job["job_id"]
    assert done[0].job["attempts"] == 1
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_different_exports_at_once_share_the_home(command: Command, tmp_path: Path) -> None:
    """Three commands with sessions of their own run side by side on one home and one server."""
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    all_of_them = [
        command.start("export", own_sessions(folder), "-o", folder / "out", "--json") for folder in folders
    ]
    done = [Done(-1, *process.communicate(timeout=240)) for process in all_of_them]

    assert [process.returncode for process in all_of_them] == [0, 0, 0], [each.err for each in done]
    assert len({each.job["result"]["digest"] for each in done}) == 3
    for folder in folders:
        assert len(list((folder / "out").iterdir())) == 1


def _catches(pid: int, number: signal.Signals) -> bool:
    """Say whether the process has a handler for the signal (``proc(5)``, SigCgt)."""
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def _checkpoints(home: Path) -> int:
    with closing(sqlite3.connect(home / "ledger.db")) as ledger:
        return int(ledger.execute("SELECT count(*) FROM checkpoints").fetchone()[0])
