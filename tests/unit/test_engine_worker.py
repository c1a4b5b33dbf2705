"""The small parts of the worker, each by itself."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from prefect.client.schemas.responses import DeploymentResponse

from autocode.jobs.engine.worker import registry
from autocode.jobs.engine.worker.arrivals import Alarm
from autocode.jobs.engine.worker.configuration import JobsConfiguration, grace_seconds
from autocode.jobs.engine.worker.messages import Frame, Op, Order, receive, send
from autocode.jobs.engine.worker.processes import reap
from autocode.jobs.engine.worker.starter import told
from autocode.jobs.errors import UsageError
from autocode.jobs.settings import Home


def test_frames_and_the_files_sent_with_them_arrive_one_by_one(tmp_path: Path) -> None:
    """Two frames in a row, one with an open file: each is received whole, with its file, then the end."""
    ours, its = socket.socketpair()
    with (tmp_path / "file").open("w+b") as file:
        send(ours, Frame(Op.SPAWN, 1 << 40), [file.fileno()])
        send(ours, Frame(Op.EXITED, 2, 3, -9))
        ours.close()

        first, second, end = receive(its), receive(its), receive(its)

        assert first is not None
        frame, [descriptor] = first
        assert frame == Frame(Op.SPAWN, 1 << 40)
        assert os.path.sameopenfile(descriptor, file.fileno())
        os.close(descriptor)
    its.close()
    assert second == (Frame(Op.EXITED, 2, 3, -9), [])
    assert end is None


def test_an_order_survives_its_line() -> None:
    """What the worker writes is what the child reads, newlines and None included."""
    order = Order(
        {"id": "x", "parameters": {"text": "a\nb ü"}}, None, {"A": None, "B": "1"}, None, 3, "h", 7, "m"
    )

    line = order.encode()

    assert line.count(b"\n") == 1
    assert Order.decode(line) == order


def test_a_number_that_another_process_got_is_not_the_child(tmp_path: Path) -> None:
    """The same process id with another beginning: not alive, and not killed."""
    home = Home(tmp_path / "home")
    home.prepare()
    bystander = subprocess.Popen(["sleep", "600"])
    mark = registry.started_at(bystander.pid)
    assert mark is not None
    child = registry.Registered(bystander.pid, mark + "0", "run", 1, "mark")

    registry.kill(child)

    assert not registry.lives(child)
    assert registry.lives(registry.Registered(bystander.pid, mark, "run", 1, "mark"))
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert registry.started_at(bystander.pid) is None


def test_a_child_is_on_the_list_while_it_lives(tmp_path: Path) -> None:
    """The block lists this process; a damaged file is left out; after the block the list is empty."""
    home = Home(tmp_path / "home")
    home.prepare()

    with registry.registered(home, "run-1", 5, "mark"):
        (home.run / "children" / "77").write_text("{")
        [listed] = registry.children(home)

    assert (listed.pid, listed.flow_run_id, listed.worker) == (os.getpid(), "run-1", 5)
    assert registry.lives(listed)
    assert registry.children(home) == []


def test_reaping_kills_what_a_dead_child_left_in_its_group() -> None:
    """A child that leaves a helper behind: reaping it ends the helper; it is reaped once."""
    script = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    assert child.stdout is not None
    helper = int(child.stdout.readline())
    end = time.monotonic() + 20

    while (status := reap(child.pid)) is None and time.monotonic() < end:
        pass

    assert status == 0
    while (lives := registry.started_at(helper)) is not None and time.monotonic() < end:
        pass
    assert lives is None
    with pytest.raises(ChildProcessError):
        reap(child.pid)
    child.stdout.close()
    child.returncode = status


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-9, "killed (SIGKILL)"),
        (-11, "SIGSEGV"),
        (-15, "ended by the signal SIGTERM"),
        (-64, "SIGRTMAX"),
        (-250, "ended by signal 250"),
        (3, "ended with status 3"),
    ],
)
def test_how_a_process_ended_is_said_in_words(status: int, words: str) -> None:
    """Every exit status has a sentence, with the signal's name where it has one."""
    sentence = told(status)

    assert words in sentence


def test_an_alarm_rings_at_once_or_when_it_is_due() -> None:
    """A ring before the wait counts; a due time ends the wait then and not before."""

    async def measure() -> tuple[float, float]:
        alarm = Alarm()
        alarm.ring()
        alarm.ring()
        began = time.monotonic()
        await alarm.wait()
        at_once = time.monotonic() - began
        alarm.set(datetime.now(UTC) + timedelta(seconds=0.2))
        began = time.monotonic()
        await alarm.wait()
        return at_once, time.monotonic() - began

    at_once, due = asyncio.run(measure())

    assert at_once < 0.2 <= due + 0.01 < 1.9


def _entering(folder: str) -> dict[str, object]:
    """Return the pull step that enters a folder."""
    return {"prefect.deployments.steps.set_working_directory": {"directory": folder}}


@pytest.mark.parametrize(
    ("entrypoint", "pull_steps", "direct"),
    [
        ("/flows/export.py:export", None, True),
        ("/flows/export.py:export", [{"prefect.deployments.steps.set_working_directory": {}}], False),
        ("/flows/export.py:export", [_entering("/flows")], True),
        ("/flows/export.py:export", [_entering("/other")], False),
        ("/flows/export.py:export", [_entering("/flows"), _entering("/flows")], False),
        ("export.py:export", [_entering(".")], False),
        ("flows/export.py:export", None, False),
        ("package.module.flow", None, False),
        (None, None, False),
    ],
)
def test_only_an_absolute_entrypoint_is_loaded_without_prefects_help(
    entrypoint: str | None, pull_steps: list[dict[str, object]] | None, direct: bool
) -> None:
    """Pull steps, relative files and modules are left to Prefect, in a temporary folder that is removed."""
    configuration = JobsConfiguration()
    configuration._deployment = DeploymentResponse(
        flow_id=uuid4(), name="d", labels=None, entrypoint=entrypoint, pull_steps=pull_steps
    )

    assert (configuration.entrypoint is not None) is direct
    with ExitStack() as stack:
        folder = configuration.folder(stack)
        assert (folder is None) is direct
    assert folder is None or not Path(folder).exists()


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """The job variable is named, with what to do."""
    configuration = JobsConfiguration(working_dir=tmp_path / "missing")

    with pytest.raises(UsageError) as refused:
        configuration.check()

    assert "'working_dir'" in refused.value.detail
    assert refused.value.hint


@pytest.mark.parametrize(("said", "seconds"), [("", 5.0), ("0.5", 0.5), ("-1", 0.0), ("soon", 5.0)])
def test_the_grace_time_is_a_setting(said: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTOCODE_WORKER_GRACE in seconds; anything else means the default."""
    monkeypatch.setenv("AUTOCODE_WORKER_GRACE", said)

    assert grace_seconds() == seconds
