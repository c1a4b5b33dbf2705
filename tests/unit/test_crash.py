"""Crash points: they fire at their turn, once, and really kill or stop the process."""

from __future__ import annotations

import ast
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

import autocode.jobs.crash
from autocode.jobs import crash
from autocode.jobs.crash import CrashRaised
from autocode.jobs.errors import UsageError
from autocode.jobs.settings import LEASE_SECONDS

PASSES = """
import os, sys, threading
from pathlib import Path
sys.path[:0] = eval(sys.argv[1])
from autocode.jobs import crash
crash.arm(os.environ["AUTOCODE_CRASH"], tokens=Path(sys.argv[2]))

def work():
    for n in range(1, 4):
        crash.at("claim.before")
        crash.at("step.before")
        os.write(1, b"passed %d\\n" % n)

if "thread" in sys.argv:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
else:
    work()
"""


def start(
    spec: str, tokens: Path, *flags: str, stdout: IO[str] | int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start a process that passes its points three times, armed with *spec*."""
    return subprocess.Popen(
        [sys.executable, "-c", PASSES, repr(sys.path), str(tokens), *flags],
        env={"AUTOCODE_CRASH": spec},
        stdout=stdout,
        text=True,
    )


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """Leave no point armed for the next test."""
    yield
    crash.disarm()


def fires(point: str = "step.before") -> bool:
    """Say whether passing *point* raises."""
    try:
        crash.at(point)
    except CrashRaised:
        return True
    return False


def test_an_unarmed_point_does_nothing() -> None:
    """Without a specification every point is passed."""
    crash.arm(None, tokens=None)

    assert [point for point in crash.POINTS if fires(point)] == []


@pytest.mark.parametrize("point", crash.POINTS)
def test_each_point_can_be_armed_and_no_other_fires(point: str) -> None:
    """Arming one point leaves the others alone."""
    crash.arm(f"{point}=raise", tokens=None)

    assert [other for other in crash.POINTS if fires(other)] == [point]


def test_it_fires_at_the_passage_that_was_asked_for_and_only_there() -> None:
    """The third passage fires; those before and after don't."""
    crash.arm("step.before:3=raise", tokens=None)

    assert [fires() for _ in range(6)] == [False, False, True, False, False, False]


@pytest.mark.parametrize("spec", ["", None])
def test_an_empty_specification_disarms(spec: str | None) -> None:
    """The variable set to nothing is the variable unset."""
    crash.arm("step.before=raise", tokens=None)

    crash.arm(spec, tokens=None)

    assert not fires()


@pytest.mark.parametrize(
    "spec",
    [
        "step.befor",
        "step.before:0",
        "step.before:-1",
        "step.before:x",
        "step.before=explode",
        "step.before=",
        "step.before:",
        " step.before",
        "step.before\n",
        ":1=kill",
        "step.before:" + "9" * 5000,
    ],
)
def test_a_specification_that_names_no_point_is_a_usage_error(spec: str) -> None:
    """A typo is reported with the points that exist, and arms nothing."""
    with pytest.raises(UsageError, match="names no crash point") as caught:
        crash.arm(spec, tokens=None)

    assert all(point in caught.value.hint for point in crash.POINTS)
    assert not fires()


def test_a_consumed_token_keeps_the_point_from_firing_again(tmp_path: Path) -> None:
    """Armed anew with the same specification, as after a restart, the point is passed."""
    crash.arm("step.before=raise", tokens=tmp_path / "tokens")
    first = fires()

    crash.arm("step.before=raise", tokens=tmp_path / "tokens")

    assert (first, fires()) == (True, False)


def test_different_specifications_have_tokens_of_their_own(tmp_path: Path) -> None:
    """A point that fired doesn't use up another passage of it."""
    crash.arm("step.before:1=raise", tokens=tmp_path)
    first = fires()

    crash.arm("step.before:2=raise", tokens=tmp_path)

    assert (first, [fires(), fires()]) == (True, [False, True])


@pytest.mark.parametrize("action", ["raise", "full", "slow"])
def test_a_point_does_what_its_action_says(monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """A point raises, says that the disk is full, or takes longer than a lease."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    crash.arm(f"step.before={action}", tokens=None)

    with suppress(CrashRaised) if action == "raise" else suppress(OSError):
        crash.at("step.before")
        assert action == "slow"

    assert slept == ([crash.SLOW_SECONDS] if action == "slow" else [])
    assert LEASE_SECONDS < crash.SLOW_SECONDS


def test_a_full_disk_is_one_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for a full disk is the error that a full disk gives."""
    crash.arm("step.mid-write=full", tokens=None)

    with pytest.raises(OSError, match="No space left") as caught:
        crash.at("step.mid-write")

    assert caught.value.errno == errno.ENOSPC


def test_a_file_arms_again_and_again(tmp_path: Path) -> None:
    """A process looks at each passage; what fired is renamed, and what is written next counts from one."""
    order = tmp_path / "order"
    crash.arm(f"@{order}", tokens=None)
    nothing = [fires(), crash.armed_point()]
    order.write_text("step.before:2=raise\n")
    first = [fires(), fires("claim.before"), crash.armed_point(), fires(), fires()]
    renamed = [path.name for path in tmp_path.iterdir()]
    order.write_text("step.before:2=raise")
    second = [fires(), fires(), fires()]

    assert nothing == [False, None]
    assert first == [False, False, "step.before", True, False]
    assert renamed == [f"order.fired-{os.getpid()}"]
    assert second == [False, True, False]


def test_a_file_that_names_no_point_is_a_usage_error(tmp_path: Path) -> None:
    """A typo in the file is told at the next passage."""
    (tmp_path / "order").write_text("step.befor")
    crash.arm(f"@{tmp_path / 'order'}", tokens=None)

    with pytest.raises(UsageError, match="names no crash point"):
        crash.at("step.before")


def test_of_several_processes_one_takes_the_file(tmp_path: Path) -> None:
    """Processes that read one file share one crash, and the file says which of them it struck."""
    order = tmp_path / "order"
    order.write_text("step.before=kill")
    running = [start(f"@{order}", tmp_path) for _ in range(3)]
    for process in running:
        process.communicate(timeout=60)
    struck = [process.pid for process in running if process.returncode == -signal.SIGKILL]

    assert len(struck) == 1
    assert [path.name for path in tmp_path.iterdir()] == [f"order.fired-{struck[0]}"]


def test_of_many_threads_exactly_one_takes_the_turn() -> None:
    """Threads that pass at the same time neither skip the turn nor share it."""
    crash.arm("step.before:500=raise", tokens=None)
    fired: list[bool] = []

    def work() -> None:
        fired.extend(fires() for _ in range(250))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(fired), sum(fired)) == (1000, 1)


@pytest.mark.parametrize("flags", [(), ("thread",)])
def test_a_kill_is_a_kill_and_spares_the_restart(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """SIGKILL ends the process at the second passage; started again, it passes all three."""
    killed = start("step.before:2", tmp_path / "tokens", *flags)
    killed_output, _ = killed.communicate(timeout=60)
    restarted = start("step.before:2", tmp_path / "tokens", *flags)
    restarted_output, _ = restarted.communicate(timeout=60)

    assert (killed.returncode, killed_output) == (-signal.SIGKILL, "passed 1\n")
    assert (restarted.returncode, restarted_output) == (0, "passed 1\npassed 2\npassed 3\n")


def test_of_several_processes_one_is_killed(tmp_path: Path) -> None:
    """Processes that share a token folder share one crash."""
    running = [start("step.before", tmp_path) for _ in range(3)]
    for process in running:
        process.communicate(timeout=60)

    assert sorted(process.returncode for process in running) == [-signal.SIGKILL, 0, 0]


# a stop sent to the process instead of the thread lets a thread run on in about every third first passage
@pytest.mark.parametrize(("nth", "flags"), [(2, ()), (3, ("thread",)), *[(1, ("thread",))] * 8])
def test_a_pause_stops_the_process_until_it_is_continued(
    tmp_path: Path, nth: int, flags: tuple[str, ...]
) -> None:
    """The stopped process has not gone one step past the point, and goes on after SIGCONT."""
    output = tmp_path / "output"
    with output.open("w") as stdout:
        process = start(f"step.before:{nth}=pause", tmp_path / "tokens", *flags, stdout=stdout)

    _, status = os.waitpid(process.pid, os.WUNTRACED)
    before = output.read_text()
    process.send_signal(signal.SIGCONT)
    returncode = process.wait(timeout=60)

    lines = ["passed 1\n", "passed 2\n", "passed 3\n"]
    assert (os.WIFSTOPPED(status), before) == (True, "".join(lines[: nth - 1]))
    assert (returncode, output.read_text()) == (0, "".join(lines))


def test_every_point_in_the_code_is_a_known_one() -> None:
    """A typo in a call of ``at`` would make a point that can never be armed."""
    room = Path(autocode.jobs.crash.__file__).parent
    used = {
        node.args[0].value
        for module in room.rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "crash.at"
        and isinstance(node.args[0], ast.Constant)
    }

    assert used <= set(crash.POINTS)
