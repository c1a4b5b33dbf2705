"""The database of a new home: made whole from the dump or not at all, whatever is in the way."""

from __future__ import annotations

import importlib.metadata
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from autocode.jobs.engine import prefect_schema
from autocode.jobs.engine.prefect_schema import DATABASE, dump, lay, text

VERSION = importlib.metadata.version("prefect")

KILLED = """
import os, signal, sys
from pathlib import Path
from autocode.jobs import settings
from autocode.jobs.engine import prefect_schema

CODES = {each.__code__ for each in (prefect_schema.lay, settings.rename_durably, settings._sync)}

def killed(line, folder):
    folder.mkdir()
    child = os.fork()
    if child == 0:
        seen = 0
        def trace(frame, event, _):
            nonlocal seen
            if frame.f_code not in CODES:
                return None
            seen += event == "line"
            if seen == line:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace
        sys.settrace(trace)
        os._exit(not prefect_schema.lay(folder))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

# imported before the forks, not in each
prefect_schema.lay(Path(sys.argv[2]))
line = 1
while (status := killed(line, Path(sys.argv[1], str(line)))) == -signal.SIGKILL:
    line += 1
sys.exit(status)
"""


def made(folder: Path) -> str:
    """Say what the database in the folder holds, as a dump."""
    return dump(folder / DATABASE, VERSION)


def test_the_database_holds_what_the_dump_says(tmp_path: Path) -> None:
    """A dump of the new database is the dump that it was made from, and only its owner may read it."""
    laid = lay(tmp_path)

    assert laid, "run make prefect-schema"
    assert made(tmp_path) == text()
    assert [path.name for path in tmp_path.iterdir()] == [DATABASE]
    assert (tmp_path / DATABASE).stat().st_mode & 0o077 == 0


def test_a_database_that_is_there_stays(tmp_path: Path) -> None:
    """Not a byte of an existing database changes, even of an empty one."""
    (tmp_path / DATABASE).touch()

    laid = lay(tmp_path)

    assert not laid
    assert (tmp_path / DATABASE).read_bytes() == b""


def test_another_prefect_makes_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another version of Prefect than the dump's, nothing is made."""
    monkeypatch.setattr(importlib.metadata, "version", lambda _: f"{VERSION}.1")

    laid = lay(tmp_path)

    assert not laid
    assert list(tmp_path.iterdir()) == []


def test_a_dump_that_sqlite_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where SQLite can't read the dump, the folder is as it was."""
    broken = text().replace("COMMIT;", "CREATE NONSENSE; COMMIT;")
    monkeypatch.setattr(prefect_schema, "text", lambda: broken)

    laid = lay(tmp_path)

    assert not laid
    assert list(tmp_path.iterdir()) == []


def test_the_log_of_a_removed_database_is_not_played(tmp_path: Path) -> None:
    """Somebody removed prefect.db and left its write-ahead log: the new database knows nothing of it."""
    with closing(sqlite3.connect(tmp_path / DATABASE)) as old:
        old.executescript("PRAGMA journal_mode=WAL; CREATE TABLE old (x); INSERT INTO old VALUES (1)")
        shutil.copy(tmp_path / f"{DATABASE}-wal", tmp_path / "kept")
    (tmp_path / DATABASE).unlink()
    (tmp_path / "kept").rename(tmp_path / f"{DATABASE}-wal")

    laid = lay(tmp_path)

    assert laid
    assert made(tmp_path) == text()


def test_a_start_killed_at_any_line_leaves_the_whole_database_or_none(tmp_path: Path) -> None:
    """Killed at each line in turn, the name is either free or of the whole; the next start makes it whole."""
    arena, first = tmp_path / "arena", tmp_path / "first"
    arena.mkdir()
    first.mkdir()
    command = [sys.executable, "-c", KILLED, str(arena), str(first)]

    done = subprocess.run(command, check=False, capture_output=True)

    assert (done.returncode, done.stderr) == (0, b"")
    folders = list(arena.iterdir())
    there = [folder for folder in folders if (folder / DATABASE).exists()]
    assert 2 <= len(there) < len(folders) - 5
    for folder in folders:
        assert lay(folder) is (folder not in there)
        assert made(folder) == text()
        assert [path.name for path in folder.iterdir()] == [DATABASE]
