"""Jobs as the command line shows them: the table, the line of progress, the words at the end."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from autocode.jobs.cli.export_report import (
    counts_text,
    show_attached,
    show_dead,
    show_interrupted,
    steps_text,
)
from autocode.jobs.cli.jobs import job_lines
from autocode.jobs.cli.progress import JobView, amount_text, describe
from autocode.jobs.cli.screen import Screen, zone
from autocode.jobs.cli.views import check_writable
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger.audit import CalledOff
from autocode.jobs.model import DeadReason, JobStatus
from autocode.jobs.resource import Job
from unit.cli_jobs import DIGEST, entry, job, problem, progress, result


def test_without_a_terminal_the_table_is_whole() -> None:
    """In a pipe every column is there, and the digest has all of its 64 digits."""
    lines = [line.plain for line in job_lines([job(JobStatus.COMPLETE, result=result())], None)]

    titles = ["job", "status", "result", "enqueued", zone(), "attempts", "steps", "kind"]
    assert lines[0].split() == titles
    assert DIGEST in lines[1]


def test_in_80_columns_id_status_and_digest_are_readable() -> None:
    """A narrow terminal gets fewer columns, none of them cut, and a digest that other commands take."""
    jobs = [
        job(JobStatus.COMPLETE, result=result()),
        job(JobStatus.DEAD, reason=DeadReason.EXHAUSTED),
    ]

    lines = [line.plain for line in job_lines(jobs, 80)]

    assert max(map(len, lines)) <= 80
    assert "export-20260105-101500-3f2a1c  complete          sha256:0123456789ab" in lines[1]
    assert "export-20260105-101500-3f2a1c  dead (exhausted)  -" in lines[2]


def test_a_terminal_that_is_too_narrow_still_gets_whole_cells() -> None:
    """Where not even three columns fit, the terminal wraps; nothing is cut."""
    lines = [line.plain for line in job_lines([job(JobStatus.COMPLETE, result=result())], 20)]

    assert lines[1] == "export-20260105-101500-3f2a1c  complete  sha256:0123456789ab"


@pytest.mark.parametrize(
    ("shown", "words", "amount"),
    [
        (job(JobStatus.QUEUED, attempts=0), "waiting for the first attempt", ""),
        (job(progress=progress(3, unit="files scanned")), "attempt 1, 0 steps done", "3 files scanned"),
        (
            job(attempts=2, history=(entry(1, "scan"),), progress=progress(5_000_000, 20_000_000)),
            "attempt 2, 1 step done",
            "25%, 5.0 MB of 20.0 MB",
        ),
        (job(progress=progress(5_000_000)), "attempt 1, 0 steps done", "5.0 MB"),
        (job(progress=progress(0, 0)), "attempt 1, 0 steps done", "0 B"),
        (job(JobStatus.RETRY, progress=progress(1, 2)), "starting attempt 2", ""),
    ],
)
def test_progress_shows_what_was_persisted_and_no_more(shown: Job, words: str, amount: str) -> None:
    """A share is shown only where done and total were persisted; nothing is guessed."""
    assert (describe(shown), amount_text(shown)) == (words, amount)


def test_a_log_gets_a_line_at_each_change_and_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """Where lines can't be redrawn, looks that bring nothing new print nothing."""
    now = [0.0]
    view = JobView(Screen(), clock=lambda: now[0])
    looks = [
        (0.0, job(JobStatus.QUEUED)),
        (0.2, job()),
        (0.4, job(progress=progress(1, 100))),
        (5.3, job(progress=progress(50, 100))),
        (5.5, job(progress=progress(51, 100))),
        (20.0, job(progress=progress(51, 100))),
        (20.2, job(progress=progress(51, 100))),
        (20.4, job(JobStatus.COMPLETE)),
    ]

    with view:
        for at, look in looks:
            now[0] = at
            view.update(look)

    assert capsys.readouterr().err.splitlines() == [
        "waiting for the first attempt",
        "attempt 1, 0 steps done",
        "attempt 1, 0 steps done, 50%, 50 B of 100 B",
        "attempt 1, 0 steps done, 51%, 51 B of 100 B",
    ]


def test_a_failed_attempt_says_why_once(capsys: pytest.CaptureFixture[str]) -> None:
    """An attempt's error is told while the next one is due, and not at every look."""
    failed = job(JobStatus.RETRY, error=problem("The store has no room left."))

    with JobView(Screen(), clock=lambda: 0.0) as view:
        view.update(failed)
        view.update(failed)

    assert capsys.readouterr().err.splitlines() == [
        "Attempt 1 ended: The store has no room left.",
        "starting attempt 2",
    ]


def test_reused_steps_are_told_by_name_number_and_origin() -> None:
    """At the end the steps done now, earlier and in earlier jobs are told apart."""
    history = (
        entry(1, "scan"),
        entry(2, "read a 00"),
        entry(3, "read b 00"),
        entry(4, "read c 00", attempt=2, reused=True),
        entry(5, "read d 00", attempt=2),
        entry(6, "bundle", attempt=2),
    )

    told = steps_text(job(JobStatus.COMPLETE, attempts=2, history=history))

    assert told == (
        "2 done in attempt 2, 3 reused from earlier attempts (scan, read x2), "
        "1 reused from earlier jobs (read)"
    )


def test_counts_come_with_their_sum() -> None:
    """Several counts have their sum before them; one count or none needs no sum."""
    assert counts_text({}) == "nothing"
    assert counts_text({"jwt": 1200}) == "jwt 1,200"
    assert counts_text({"password": 3, "jwt": 2}) == "5: jwt 2, password 3"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (job(JobStatus.RUNNING), "exports the same and is running: following it."),
        (
            job(JobStatus.RETRY, history=(entry(1, "scan"), entry(2, "read a 00"))),
            "2 finished steps (scan, read) will be reused.",
        ),
        (job(JobStatus.QUEUED), "no step of it is done yet."),
    ],
)
def test_attaching_to_a_job_says_what_is_done(
    found: Job, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second of two equal commands says whose work it goes on with."""
    show_attached(Screen(), found)

    shown = capsys.readouterr().err
    assert "export-20260105-101500-3f2a1c" in shown
    assert words in shown


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (job(JobStatus.COMPLETE, result=result()), f"artifacts get {DIGEST}"),
        (job(JobStatus.RUNNING), "Another command still runs job"),
        (job(JobStatus.RETRY, history=(entry(1, "scan"),)), "keeps 1 finished step (scan); the same command"),
        (job(JobStatus.QUEUED), "has no finished step yet; the same command goes on with it."),
    ],
)
def test_an_interrupted_export_says_how_to_go_on(
    found: Job, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is left after Ctrl-C, and what goes on with it, depends on how far the job was."""
    show_interrupted(Screen(), found)

    assert words in capsys.readouterr().err


def test_a_dead_job_is_told_with_its_reason_and_the_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever sees a dead job learns why it is dead and what to do."""
    show_dead(
        Screen(), job(JobStatus.DEAD, reason=DeadReason.EXHAUSTED, attempts=5, error=problem("No room."))
    )

    assert capsys.readouterr().err.splitlines() == [
        "Job export-20260105-101500-3f2a1c is dead (exhausted) after 5 attempts.",
        "error: No room.",
        "  next: Free some space.",
    ]


def test_an_export_that_was_called_off_says_by_whom(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever follows a job that somebody calls off learns who it was and why, as far as it is known."""
    found = job(JobStatus.DEAD, reason=DeadReason.CANCELLED)

    show_dead(Screen(), found, CalledOff(datetime.now(UTC), "ada@host", "wrong folder"))
    show_dead(Screen(), found)

    told = capsys.readouterr().err
    assert "error: ada@host called it off: “wrong folder”." in told
    assert "error: It was called off." in told
    assert told.count(f"autocode-jobs jobs retry {found.job_id} --reason TEXT") == 2


def test_an_output_below_a_file_is_refused_before_the_work(tmp_path: Path) -> None:
    """A file where a folder should be is found out at once, also further up; nothing is made."""
    file = tmp_path / "file"
    file.write_bytes(b"")

    for output in (file, file / "below" / "it"):
        with pytest.raises(UsageError, match="is no folder"):
            check_writable(output)
    check_writable(tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == [file]
