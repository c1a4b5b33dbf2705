"""Parts that other code runs: held for as long as the service lives, or only watched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autocode.jobs import locks
from autocode.jobs.errors import ServerUnavailable
from autocode.jobs.service.health import Part, State
from autocode.jobs.service.held_part import Held, HeldPart
from autocode.jobs.service.remote_part import RemotePart
from service_world import SOURCES, until

KEPT = """
import os, sys, time
from pathlib import Path
from autocode.jobs import locks
folder = Path(sys.argv[1])
with locks.owned(folder / "kept.lock", within=10):
    print("lives", flush=True)
    os.close(locks.wait_for_exclusive(folder / "clients.lock"))
"""
"""Lives until the last client has gone, as PostgreSQL's keeper and the Prefect server do."""


class Keeper:
    """Starts such a process, shares its clients' lock, and fails as often as it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failures = 0
        self.process: subprocess.Popen[str] | None = None

    @contextmanager
    def block(self) -> Iterator[str | None]:
        """Hold the process as one of its clients."""
        if self.failures:
            self.failures -= 1
            raise ServerUnavailable("It can't be started today.")
        with locks.shared(self.folder / "clients.lock", within=10):
            self.start()
            yield "http://kept.example"

    def start(self) -> None:
        """Start the process and wait until it lives."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", KEPT, str(self.folder)],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def end(self) -> None:
        """Reap the process, killed if it must be."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.communicate()


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """Give a keeper and leave nothing of it."""
    made = Keeper(tmp_path)
    yield made
    made.end()


def held(keeper: Keeper) -> HeldPart:
    """Make the part that holds what the keeper keeps."""
    return HeldPart(
        Held(
            name="kept",
            block=keeper.block,
            lock=keeper.folder / "kept.lock",
            clients=keeper.folder / "clients.lock",
            log=keeper.folder / "kept.log",
        )
    )


def reaches(part: Part, state: State) -> Callable[[], bool]:
    """Return a condition that looks after the part, and holds once it is in *state*."""

    def look() -> bool:
        part.tick()
        return part.health().state is state

    return look


def test_a_held_part_is_ready_while_its_process_lives_and_stops_with_it(keeper: Keeper) -> None:
    """It has the process that holds the lock; after stop() it is over once that process has ended."""
    part = held(keeper)
    until(reaches(part, State.READY))
    health = part.health()

    part.stop()
    until(reaches(part, State.STOPPED))

    assert keeper.process is not None
    assert (health.pid, health.url) == (keeper.process.pid, "http://kept.example")
    assert keeper.process.wait(10) == 0


def test_a_process_that_was_replaced_counts_as_restarted(keeper: Keeper) -> None:
    """Who keeps the process starts it again; here that is seen by its lock alone."""
    part = held(keeper)
    until(reaches(part, State.READY))
    assert keeper.process is not None

    os.kill(keeper.process.pid, signal.SIGKILL)
    until(reaches(part, State.RESTARTING))
    keeper.end()
    keeper.start()
    until(reaches(part, State.READY))

    assert (part.health().pid, part.health().restarts) == (keeper.process.pid, 1)
    part.stop()
    until(reaches(part, State.STOPPED))


def test_a_block_that_can_not_be_entered_is_told_and_tried_again(keeper: Keeper) -> None:
    """The part fails with what the error says, and is ready as soon as a later try succeeds."""
    keeper.failures = 2
    part = held(keeper)

    until(reaches(part, State.FAILING))
    told = part.health().detail
    until(reaches(part, State.READY))

    assert told == ("It can't be started today.",)
    assert part.health().detail == ()
    part.stop()
    until(reaches(part, State.STOPPED))


def test_what_another_command_needs_is_left_running(keeper: Keeper) -> None:
    """With another client the part stops without its process, and kill() spares it, too."""
    part = held(keeper)
    until(reaches(part, State.READY))

    with locks.shared(keeper.folder / "clients.lock", within=10):
        part.stop()
        until(reaches(part, State.STOPPED))
        part.kill()
        assert keeper.process is not None
        assert keeper.process.poll() is None

    assert keeper.process.wait(10) == 0


def test_a_remote_part_is_as_its_last_answer() -> None:
    """It fails with what the question found, is ready when there is an answer, and is never ended."""
    answers = iter([False, False])

    def ask() -> None:
        if not next(answers, True):
            raise ServerUnavailable("Nobody answers.")

    part = RemotePart("prefect", "http://prefect.example/api", ask, pause=0.05)

    until(reaches(part, State.FAILING))
    told = part.health().detail
    until(reaches(part, State.READY))
    part.stop()

    assert told == ("Nobody answers.",)
    assert (part.health().state, part.health().pid) == (State.STOPPED, None)
