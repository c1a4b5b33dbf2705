"""The SQLite view: sound, whole or absent, searchable, and as its description says."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.errors import DiskFull, JobsError, ObjectCorrupt, ObjectMissing, UsageError
from autocode.jobs.operations.export.views import load_manifest
from autocode.jobs.operations.views import sqlite
from autocode.jobs.operations.views.bundles import StoredBundle
from autocode.jobs.operations.views.datasette import QUERIES
from autocode.jobs.operations.views.rows import rows_of
from autocode.jobs.operations.views.sqlite import DATABASE, METADATA, write_sqlite
from autocode.jobs.operations.views.sqlite_schema import APPLICATION_ID, SQL_VIEWS
from autocode.jobs.operations.views.tables import SCHEMA_VERSION, TABLES, Kind
from autocode.jobs.store import LocalStore
from export_context import export
from made_bundle import bundle_of, example_export, record, session


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[LocalStore, str]:
    """A finished export."""
    folder = tmp_path_factory.mktemp("exported")
    return example_export(folder / "in", folder)


@pytest.fixture(scope="module")
def written(exported: tuple[LocalStore, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its SQLite view."""
    return write_sqlite(*exported, tmp_path_factory.mktemp("out"))


@contextmanager
def opened(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the file of a view read-only, as anybody who only looks would."""
    with closing(sqlite3.connect(f"{(folder / DATABASE).as_uri()}?mode=ro", uri=True)) as db:
        yield db


def answer(folder: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with opened(folder) as db:
        return db.execute(query, values).fetchall()


def test_the_file_is_sound_and_says_what_it_is(written: Path) -> None:
    """Integrity, references, application and schema version; the file has no journal beside it."""
    with opened(written) as db:
        said = {
            name: db.execute(f"PRAGMA {name}").fetchall()
            for name in ("integrity_check", "foreign_key_check", "application_id", "user_version")
        }

    assert said == {
        "integrity_check": [("ok",)],
        "foreign_key_check": [],
        "application_id": [(APPLICATION_ID,)],
        "user_version": [(SCHEMA_VERSION,)],
    }
    assert sorted(path.name for path in written.iterdir()) == [DATABASE, METADATA]


def test_the_index_matches_its_content(written: Path, tmp_path: Path) -> None:
    """FTS5 compares every word of the index with the texts, and finds no difference."""
    (tmp_path / DATABASE).write_bytes((written / DATABASE).read_bytes())

    with closing(sqlite3.connect(tmp_path / DATABASE)) as db:
        db.execute("INSERT INTO search(search, rank) VALUES ('integrity-check', 1)")
        count = db.execute("SELECT count(*) FROM search").fetchone()

    assert count == answer(written, "SELECT count(*) FROM texts")[0]


def test_the_rows_are_those_of_the_bundle(exported: tuple[LocalStore, str], written: Path) -> None:
    """Nothing is lost or doubled between the bundle and the file, in any table."""
    expected: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
    for table, row in rows_of(StoredBundle(*exported)):
        expected[table].append(tuple(row[name] for name in TABLES[table].names))

    found = {name: answer(written, f"SELECT * FROM {name}") for name in TABLES}  # noqa: S608 - our own names

    assert {name: sorted(rows, key=str) for name, rows in found.items()} == {
        name: sorted(rows, key=str) for name, rows in expected.items()
    }


def test_values_have_the_types_of_their_columns(written: Path) -> None:
    """SQLite would take anything anywhere."""
    types = {Kind.INTEGER: "integer", Kind.FLAG: "integer", Kind.REAL: "real"}

    wrong = [
        (table.name, column.name, found)
        for table in TABLES.values()
        for column in table.columns
        for (found,) in answer(written, f"SELECT DISTINCT typeof({column.name}) FROM {table.name}")  # noqa: S608 - our own names
        if found not in {"null", types.get(column.kind, "text")}
    ]

    assert wrong == []


def test_references_name_their_column(written: Path) -> None:
    """Datasette can't follow a reference that leaves the column out."""
    keys = [
        (table, key[3], key[2], key[4])
        for table in TABLES
        for key in answer(written, f"PRAGMA foreign_key_list({table})")
    ]

    assert ("tool_calls", "result_record", "records", "record") in keys
    assert ("sessions", "source", "sources", "source") in keys
    assert [key for key in keys if key[3] is None] == []


@pytest.mark.parametrize(
    ("words", "records"),
    [
        ("lint", [7]),  # behind an escaped newline in the JSON of an input
        ("split", [5, 9]),
        ("WebFetch", [21]),
        ("publish*", [16, 17, 18, 19]),
        ('"it works"', [13, 14]),
        ("old_string", [9]),
        ("nlint", []),
    ],
)
def test_everything_said_called_and_answered_is_found(written: Path, words: str, records: list[int]) -> None:
    """One index over messages, tool inputs and results; its rowid is the record."""
    found = answer(written, "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid", words)

    assert [record for (record,) in found] == records


def test_the_views_answer_the_common_questions(written: Path) -> None:
    """Tokens by day and model, errors and times by tool, the slowest calls, the projects."""
    days = answer(written, "SELECT day, model, input_tokens, output_tokens FROM tokens_by_day")
    tools = answer(
        written, "SELECT name, calls, errors, error_rate, unanswered, median_ms, max_ms FROM tools"
    )
    slowest = answer(written, "SELECT name, duration_ms, project FROM slowest_calls LIMIT 2")
    errors = answer(written, "SELECT name, project, output FROM tool_errors")
    projects = answer(written, "SELECT project, sessions, tool_calls FROM projects ORDER BY project")

    assert days == [
        ("2026-02-07", "opus", 64, 94),
        ("2026-02-08", "haiku", 15, 25),
        ("2026-02-08", "opus", 2, 2),
    ]
    assert {row[0]: row[1:] for row in tools} == {
        "Bash": (3, 1, 0.3333, 0, 12500, 30000),
        "Edit": (1, 0, 0.0, 0, 1000, 1000),
        "Read": (1, 0, 0.0, 0, 1250, 1250),
        "WebFetch": (1, 0, None, 1, None, None),
    }
    assert slowest == [("Bash", 30000, "/home/ada/site"), ("Bash", 12500, "/home/ada/parser")]
    assert errors == [("Bash", "/home/ada/parser", "1 failed")]
    assert projects == [("/home/ada/parser", 1, 4), ("/home/ada/site", 1, 2)]


def test_percentiles_are_by_nearest_rank(tmp_path: Path) -> None:
    """Of the durations 1 … 20 ms the median is the tenth, and 95 % took no longer than the nineteenth."""
    records: list[dict[str, Any]] = [session(0)]
    for number in range(1, 21):
        about = {"call_id": f"c{number}", "at": f"2026-02-07T10:00:00.{number % 7:03d}Z"}
        later = f"2026-02-07T10:00:00.{number % 7 + number:03d}Z"
        records.append(record(2 * number - 1, "tool_call", name="T", input={}, **about))
        said: dict[str, Any] = {"call": f"r{2 * number - 1}", "is_error": None, "content": []}
        records.append(record(2 * number, "tool_result", **{**about, **said, "at": later}))

    folder = write_sqlite(*bundle_of(tmp_path, records), tmp_path)

    assert answer(folder, "SELECT median_ms, p95_ms, max_ms, total_ms, error_rate FROM tools") == [
        (10, 19, 20, 210, None)
    ]


def test_the_description_is_of_this_file(exported: tuple[LocalStore, str], written: Path) -> None:
    """Every table, view, column and query that Datasette is told of is there and can be asked."""
    described = json.loads((written / METADATA).read_text("utf-8"))["databases"][DATABASE.removesuffix(".db")]
    with opened(written) as db:
        columns = {
            name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")}
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        }
        for query in QUERIES.values():
            db.execute(f"EXPLAIN {query['sql']}", {"words": "a", "session": 1, "tool": "Bash"})
    named: dict[str, set[str]] = {}
    for name, about in described["tables"].items():
        named[name] = {*about.get("columns", {}), *about.get("facets", [])}
        named[name] |= {about[key] for key in ("label_column", "sort_desc", "fts_pk") if key in about}

    assert {name: told - columns[name] for name, told in named.items() if told - columns[name]} == {}
    assert set(described["tables"]) == {*TABLES, *(view.name for view in SQL_VIEWS), "texts"}
    assert exported[1] in described["description"]


def test_meanings_are_comments_of_the_schema(written: Path) -> None:
    """Who opens the file without any description finds it in the statements."""
    ((schema,),) = answer(written, "SELECT sql FROM sqlite_master WHERE name = 'tool_calls'")

    assert "-- milliseconds from the call to its result" in schema


def test_two_files_of_one_export_hold_the_same(
    exported: tuple[LocalStore, str], written: Path, tmp_path: Path
) -> None:
    """Rows, schema and description are a function of the export."""
    again = write_sqlite(*exported, tmp_path)

    with opened(written) as one, opened(again) as two:
        assert list(one.iterdump()) == list(two.iterdump())
    assert (written / METADATA).read_bytes() == (again / METADATA).read_bytes()


def test_only_its_owner_may_read_it(written: Path) -> None:
    """These are private conversations."""
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (written, *written.iterdir())} == {0}


def test_progress_grows_to_its_total(exported: tuple[LocalStore, str], tmp_path: Path) -> None:
    """What is told never shrinks, and ends at the total."""
    told: list[tuple[int, int]] = []

    write_sqlite(*exported, tmp_path, progress=lambda done, total: told.append((done, total)))

    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 0


@pytest.mark.parametrize("after", [1, 2, 5, 12])
def test_who_is_told_can_stop_it(exported: tuple[LocalStore, str], tmp_path: Path, after: int) -> None:
    """An exception from the progress callback ends it with nothing left behind, also within a statement."""
    told = []

    def progress(done: int, total: int) -> None:
        told.append(done)
        if len(told) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_sqlite(*exported, tmp_path, progress=progress)

    assert list(tmp_path.iterdir()) == []


def test_a_long_statement_can_be_stopped(
    exported: tuple[LocalStore, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While SQLite works the callback is asked too, and its own exception comes out."""
    monkeypatch.setattr(sqlite, "_INSTRUCTIONS", 1)

    def progress(done: int, total: int) -> None:
        # nothing was read yet, so it is SQLite that asks
        if done == 0:
            raise TimeoutError("enough")

    with pytest.raises(TimeoutError, match="enough"):
        write_sqlite(*exported, tmp_path, progress=progress)

    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(
    exported: tuple[LocalStore, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own word for it becomes ours."""
    monkeypatch.setattr(sqlite, "_SETTINGS", (*sqlite._SETTINGS, "PRAGMA max_page_count = 40"))

    with pytest.raises(DiskFull):
        write_sqlite(*exported, tmp_path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("harm", "expected"), [("damage", ObjectCorrupt), ("remove", ObjectMissing)])
def test_a_broken_object_leaves_nothing(tmp_path: Path, harm: str, expected: type[JobsError]) -> None:
    """An export whose bytes can't be verified gives no file."""
    store, digest = example_export(tmp_path / "in", tmp_path)
    victim = next(m for m in load_manifest(store, digest).members if m.path.endswith(".jsonl"))
    path = store.path_of(victim.sha256)
    path.chmod(0o600)
    if harm == "damage":
        path.write_bytes(path.read_bytes()[:-60] + bytes(60))
    else:
        path.unlink()
    (tmp_path / "out").mkdir()

    with pytest.raises(expected):
        write_sqlite(store, digest, tmp_path / "out")

    assert list((tmp_path / "out").iterdir()) == []


def test_one_that_is_there_is_left_alone(exported: tuple[LocalStore, str], tmp_path: Path) -> None:
    """A second time returns the same folder, untouched."""
    first = write_sqlite(*exported, tmp_path)
    before = (first / DATABASE).stat().st_mtime_ns

    assert write_sqlite(*exported, tmp_path) == first
    assert (first / DATABASE).stat().st_mtime_ns == before


@pytest.mark.parametrize("other", ["file", "empty", "garbage", "version", "export"])
def test_something_else_is_never_replaced(
    exported: tuple[LocalStore, str], tmp_path: Path, other: str
) -> None:
    """What has the name and isn't this export in this schema stays, and is said to be in the way."""
    target = write_sqlite(*exported, tmp_path)
    file = target / DATABASE
    if other in {"file", "empty"}:
        for path in target.iterdir():
            path.unlink()
        if other == "file":
            target.rmdir()
            target.write_text("mine")
    elif other == "garbage":
        file.write_text("mine")
    else:
        with closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA user_version = 99" if other == "version" else "UPDATE bundle SET digest = 'x'")
            db.commit()
    before = file.read_bytes() if file.exists() else None

    with pytest.raises(UsageError, match="is there already and isn't this export"):
        write_sqlite(*exported, tmp_path)

    assert (file.read_bytes() if file.exists() else None) == before


def test_an_export_without_redaction_is_taken_too(tmp_path: Path) -> None:
    """Raw files that no reader takes are sources without sessions."""
    folder = tmp_path / "in"
    example_export(folder, tmp_path)
    (folder / "notes.jsonl").write_text("hello\n")

    written = write_sqlite(*export(folder, tmp_path, redact=False), tmp_path)

    assert answer(written, "SELECT reader, count(*) FROM sources GROUP BY 1") == [
        (None, 1),
        ("claude-code", 2),
    ]
    assert answer(written, "SELECT policy FROM bundle") == [(None,)]
    assert answer(written, "SELECT count(*) FROM sessions") == [(2,)]
