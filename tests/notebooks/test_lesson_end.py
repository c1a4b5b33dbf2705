"""A stored lesson that isn't true any more fails its check, and nothing of a lesson outlives it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from notebooks.hygiene import FOLDER, LESSONS
from notebooks.whole_check import failures

LESSON: Final = next(path for path in LESSONS if path.name.startswith("03"))

# begins a lesson, and comes to a run that stops itself instead of ending
_DRIVER: Final = """
from autocode.jobs.testing.lessons import start
lesson = start("99", sessions=2)
lesson.run("export", crash_at="step.before=pause")
"""


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Give a folder for a lesson's temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def tampered(tmp_path: Path, change: Callable[[Any], Any]) -> Path:
    """Return a copy of the lesson that was changed."""
    notebook = json.loads(LESSON.read_text("utf-8"))
    for cell in notebook["cells"]:
        change(cell)
    path = tmp_path / LESSON.name
    path.write_text(json.dumps(notebook), "utf-8")
    return path


def processes(folder: Path) -> dict[int, str]:
    """Return the living processes that name *folder* or something in it: state by process id."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if os.fsencode(folder) in line and state != "Z":
            found[int(entry.name)] = state
    return found


def until(condition: Callable[[], bool], *, within: float, told: Callable[[], object]) -> None:
    """Wait until *condition* holds; fail with what *told* says once *within* seconds have passed."""
    end = time.monotonic() + within
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, told()
        pause.wait(0.05)


def nothing_left(temporary: Path) -> None:
    """Assert that soon no process and no folder of a lesson is left."""

    def left() -> list[object]:
        return [*processes(temporary), *temporary.glob("autocode-*")]

    until(lambda: not left(), within=30, told=left)


def test_a_changed_number_fails_the_check(tmp_path: Path, temporary: Path) -> None:
    """A stored output in which one number was changed keeps every rule, and is found by running it."""

    def change(cell: Any) -> None:
        for output in cell.get("outputs", []):
            text = output.get("data", {}).get("text/plain")
            if text and cell["execution_count"] == 2:
                output["data"]["text/plain"] = [line.replace("34513", "34514") for line in text]

    path = tampered(tmp_path, change)
    assert path.read_text("utf-8").count("34514") == 1

    found = failures(path, temporary=temporary)

    assert [line.rpartition("::")[2].split(" ")[:2] for line in found] == [["Cell", "1"]], found
    nothing_left(temporary)


def test_cleared_outputs_fail_the_check(tmp_path: Path, temporary: Path) -> None:
    """A lesson whose outputs were cleared is found, though nbval alone would compare nothing and pass."""

    def clear(cell: Any) -> None:
        if cell["cell_type"] == "code":
            cell.update(execution_count=None, outputs=[])

    path = tampered(tmp_path, clear)

    found = failures(path, temporary=temporary)

    assert any("aren't executed" in line for line in found), found


@pytest.mark.skipif(sys.platform != "linux", reason="the states of processes are read from /proc")
def test_nothing_of_a_lesson_outlives_a_killed_kernel(temporary: Path) -> None:
    """The server, the launcher, a run that is stopped, and the folder go when the kernel is killed."""
    kernel = subprocess.Popen(
        [sys.executable, "-c", _DRIVER], env={**os.environ, "TMPDIR": str(temporary)}, cwd=FOLDER
    )
    try:
        until(
            lambda: "T" in processes(temporary).values() or kernel.poll() is not None,
            within=120,
            told=lambda: processes(temporary),
        )
        assert kernel.poll() is None
        began = processes(temporary)

        os.kill(kernel.pid, signal.SIGKILL)
        kernel.wait()

        # the launcher, the stopped run, the server and the janitor
        assert len(began) == 4, began
        nothing_left(temporary)
    finally:
        kernel.kill()
        kernel.wait()
        shutil.rmtree(temporary, ignore_errors=True)
