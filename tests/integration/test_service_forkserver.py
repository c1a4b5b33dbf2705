"""Parts that are forked from a process that has imported everything."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs.service.forkserver import ForkServer
from autocode.jobs.service.running import Running
from service_world import SOURCES, lives, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

NOWHERE = "http://127.0.0.1:9/api"


class Forks:
    """A fork server on an empty home, and what its parts write."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.log = folder / "log"
        own = {name: value for name, value in os.environ.items() if not name.startswith("AUTOCODE_")}
        self.environ = {**own, "AUTOCODE_HOME": str(self.home), "PYTHONPATH": str(SOURCES)}
        self.server = ForkServer(self.environ)
        self.server.start()

    def spawn(self, *argv: str, **environ: str) -> Running:
        """Fork a part that runs these arguments; its stdin stays open for as long as this process."""
        until(self.server.ready, within=60)
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        lock = os.open(self.log.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            part = self.server.spawn(argv, {**self.environ, **environ}, (null, log, log, lock))
        finally:
            for descriptor in (null, log, lock):
                os.close(descriptor)
        assert part is not None
        return part

    def reconcile(self) -> Running:
        """Fork a reconciler that runs until it is told to end; its Prefect server doesn't answer."""
        part = self.spawn("reconcile", AUTOCODE_PREFECT_API_URL=NOWHERE)
        until((self.home / "run" / "reconcile.json").exists, within=60)
        return part


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A fork server for the module."""
    made = Forks(tmp_path_factory.mktemp("forks"))
    yield made
    made.server.close()


def status(part: Running) -> int:
    """Wait for the end of *part* and return its status."""
    ended: list[int] = []

    def over() -> bool:
        found = part.ended()
        if found is not None:
            ended.append(found)
        return bool(ended)

    until(over, within=60)
    return ended[0]


def test_a_forked_command_has_its_own_environment_log_and_status(forks: Forks) -> None:
    """`config --json` runs in the environment that it was given and writes to the log; its status is told."""
    part = forks.spawn("config", "--json", AUTOCODE_WORKERS="7")

    assert status(part) == 0
    settings = {each["name"]: each["value"] for each in json.loads(forks.log.read_text("utf-8"))["settings"]}
    assert settings["workers"] == "7"
    assert status(forks.spawn("no-such-command")) == 2


def test_a_part_may_hang_up_before_its_owner_is_done_telling_it(
    forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that has read what it is to be is no sign that the fork server died."""
    process = forks.server.pid
    send = socket.send_fds

    def until_it_hung_up(lifeline: socket.socket, data: list[bytes], files: list[int]) -> int:
        sent = send(lifeline, data, files)
        # the other messages carry one file, and nobody hangs up after those
        if len(files) > 1:
            poll = select.poll()
            poll.register(lifeline, 0)
            assert poll.poll(60_000)
        return sent

    monkeypatch.setattr(socket, "send_fds", until_it_hung_up)

    assert status(forks.spawn("--version")) == 0
    assert forks.server.pid == process


def test_a_forked_part_leads_a_session_and_ends_in_order(forks: Forks) -> None:
    """SIGTERM ends it with status 0; SIGKILL with -9; each time its file says no longer that it runs."""
    part = forks.reconcile()
    assert os.getsid(part.pid) == part.pid

    part.terminate()
    assert status(part) == 0

    part = forks.reconcile()
    part.kill()
    assert status(part) == -signal.SIGKILL


def test_parts_end_with_the_process_that_forked_them_and_another_one_takes_its_place(forks: Forks) -> None:
    """SIGKILL of the fork server: its part counts as killed and is dead, and the next one is forked."""
    part = forks.reconcile()
    process = forks.server.pid
    assert process is not None

    os.kill(process, signal.SIGKILL)

    assert status(part) == -signal.SIGKILL
    until(lambda: not lives(part.pid), within=10)
    assert status(forks.spawn("config")) == 0
    assert forks.server.pid != process


def test_a_process_that_is_stopped_is_replaced_once_a_part_dies(forks: Forks) -> None:
    """SIGSTOP of the fork server and SIGKILL of its part: the end is noticed all the same."""
    part = forks.reconcile()
    process = forks.server.pid
    assert process is not None

    os.kill(process, signal.SIGSTOP)
    os.kill(part.pid, signal.SIGKILL)

    assert status(part) == -signal.SIGKILL
    assert status(forks.spawn("config")) == 0
    assert forks.server.pid != process


def test_a_process_that_never_gets_ready_is_done_without(tmp_path: Path) -> None:
    """Where it ends at its start, twice, parts are no longer to be forked."""
    server = ForkServer({**os.environ, "AUTOCODE_HOME": str(tmp_path), "PYTHONHOME": "/nowhere"})

    until(lambda: not (server.ready() or server.usable), within=60)

    assert server.spawn(["config"], {}, ()) is None
    server.close()
