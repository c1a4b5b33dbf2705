"""The lesson kit on real parts: a Prefect server, processes, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs.errors import UnexpectedError, UsageError
from autocode.jobs.testing.lessons import Lesson, start
from autocode.jobs.testing.lessons.runs import Launcher


@pytest.fixture(scope="module")
def lesson() -> Iterator[Lesson]:
    """Give a lesson of two sessions."""
    started = start("98", sessions=2)
    yield started
    started.stop()


def test_a_lesson_runs_kills_resumes_and_compares(lesson: Lesson) -> None:
    """After a kill in the gap and a resume, the artifact is that of an undisturbed run."""
    lesson.run("export", home="calm")
    killed = lesson.run("export", home="gap", crash_at="step.after-object:3")
    lesson.run("export", home="gap")

    assert killed.status == -signal.SIGKILL
    assert lesson.artifact("gap") == lesson.artifact("calm") != "-"
    assert lesson.compare(["gap"]).rows[0][1:5] == (2, 1, 3, 1)
    assert "attempt 1: 1 done, 1 lost, then killed; attempt 2: 3 done, 1 reused" in lesson.timeline(
        ["calm", "gap"], title="x"
    ).alt.replace("calm: attempt 1: 4 done. ", "")


def test_a_second_job_in_a_home_is_told_apart(lesson: Lesson) -> None:
    """The same export again is another job, whose sessions are read from what the first one left."""
    lesson.run("export", home="twice")
    lesson.run("export", home="twice")

    assert lesson.ledger("twice").column("job") == ["job-A"] * 4 + ["job-B"] * 4
    assert lesson.prefect("twice").rows == (
        ("scan", "Completed"),
        *((row[2], "Cached") for row in lesson.ledger("twice").rows[5:]),
    )
    assert lesson.query("SELECT count(*) AS jobs FROM jobs", "twice").rows == ((2,),)


def test_a_crash_point_that_isn_t_reached_is_said(lesson: Lesson) -> None:
    """The run ends as ever, and the reader learns that nothing was killed."""
    run = lesson.run("export", home="missed", crash_at="step.before:99")

    assert repr(run) == "autocode-jobs export: ended with status 0; it never came to step.before:99"


def test_a_crash_point_that_doesn_t_exist_is_explained(lesson: Lesson) -> None:
    """The command's own complaint is shown, with the points that there are."""
    run = lesson.run("export", home="typo", crash_at="step.nowhere")

    assert run.status == 2
    assert "names no crash point" in repr(run)


def test_a_home_can_be_emptied_and_used_again(lesson: Lesson) -> None:
    """After fresh() the same crash point strikes once more."""
    lesson.run("export", home="again", crash_at="step.before")
    lesson.fresh("again")

    run = lesson.run("export", home="again", crash_at="step.before")

    assert run.killed
    assert len(lesson.ledger("again")) == 0
    assert lesson.attempts("again").rows == ((1, "begun, no end", "Running"),)


def test_damage_and_other_commands(lesson: Lesson) -> None:
    """A damaged object is what `verify` finds; a step that has no checkpoint can't be damaged."""
    lesson.run("export", home="rotten")
    lesson.damage("scan", home="rotten")

    run = lesson.run("verify", home="rotten")

    assert run.status == 1
    assert "NO" in lesson.store("rotten").column("whole") or len(lesson.store("rotten")) == 5
    with pytest.raises(UsageError, match="is of a step 'nothing'"):
        lesson.damage("nothing", home="rotten")


def test_the_ledger_s_complaint_about_a_query_is_passed_on(lesson: Lesson) -> None:
    """A mistake in SQL is told as such."""
    lesson.run("jobs list", home="sql")

    with pytest.raises(UsageError, match="no such table: nowhere"):
        lesson.query("SELECT * FROM nowhere", "sql")


def test_a_stopped_lesson_stays_stopped() -> None:
    """A second stop() says the same, also where the server was never needed."""
    brief = start("97", sessions=2)

    said = [brief.stop(), brief.stop()]

    assert said == ["server stopped, nothing left running"] * 2


def test_a_launcher_that_is_gone_says_so(tmp_path: Path) -> None:
    """Whoever starts a command after its death gets an error, and not an endless wait."""
    launcher = Launcher(tmp_path, tmp_path / "log")
    os.kill(launcher.pid, signal.SIGKILL)

    with pytest.raises(UnexpectedError, match="is gone"):
        launcher.start(["--version"], {}, tmp_path / "out", tmp_path / "err").wait()
    launcher.close()


def test_a_figure_is_drawn_without_a_word_on_stderr(tmp_path: Path) -> None:
    """Also the first time, when matplotlib has no cache of fonts yet."""
    code = (
        "from autocode.jobs.testing.lessons.figures import Lane, Mark, timeline\n"
        "timeline(['scan'], [Lane('x', ((Mark.DONE,),), {})], title='x')"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MPLCONFIGDIR": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(sys.platform != "linux", reason="inotify(7) is Linux's")
def test_every_opened_session_is_noticed(lesson: Lesson, tmp_path: Path) -> None:
    """Whatever process opens a file while the block lasts, and nothing before or after it."""
    folder = lesson._machinery.folders.sessions
    (folder / "monday.jsonl").read_bytes()

    with lesson.watch() as seen:
        reader = threading.Thread(target=(folder / "tuesday.jsonl").read_bytes)
        reader.start()
        reader.join()
    (folder / "monday.jsonl").read_bytes()

    assert seen.names == ["tuesday"]
    assert repr(seen) == "opened: tuesday"
