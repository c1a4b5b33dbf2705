"""``jobs retry``, ``jobs cancel`` and ``jobs explain``, on a real ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs.cli import main as command
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.ledger import attempts, audit, jobs, queries
from autocode.jobs.model import JobStatus
from autocode.jobs.projection import Outcome
from autocode.jobs.settings import Home
from ledger_world import begin, commit, look, new_job, problem


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    """Give the data folder that the commands of the test work on."""
    monkeypatch.setenv("AUTOCODE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    with open_system(Home(tmp_path / "home")) as opened:
        yield opened


def dead(system: System, job_id: str = "job") -> None:
    """Make a job that saved a checkpoint and met a permanent error."""
    jobs.enqueue(system.db, new_job(job_id))
    attempt = begin(system.db, job_id)
    commit(system.db, attempt, f"text of {job_id}")
    attempts.end(system.db, job_id, 1, Outcome.PERMANENT, error=problem("The folder is gone."))
    attempts.close_run(system.db, job_id, 1)
    while look(system.db, job_id):
        pass


def state(system: System, job_id: str = "job") -> JobStatus:
    """Return the job's persisted state."""
    return queries.get(system.db, job_id).status


def test_a_dead_job_is_retried_after_saying_what_is_reused(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    """A retry shows the checkpoints that it takes over, and the job waits for its next attempt."""
    dead(system)

    status = command.run(["jobs", "retry", "job", "--reason", "it is back", "--yes"])

    told = capsys.readouterr()
    assert status == 0
    assert "reused: read" in told.err
    assert "job  retrying" in told.out
    assert state(system) is JobStatus.RETRY
    entry = audit.entries(system.db, target="job")[-1]
    assert (entry.action, entry.reason, entry.outcome) == ("retry", "it is back", "accepted")
    assert "@" in entry.actor


def test_a_retry_asks_first(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody can answer, a retry without --yes changes nothing and says so."""
    dead(system)

    status = command.run(["jobs", "retry", "job", "--reason", "why not"])

    assert status == command.USAGE
    assert "--yes" in capsys.readouterr().err
    assert state(system) is JobStatus.DEAD


def test_a_retry_needs_a_reason(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """A retry without a reason is refused and changes nothing."""
    dead(system)

    status = command.run(["jobs", "retry", "job", "--yes"])

    assert status == command.USAGE
    assert "--reason" in capsys.readouterr().err
    assert state(system) is JobStatus.DEAD


def test_a_job_that_lives_is_not_retried(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """Only dead jobs can be retried, and the audit keeps that somebody tried."""
    jobs.enqueue(system.db, new_job())
    look(system.db)

    status = command.run(["jobs", "retry", "job", "-m", "impatient", "--yes"])

    assert status == command.FAILED
    assert "not dead" in capsys.readouterr().err
    assert audit.entries(system.db, target="job")[-1].outcome.startswith("refused")


def test_dead_letters_are_retried_together(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """A filter chooses the dead letters; jobs of another kind and cancelled ones stay as they are."""
    for job_id in ("one", "two"):
        dead(system, job_id)
    jobs.enqueue(system.db, new_job("called-off"))
    look(system.db, "called-off")
    command.run(["jobs", "cancel", "called-off", "-m", "no longer needed"])
    capsys.readouterr()

    none = command.run(["jobs", "retry", "--dead-letters", "--kind", "other", "-m", "x", "--yes"])
    both = command.run(["jobs", "retry", "--dead-letters", "--kind", "noop", "-m", "x", "--yes", "--json"])

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (none, both) == (0, 0)
    assert sorted(line["job_id"] for line in lines) == ["one", "two"]
    assert state(system, "called-off") is JobStatus.DEAD


def test_names_and_a_filter_contradict_each_other(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither nothing nor both of names and --dead-letters is taken for a choice."""
    dead(system)

    statuses = [
        command.run(["jobs", "retry", "--reason", "x", "--yes"]),
        command.run(["jobs", "retry", "job", "--dead-letters", "--reason", "x", "--yes"]),
        command.run(["jobs", "retry", "job", "--kind", "noop", "--reason", "x", "--yes"]),
    ]

    assert statuses == [command.USAGE] * 3
    assert state(system) is JobStatus.DEAD


def test_an_unknown_job_stops_everything(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that no job has is told before any other job is touched."""
    dead(system)

    retried = command.run(["jobs", "retry", "job", "nobody", "--reason", "x", "--yes"])
    cancelled = command.run(["jobs", "cancel", "job", "nobody", "--reason", "x"])

    assert (retried, cancelled) == (command.USAGE, command.USAGE)
    assert "nobody" in capsys.readouterr().err
    assert state(system) is JobStatus.DEAD


def test_a_waiting_job_is_called_off(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """A cancel ends a job that waits, as dead for the reason cancelled."""
    jobs.enqueue(system.db, new_job())
    look(system.db)

    status = command.run(["jobs", "cancel", "job", "--reason", "wrong folder"])

    assert status == 0
    assert "dead (cancelled)" in capsys.readouterr().out
    assert audit.entries(system.db, target="job")[-1].reason == "wrong folder"


def test_a_job_that_is_over_is_not_called_off(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """A cancel of a job that is over is refused."""
    dead(system)

    status = command.run(["jobs", "cancel", "job", "--reason", "late"])

    assert status == command.FAILED
    assert capsys.readouterr().err.startswith("error: ")


def test_explain_tells_everything_in_order(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """The timeline names attempts, checkpoints, the error, who asked for a retry, and what to do next."""
    dead(system)
    command.run(["jobs", "retry", "job", "--from", "start", "-m", "reader was wrong", "--yes"])
    capsys.readouterr()

    status = command.run(["jobs", "explain", "job"])

    lines = capsys.readouterr().out
    told = [
        "asked for from the command line",
        "attempt 1 began in process",
        "attempt 1 had saved 1 checkpoint: read text of job",
        "attempt 1 met an error that no further attempt can get past: The folder is gone.",
        "asked for a retry from the start: “reader was wrong”",
        "attempt 2 was due",
    ]
    places = [lines.index(each) for each in told]
    assert status == 0
    assert places == sorted(places)
    assert "run 1    job-run-1" in lines


def test_explain_as_json_keeps_the_job_and_its_timeline(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--json`` gives the resource and each entry with its time, its kind and its words."""
    dead(system)

    command.run(["jobs", "explain", "job", "--json"])

    found = json.loads(capsys.readouterr().out)
    assert found["job"]["status"] == "dead"
    assert [entry["what"] for entry in found["timeline"]] == [
        "Enqueued",
        "Due",
        "Begun",
        "StepsDone",
        "Ended",
    ]
    assert all(entry["at"].endswith("Z") for entry in found["timeline"])


def test_no_wait_needs_a_service(system: System, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a service nobody would run a job that is handed over, so none is accepted."""
    (tmp_path / "session.jsonl").write_text("{}\n")

    status = command.run(["export", str(tmp_path / "session.jsonl"), "--no-wait", "-o", str(tmp_path)])

    assert status == command.USAGE
    assert "autocode-jobs up" in capsys.readouterr().err
    assert queries.list_jobs(system.db) == []


def test_a_service_elsewhere_gets_no_paths(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With AUTOCODE_URL an export names roots of that service, never a path of this machine."""
    monkeypatch.setenv("AUTOCODE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AUTOCODE_TOKEN", "ajt_x_y")

    status = command.run(["export", str(tmp_path)])

    assert status == command.USAGE
    assert "--root" in capsys.readouterr().err


def test_the_settings_file_counts_for_every_command(
    system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What config.toml says is in force, and what is wrong in it is told, for commands that aren't `up`."""
    monkeypatch.setenv("AUTOCODE_URL", "")
    file = system.home.path / "config.toml"
    file.write_text('url = "http://127.0.0.1:9"\n')
    without_token = command.run(["jobs", "list"])
    file.write_text("workers = 0\n")
    wrong = command.run(["jobs", "list"])

    told = capsys.readouterr().err
    assert (without_token, wrong) == (command.USAGE, command.USAGE)
    assert "AUTOCODE_TOKEN" in told
    assert "config.toml:1" in told
