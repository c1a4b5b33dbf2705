"""``jobs retry``, ``jobs cancel`` and ``jobs explain``, on a real ledger."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs.cli import main as command
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.ledger import attempts, audit, jobs, queries
from autocode.jobs.ledger.wakeups import Listener
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


def test_a_dry_run_shows_and_changes_nothing(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """It needs no reason, says what is reused and what would be refused, and leaves no entry."""
    dead(system)
    jobs.enqueue(system.db, new_job("alive"))
    look(system.db, "alive")
    before = len(audit.entries(system.db))

    shown = command.run(["jobs", "retry", "--dead-letters", "--kind", "noop", "--dry-run"])
    told = capsys.readouterr().err
    mixed = command.run(["jobs", "retry", "job", "alive", "--dry-run", "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert (shown, mixed) == (0, 1)
    assert "reused: read" in told
    assert [(line["job_id"], line["dead"]) for line in lines] == [("job", True), ("alive", False)]
    assert state(system) is JobStatus.DEAD
    assert len(audit.entries(system.db)) == before


def test_dead_letters_are_chosen_by_session(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of other sessions, and of none, stay as they are."""
    dead(system)

    status = command.run(["jobs", "retry", "--dead-letters", "--session", "other", "-m", "x", "--yes"])

    assert status == 0
    assert "No dead letter fits" in capsys.readouterr().err
    assert state(system) is JobStatus.DEAD


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


@pytest.fixture
def served(system: System, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the commands see a service, of which reconcile tells what happened a moment after it did."""
    monkeypatch.setattr("autocode.jobs.cli.desk.lives", lambda *_: True)
    over = threading.Event()

    def tell() -> None:
        with Listener(system.db) as listener:
            while not over.is_set():
                listener.wait(0.05)
                with system.db.read() as tx:
                    untold = queries.untold(tx)
                for job_id in untold:
                    look(system.db, job_id)

    thread = threading.Thread(target=tell)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.usefixtures("served")
def test_what_a_service_does_is_told_once_it_is_persisted(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a service, a retry and a cancel show the job as the service made it, and not as it was before."""
    dead(system)
    before = queries.get(system.db, "job").rev

    command.run(["jobs", "retry", "job", "-m", "it is back", "--yes", "--json"])
    retried = json.loads(capsys.readouterr().out)
    command.run(["jobs", "cancel", "job", "-m", "after all not"])

    assert (retried["status"], retried["rev"] > before) == ("retrying", True)
    assert capsys.readouterr().out == "job  dead (cancelled)\n"


def test_a_retry_that_the_service_has_yet_to_show_is_called_taken(
    system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the service is slow to tell, the command doesn't show the old state as what came of it."""
    dead(system)
    monkeypatch.setattr("autocode.jobs.cli.desk.lives", lambda *_: True)
    monkeypatch.setattr("autocode.jobs.cli.desk._TOLD_SECONDS", 0.0)

    status = command.run(["jobs", "retry", "job", "-m", "it is back", "--yes"])

    assert status == 0
    assert "job  retry taken; the service has yet to show it" in capsys.readouterr().out


def test_a_running_job_is_said_to_have_been_asked_to_stop(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cancel of a running job doesn't end there: it says that the stop was asked for, and JSON what is."""
    jobs.enqueue(system.db, new_job())
    begin(system.db)
    look(system.db)

    command.run(["jobs", "cancel", "job", "-m", "wrong folder"])
    told = capsys.readouterr().out
    command.run(["jobs", "cancel", "job", "-m", "wrong folder", "--json"])

    assert told == "job  running; asked to stop: it ends itself, or is ended after 5 s\n"
    assert json.loads(capsys.readouterr().out)["status"] == "running"


def test_what_was_called_off_before_may_be_called_off_again(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asking again for a cancel is no error, and says that it was called off before."""
    jobs.enqueue(system.db, new_job())
    look(system.db)
    command.run(["jobs", "cancel", "job", "-m", "wrong folder"])
    capsys.readouterr()

    status = command.run(["jobs", "cancel", "job", "-m", "still wrong"])

    assert status == 0
    assert capsys.readouterr().out == "job  dead (cancelled): it was called off before\n"


def test_what_can_only_be_refused_is_refused_before_anything_is_shown(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that isn't dead and an empty reason are refused at once, without preview and question."""
    dead(system)
    jobs.enqueue(system.db, new_job("waits"))
    look(system.db, "waits")

    lives = command.run(["jobs", "retry", "waits", "-m", "impatient"])
    told = capsys.readouterr().err
    empty = [command.run(["jobs", act, "job", "-m", " "]) for act in ("retry", "cancel")]

    assert (lives, empty) == (command.FAILED, [command.USAGE] * 2)
    assert told.startswith("error: Job waits is queued, not dead.")
    assert "reused" not in told + capsys.readouterr().err
    assert len(audit.entries(system.db)) == 1


def test_called_off_jobs_are_no_dead_letters(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """Choosing the cancelled ones among the dead letters contradicts itself, and is refused."""
    status = command.run(
        ["jobs", "retry", "--dead-letters", "--dead-because", "cancelled", "-m", "x", "--yes"]
    )

    assert status == command.USAGE
    assert "no dead letter" in capsys.readouterr().err


def test_a_called_off_job_says_by_whom_and_offers_no_next_attempt(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a cancel of a job that waited for its next attempt nothing promises that attempt any more."""
    jobs.enqueue(system.db, new_job())
    begin(system.db)
    told = {**problem(), "hint": "Nothing to do: the next attempt goes on from the last checkpoint."}
    attempts.end(system.db, "job", 1, Outcome.LOST, error=told)
    look(system.db)
    command.run(["jobs", "cancel", "job", "-m", "wrong folder"])
    capsys.readouterr()

    command.run(["jobs", "explain", "job"])
    command.run(["jobs", "show", "job"])

    told_of = capsys.readouterr().out
    assert "the next attempt goes on" not in told_of
    assert "called it off: “wrong folder”." in told_of
    assert told_of.count("retry    autocode-jobs jobs retry job --reason TEXT") == 2


def test_a_permanent_death_offers_no_retry_that_can_not_work(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    """What died of its input says that a retry alone won't help, and no budget that it never used up."""
    dead(system)

    command.run(["jobs", "show", "job"])

    shown = capsys.readouterr().out
    assert "attempts 1; no further one without a retry" in shown
    assert "retry    won't help before the cause is gone; then: autocode-jobs jobs retry job" in shown
    assert ", the newest checkpoint" in shown


def test_jobs_are_listed_by_state_kind_and_session(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list takes the filters that the HTTP interface has, each history included in JSON."""
    dead(system)
    jobs.enqueue(system.db, new_job("waits", session_id="s-1"))
    look(system.db, "waits")

    found = []
    for chosen in (
        ["--status", "dead"],
        ["--status", "dead", "--status", "queued"],
        ["--kind", "other"],
        ["--session", "s-1"],
        ["--search", "wait"],
    ):
        command.run(["jobs", "list", "--json", *chosen])
        found.append({json.loads(line)["job_id"] for line in capsys.readouterr().out.splitlines()})
    command.run(["jobs", "list", "--kind", "other"])

    assert found == [{"job"}, {"job", "waits"}, set(), {"waits"}, {"waits"}]
    assert capsys.readouterr().out == "No job fits.\n"


@pytest.mark.parametrize("more", [["-o", "out"], ["--as", "html"], ["--zip"]])
def test_no_wait_writes_nothing_and_says_so(
    system: System, tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An output for a bundle that nobody would write is refused, with what writes it later."""
    (tmp_path / "session.jsonl").write_text("{}\n")

    status = command.run(["export", str(tmp_path / "session.jsonl"), "--no-wait", *more])

    told = capsys.readouterr().err
    assert status == command.USAGE
    assert more[0] in told
    assert "autocode-jobs artifacts get DIGEST -o FOLDER" in told
    assert queries.list_jobs(system.db) == []


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

    status = command.run(["export", str(tmp_path / "session.jsonl"), "--no-wait"])

    assert status == command.USAGE
    assert "autocode-jobs up" in capsys.readouterr().err
    assert queries.list_jobs(system.db) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [([], "--root"), ([".", "--as", "html"], "--zip"), ([".", "--no-wait", "-o", "x"], "-o")],
)
def test_what_a_service_elsewhere_doesnt_do(
    arguments: list[str],
    told: str,
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With AUTOCODE_URL an export names what to upload or a root there, and writes a zip file or nothing."""
    monkeypatch.setenv("AUTOCODE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AUTOCODE_TOKEN", "ajt_x_y")

    status = command.run(["export", *arguments])

    assert status == command.USAGE
    assert told in capsys.readouterr().err


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
