"""What the witnesses of a lesson see in files that nobody else explains to them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.errors import UsageError
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from autocode.jobs.testing.lessons import witness_ledger, witness_store
from autocode.jobs.testing.lessons.evidence import Evidence
from autocode.jobs.testing.lessons.folders import Folders
from autocode.jobs.testing.lessons.witness_ledger import Told

DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, str]:
    """Give a store with one object, and the object's name."""
    with LocalStore(tmp_path / "store").stage() as staging:
        staging.write(b"seven letters and more " * 50)
        digest = staging.finish().digest
        staging.publish()
    return tmp_path / "store", digest.removeprefix("sha256:")


def test_an_object_is_unpacked_and_hashed(stored: tuple[Path, str]) -> None:
    """A sound file holds what its name promises."""
    store, name = stored

    (found,) = witness_store.listing(store).values()

    assert (found.name, found.whole, found.content) == (name, True, b"seven letters and more " * 50)


def test_one_changed_byte_is_noticed(stored: tuple[Path, str]) -> None:
    """After damage the object isn't whole, and its file is another one than before."""
    store, name = stored
    before = witness_store.listing(store)

    witness_store.damage(store, name)

    after = witness_store.listing(store)
    assert list(after) == list(before)
    assert after[name].whole is False
    assert after[name].identity != before[name].identity


def test_an_object_that_isn_t_there_can_t_be_damaged(stored: tuple[Path, str]) -> None:
    """The name has to be one of the store's."""
    with pytest.raises(FileNotFoundError):
        witness_store.damage(stored[0], "00" * 32)


def test_a_store_that_isn_t_there_is_empty(tmp_path: Path) -> None:
    """Before the first object there is no folder."""
    assert witness_store.listing(tmp_path / "nowhere") == {}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Give a ledger's file with the columns that the witness reads, and two jobs in it."""
    path = tmp_path / "ledger.db"
    events = [
        ("job.queued", 0, None),
        ("job.running", 1, None),
        ("job.progress", 1, None),
        ("job.checkpoint", 1, 1),
        ("job.checkpoint", 1, 2),
        ("job.retrying", 1, 2),
        ("job.running", 2, 2),
        ("job.running", 2, 2),
        ("job.checkpoint", 2, 3),
        ("job.running", 2, 3),
        ("job.complete", 2, 3),
    ]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            "CREATE TABLE jobs (job_id, enqueued_at);"
            "CREATE TABLE attempts (job_id, n, begun_at, outcome, flow_run_id);"
            "CREATE TABLE checkpoints (job_id, seq, step, attempt, digest);"
            "CREATE TABLE events (job_id, type, data, cursor);"
        )
        connection.execute("INSERT INTO jobs VALUES ('later', 2), ('sooner', 1)")
        connection.execute("INSERT INTO attempts VALUES ('sooner', 2, NULL, NULL, NULL)")
        connection.execute("INSERT INTO attempts VALUES ('sooner', 1, 'x', 'crashed', 'run')")
        connection.executemany(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)",
            [("sooner", 1, "scan", 1, DIGEST), ("later", 1, "scan", 1, DIGEST)],
        )
        for cursor, (kind, attempt, checkpoint) in enumerate(events, 1):
            seq = "null" if checkpoint is None else f'{{"seq": {checkpoint}}}'
            data = f'{{"attempts": {attempt}, "checkpoint": {seq}}}'
            connection.execute("INSERT INTO events VALUES ('sooner', ?, ?, ?)", (kind, data, cursor))
        connection.execute("INSERT INTO events VALUES ('sooner', 'job.dead', '{}', NULL)")
    return path


def test_jobs_come_in_the_order_of_their_acceptance(ledger: Path, tmp_path: Path) -> None:
    """By time, not by name; without a ledger there is none."""
    assert witness_ledger.jobs(ledger) == ["sooner", "later"]
    assert witness_ledger.jobs(tmp_path / "nowhere.db") == []


def test_attempts_say_whether_they_began(ledger: Path) -> None:
    """A planned attempt has neither begun nor ended."""
    found = witness_ledger.attempts(ledger, "sooner")

    assert [(row.n, row.begun, row.outcome) for row in found] == [(1, True, "crashed"), (2, False, None)]


def test_what_was_told_leaves_out_what_is_chance(ledger: Path) -> None:
    """Progress, repeated looks, and what was never told."""
    found = witness_ledger.told(ledger, "sooner")

    assert found == [
        Told("sooner", "job.queued", 0, 0),
        Told("sooner", "job.running", 1, 0),
        Told("sooner", "job.checkpoint", 1, 1),
        Told("sooner", "job.checkpoint", 1, 2),
        Told("sooner", "job.retrying", 1, 2),
        Told("sooner", "job.running", 2, 2),
        Told("sooner", "job.checkpoint", 2, 3),
        Told("sooner", "job.complete", 2, 3),
    ]


def test_the_ledger_is_opened_for_reading_only(ledger: Path, tmp_path: Path) -> None:
    """A witness changes nothing, and makes no file."""
    with pytest.raises(witness_ledger.Error, match="readonly"):
        witness_ledger.query(ledger, "DELETE FROM jobs")
    with pytest.raises(witness_ledger.Error, match="unable to open"):
        witness_ledger.query(tmp_path / "nowhere.db", "SELECT 1")
    assert not (tmp_path / "nowhere.db").exists()


def _no_prefect() -> Any:
    raise AssertionError("nobody should ask Prefect")


def test_several_jobs_get_letters(ledger: Path, tmp_path: Path) -> None:
    """Ids of jobs differ from run to run, letters don't."""
    evidence = Evidence(Home(ledger.parent), tmp_path / "bundles", tmp_path, _no_prefect)

    table = evidence.ledger_table()

    assert table.columns[0] == "job"
    assert table.rows == (
        ("job-A", 1, "scan", 1, "abababababab"),
        ("job-B", 1, "scan", 1, "abababababab"),
    )


def test_an_object_that_names_the_lesson_s_folder_varies(tmp_path: Path) -> None:
    """Neither its digest nor its size is shown, since both depend on the folder's name."""
    with LocalStore(tmp_path / "home" / "store").stage() as staging:
        staging.write(f'{{"path": "{tmp_path}/sessions"}}'.encode())
        staging.finish()
        staging.publish()
    evidence = Evidence(Home(tmp_path / "home"), tmp_path / "bundles", tmp_path, _no_prefect)

    table = evidence.store_table()

    assert table.rows == (("varies", "varies", "yes", "-"),)


def test_the_files_of_a_later_look_are_compared(stored: tuple[Path, str], tmp_path: Path) -> None:
    """A file is kept, new, or rewritten."""
    store, name = stored
    evidence = Evidence(Home(tmp_path), tmp_path / "bundles", tmp_path / "elsewhere", _no_prefect)
    before = evidence.objects()

    kept = evidence.store_table(before).column("file")
    witness_store.damage(store, name)
    rewritten = evidence.store_table(before).column("file")

    assert (kept, rewritten, evidence.store_table({}).column("file")) == (["kept"], ["rewritten"], ["new"])


def test_the_sessions_of_a_lesson_are_always_the_same(tmp_path: Path) -> None:
    """Two lessons have the same sessions, under names of days."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()

    one, two = Folders(tmp_path / "one"), Folders(tmp_path / "two")

    assert repr(one.table()) == repr(two.table())
    assert one.table().column("session") == ["monday", "tuesday", "wednesday"]
    assert sorted(path.name for path in one.sessions.iterdir()) == [
        "monday.jsonl",
        "tuesday.jsonl",
        "wednesday.jsonl",
    ]


def test_homes_share_the_files_of_one_server_and_nothing_else(tmp_path: Path) -> None:
    """What one home writes for its server, another sees; their ledgers are two files."""
    folders = Folders(tmp_path)
    one, two = folders.home("one"), folders.home("two")

    (one.run / "server.lock").write_text("held")

    assert (two.run / "server.lock").read_text() == "held"
    assert one.prefect.resolve() == two.prefect.resolve() == folders.server.prefect.resolve()
    assert one.ledger != two.ledger
    assert one.run.resolve() != two.run.resolve()


def test_removing_a_home_leaves_the_server_alone(tmp_path: Path) -> None:
    """The links go, and not what they lead to; a second removal does nothing."""
    folders = Folders(tmp_path)
    home = folders.home("one")
    (folders.server.prefect / "prefect.db").touch()

    folders.remove("one")
    folders.remove("one")

    assert not home.path.exists()
    assert (folders.server.prefect / "prefect.db").exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "a b"])
def test_a_home_needs_a_name_that_a_folder_can_have(tmp_path: Path, name: str) -> None:
    """Nothing outside of the lesson's folder can be named."""
    folders = Folders(tmp_path)

    with pytest.raises(UsageError, match="can't name a home"):
        folders.home(name)


@pytest.mark.parametrize("sessions", [1, 6])
def test_a_lesson_has_two_to_five_sessions(tmp_path: Path, sessions: int) -> None:
    """There are as many as working days."""
    with pytest.raises(UsageError, match="2 to 5 sessions"):
        Folders(tmp_path, sessions=sessions)
