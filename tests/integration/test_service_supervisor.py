"""The supervisor over real processes: starting, restarting, failing, stopping, and what outlives it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs.errors import HomeUnusable, ServiceRunning
from autocode.jobs.retry import Backoff
from autocode.jobs.service.assembly import announced
from autocode.jobs.service.custody import Custody
from autocode.jobs.service.health import State
from autocode.jobs.service.log_files import Follower, PartLog
from autocode.jobs.service.process_part import Announcement, ProcessPart, Spec
from autocode.jobs.service.single import announce, only_supervisor, running
from service_world import DEAF, FAILING, WITH_CHILD, World, lives, until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Give a world; afterwards none of its processes lives."""
    made = World(tmp_path)
    yield made
    made.close()
    assert made.custody.living() == {}


def test_a_part_waits_for_those_that_it_needs_and_all_stop_in_the_opposite_order(world: World) -> None:
    """A part starts when what it needs is ready; the last one to start is the first one to stop."""
    world.part("base")
    world.part("middle", needs=("base",))
    world.part("top", needs=("middle",))
    world.start()
    world.pid("top")

    in_order = world.stop()

    ready = [health.name for health in world.told if health.state is State.READY]
    assert ready == ["base", "middle", "top"]
    assert in_order
    assert world.ends() == ["top", "middle", "base"]
    assert [world.health(name).state for name in world.parts] == [State.STOPPED] * 3


def test_a_part_that_is_killed_is_started_again(world: World) -> None:
    """After SIGKILL another process takes its place, the others stay, and the restart is counted."""
    world.part("one")
    world.part("other")
    world.start()
    first, other = world.pid("one"), world.pid("other")

    os.kill(first, signal.SIGKILL)
    world.wait(lambda: world.health("one").restarts == 1 and world.health("one").state is State.READY)

    assert world.pid("one") != first
    assert world.pid("other") == other
    states = [(health.state, health.detail) for health in world.told if health.name == "one"]
    assert (State.RESTARTING, ("ended by SIGKILL", "ready as one")) in states


def test_what_a_part_left_behind_is_killed_before_it_is_started_again(world: World) -> None:
    """A child that outlives its parent would do its work a second time beside the next one."""
    world.part("one", WITH_CHILD)
    world.start()
    first = world.pid("one")
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()

    os.kill(first, signal.SIGKILL)
    world.wait(lambda: world.health("one").restarts == 1)

    assert len(children) == 1
    assert not lives(int(children[0]))


def test_a_part_that_ends_at_once_is_failing_with_its_last_words_while_others_live(world: World) -> None:
    """It is tried again and again; the others aren't touched, and one stop ends everything."""
    world.part("good")
    world.part("bad", FAILING)
    world.start()

    world.wait(lambda: world.health("bad").restarts >= 4)
    health = world.health("bad")
    good = world.health("good")
    in_order = world.stop()

    assert health.state is State.FAILING
    assert health.detail == ("ended with status 1", "no such table", "really")
    assert (good.state, good.restarts) == (State.READY, 0)
    assert in_order


def test_a_program_that_does_not_exist_is_a_failing_part(world: World) -> None:
    """What can't even be started is told and tried again, and stops nothing else."""
    spec = Spec(name="none", argv=(str(world.folder / "missing"),), announced=lambda _pid: None)
    log = PartLog(world.home.logs, "none")
    pauses = Backoff(first=0.01, ceiling=0.05)
    world.parts["none"] = ProcessPart(spec, log, world.custody, world.leash, pauses=pauses)
    world.start()

    world.wait(lambda: world.health("none").state is State.FAILING)

    assert "can't be started" in world.health("none").detail[0]
    assert world.stop()


def test_a_part_that_never_gets_ready_is_replaced(world: World) -> None:
    """A start that takes longer than it may is ended like any other failure."""
    world.part("slow", "import time; time.sleep(300)", start_seconds=0.2)
    world.start()

    world.wait(lambda: world.health("slow").restarts >= 1)

    assert world.health("slow").detail == ("ended by SIGKILL",)


def test_a_part_that_does_not_stop_is_killed_with_its_group(world: World) -> None:
    """After its deadline SIGKILL follows, the others still stop in order, and it isn't called in order."""
    world.part("base")
    world.part("deaf", DEAF, stop_seconds=0.3)
    world.start()
    pid = world.pid("deaf")

    in_order = world.stop()

    assert not in_order
    assert not lives(pid)
    assert world.ends() == ["base"]


def test_a_second_request_hurries(world: World) -> None:
    """Who asks twice does not wait for a deadline of minutes."""
    world.part("deaf", DEAF, stop_seconds=600.0)
    world.start()
    world.pid("deaf")
    began = time.monotonic()

    world.requests.note()
    in_order = world.stop()

    assert not in_order
    assert time.monotonic() - began < 30


def test_parts_that_still_run_are_looked_after_while_others_stop(world: World) -> None:
    """A worker that drains needs the rest: what dies meanwhile is started again."""
    world.part("base")
    world.part("draining", DEAF, stop_seconds=5.0)
    world.start()
    world.pid("draining")
    base = world.pid("base")
    world.requests.note()
    world.wait(lambda: world.health("draining").state is State.STOPPING)

    os.kill(base, signal.SIGKILL)
    world.wait(lambda: world.health("base").restarts == 1)

    assert not world.stop()
    assert world.ends() == ["base"]


SUPERVISOR = """
import sys
from pathlib import Path
from service_world import DEAF, STEADY, World
world = World(Path(sys.argv[1]))
world.part("one", STEADY)
world.part("deaf", DEAF, stop_seconds=float(sys.argv[2]))
world.start()
print(world.pid("one"), world.pid("deaf"), flush=True)
world._thread.join()
"""


def supervised(world: World, deaf_seconds: float) -> tuple[subprocess.Popen[str], int, int]:
    """Start a supervisor as a process; return it and the processes of its two parts."""
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(world.folder), str(deaf_seconds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    one, deaf = process.stdout.readline().split()
    return process, int(one), int(deaf)


def test_parts_end_by_themselves_when_their_supervisor_is_killed(world: World) -> None:
    """They end in order; one that is deaf to SIGTERM is killed when its time is over."""
    process, one, deaf = supervised(world, deaf_seconds=0.5)
    with process:
        process.kill()

    until(lambda: not lives(one) and not lives(deaf), within=30)

    assert world.ends() == ["one"]


def test_the_next_supervisor_ends_what_a_killed_one_left(world: World) -> None:
    """What could not notice, as it is stopped, is found by the lock that it inherited, and is ended."""
    process, one, deaf = supervised(world, deaf_seconds=600)
    os.kill(deaf, signal.SIGSTOP)
    with process:
        process.kill()
    until(lambda: not lives(one), within=30)
    until(lambda: world.custody.living() == {"deaf": {deaf}}, within=30)

    left = world.custody.end(within=0.1)

    assert left == {}
    assert not lives(deaf)


def test_a_second_supervisor_is_refused_and_changes_nothing(world: World) -> None:
    """It says which process serves the home, and where; the files of the home stay as they are."""
    with only_supervisor(world.home):
        announce(world.home, url="http://127.0.0.1:1", prefect_url=None)
        before = {path: path.stat().st_mtime_ns for path in world.home.path.rglob("*")}

        with pytest.raises(ServiceRunning) as caught, only_supervisor(world.home):
            pass

        after = {path: path.stat().st_mtime_ns for path in world.home.path.rglob("*")}
        assert before == after
    assert f"already runs at http://127.0.0.1:1, as process {os.getpid()}" in caught.value.detail
    assert running(world.home) is None


def test_what_a_dead_supervisor_said_of_itself_is_not_believed(world: World) -> None:
    """A file without the lock proves nothing."""
    said = {"pid": os.getpid(), "at": "2026-01-01T00:00:00Z", "url": "http://127.0.0.1:1"}
    (world.home.run / "up.json").write_text(json.dumps(said))

    assert running(world.home) is None
    with only_supervisor(world.home):
        assert not (world.home.run / "up.json").exists()


def test_remains_that_can_not_be_ended_are_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generations of parts side by side would be worse than no service: the home is refused."""
    monkeypatch.setattr(Custody, "end", lambda self, **_patience: self.living())
    process, _one, deaf = supervised(world, deaf_seconds=600)
    with process:
        process.kill()
    until(lambda: list(world.custody.living()) == ["deaf"], within=30)

    with pytest.raises(HomeUnusable) as caught, only_supervisor(world.home):
        pass

    assert f"deaf (process {deaf})" in caught.value.detail
    monkeypatch.undo()


def test_an_announcement_counts_only_with_its_lock(world: World) -> None:
    """A part is ready when the very process that runs says so, not when a file of its name is there."""
    find = announced(world.home, "api")
    said = {"pid": os.getpid(), "at": "2026-01-01T00:00:00Z", "url": "http://127.0.0.1:2"}
    (world.home.run / "api.json").write_text(json.dumps(said))

    without = find(os.getpid())
    with contextlib.ExitStack() as stack:
        from autocode.jobs import locks

        stack.enter_context(locks.owned(world.home.run / "api.lock", within=1))
        held = find(os.getpid())
        other = find(os.getpid() + 1)

    assert without is None
    assert held == Announcement("http://127.0.0.1:2")
    assert other is None


def test_a_log_is_set_aside_by_size_and_the_oldest_goes(tmp_path: Path) -> None:
    """Of a log that grows, the newest file and a fixed number of older ones stay."""
    log = PartLog(tmp_path, "part", limit=10, kept=2)
    follower = Follower(log.path)
    seen: list[str] = []

    for number in range(5):
        with log.opened() as descriptor:
            os.write(descriptor, f"generation {number}\n".encode())
        seen += follower.lines()
    follower.close()

    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "part.log": "generation 4\n",
        "part.1.log": "generation 3\n",
        "part.2.log": "generation 2\n",
    }
    assert seen == [f"generation {number}" for number in range(5)]
    assert log.tail(5) == ("generation 4",)
    assert log.tail(5, since=13) == ()
