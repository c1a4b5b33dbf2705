"""Parts that other code runs: held for as long as the service lives, or only watched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from autocode.jobs import configuration, locks
from autocode.jobs.cli.health_screen import describe
from autocode.jobs.errors import ServerUnavailable
from autocode.jobs.service.assembly import assemble
from autocode.jobs.service.custody import Custody
from autocode.jobs.service.forkserver import ForkServer
from autocode.jobs.service.health import Part, State
from autocode.jobs.service.held_part import Held, HeldPart
from autocode.jobs.service.leash import Leash
from autocode.jobs.service.remote_part import RemotePart
from autocode.jobs.settings import Home
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
    told = part.health()
    until(reaches(part, State.READY))

    assert (told.detail, told.hint) == (("It can't be started today.",), ServerUnavailable.default_hint)
    assert (part.health().detail, part.health().hint) == ((), "")
    part.stop()
    until(reaches(part, State.STOPPED))


def test_what_another_command_needs_is_left_running(keeper: Keeper) -> None:
    """With another client the part stops without its process, names it, and kill() spares it, too."""
    part = held(keeper)
    until(reaches(part, State.READY))

    with locks.shared(keeper.folder / "clients.lock", within=10):
        part.stop()
        until(reaches(part, State.STOPPED))
        part.kill()
        assert keeper.process is not None
        assert keeper.process.poll() is None
        assert part.health().pid == keeper.process.pid

    assert keeper.process.wait(10) == 0


def test_a_remote_part_is_as_its_last_answer() -> None:
    """It fails with what the question found, is ready when there is an answer, and is never ended."""
    answers = iter([False, False])

    def ask() -> None:
        if not next(answers, True):
            raise ServerUnavailable("Nobody answers.")

    part = RemotePart("prefect", "http://prefect.example/api", ask, pause=0.05)

    until(reaches(part, State.FAILING))
    told = part.health()
    until(reaches(part, State.READY))
    part.stop()

    assert (told.detail, told.hint) == (("Nobody answers.",), ServerUnavailable.default_hint)
    assert (part.health().state, part.health().pid) == (State.STOPPED, None)


def test_a_database_that_is_down_is_told_in_one_line_with_what_to_do(tmp_path: Path) -> None:
    """What libpq says in several lines has no line break and no password, and a hint of its own."""
    home = Home(tmp_path / "home")
    settings = configuration.load(
        home, flags={"database_url": "postgresql://ada:s3cret@127.0.0.1:1/jobs"}, environ={}
    )
    with closing(Leash()) as leash, closing(ForkServer({})) as forks:
        part = assemble(home, settings, Custody(tmp_path), leash, forks, worker=False)[0]
        until(reaches(part, State.FAILING))
        told = describe(part.health())
        part.stop()

    assert told.isprintable()
    assert "postgresql://ada:***@127.0.0.1:1/jobs doesn't answer: " in told
    assert ", next: Start that server" in told
    assert "s3cret" not in told
