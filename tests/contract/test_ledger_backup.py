"""Backup and restore of a ledger on either database: one moment, every row, older schemas too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from autocode.jobs.ledger import attempts, audit, jobs, queries, retries, schema
from autocode.jobs.ledger.database import SCHEMA_REVISION, Database, sqlite_url
from autocode.jobs.operations.backup import back_up, check, restore
from autocode.jobs.projection import Outcome
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from backup_world import Members, changed_json, make_step, members_of, pack, relisted
from ledger_world import begin, contents, look, new_job, problem, started


@pytest.fixture
def home(tmp_path: Path, database: Database) -> Home:
    """Give a home whose ledger is *database*, with jobs that are over, run and wait."""
    home = Home(tmp_path / "home")
    home.prepare()
    store = LocalStore(home.store)
    for text in ("running", "dead"):
        attempt = started(database, text, max_attempts=1, payload={"text": "\udcff\0é", "size": 1.5})
        make_step(database, store, attempt, text.encode() * 100, label=text)
    attempts.end(database, "dead", 1, Outcome.FAILED, error=problem())
    jobs.enqueue(database, new_job("waiting", session_id="s", idempotency_key="k"))
    audit.append(database, actor="ann", action="verify", target="dead", reason="", outcome="done")
    for job_id in ("running", "dead", "waiting"):
        look(database, job_id)
    return home


def restored(tmp_path: Path, file: Path) -> Database:
    """Restore *file* into a new home, and open its ledger."""
    target = Home(tmp_path / "restored")
    restore(file, target, actor="ann")
    return Database(sqlite_url(target.ledger))


def test_a_backup_is_of_one_moment_and_keeps_every_row(
    tmp_path: Path, home: Home, database: Database
) -> None:
    """Rows that are written while it is made are not in it, and all others come back as they were."""
    before = contents(database)
    written: list[str] = []

    def meanwhile(_done: int, _total: int) -> None:
        # the first bytes are copied after the ledger was first looked at
        job_id = f"later-{len(written)}"
        written.append(job_id)
        jobs.enqueue(database, new_job(job_id))

    back_up(home, database, LocalStore(home.store), tmp_path / "b.tar", progress=meanwhile)
    db = restored(tmp_path, tmp_path / "b.tar")

    after = contents(db)
    entry = after["audit"].pop()
    assert len(written) > 10
    assert after["meta"] != before["meta"]
    told = {name: rows for name, rows in before.items() if name not in {"meta", "counters"}}
    ran = {"attempts", "events", "object_references"}
    assert [name for name in told if name not in ran and after[name] != before[name]] == []
    others = {name: [row for row in rows if "running" not in str(row)] for name, rows in before.items()}
    kept = {name: [row[:3] for row in rows] for name, rows in after.items() if name in ran}
    assert [row for name in ran for row in others[name] if row[:3] not in kept[name]] == []
    assert dict(after["counters"]) == {**dict(before["counters"]), "audit": 2}
    assert (entry[2], entry[3], entry[6]) == ("ann", "restore", "restored")
    assert audit.broken_link(db) is None
    db.close()


def _as_of_the_first_schema(members: Members, columns: dict[str, set[str]]) -> Members:
    """Return a backup as a program of the first schema would have written it."""
    old: Members = {}
    for name, data in members.items():
        table = name.removeprefix("ledger/").removesuffix(".jsonl")
        if not name.startswith("ledger/"):
            old[name] = data
        elif table in columns:
            rows = [json.loads(line) for line in data.splitlines()]
            kept = [{key: row[key] for key in row if key in columns[table]} for row in rows]
            old[name] = b"".join(json.dumps(row).encode() + b"\n" for row in kept)

    def relabel(label: Any) -> None:
        tables = [table for table in label["ledger"]["tables"] if table["name"] in columns]
        for table in tables:
            table["columns"] = {
                name: form for name, form in table["columns"].items() if name in columns[table["name"]]
            }
        label["ledger"].update(revision="0001", tables=tables)

    def drop(manifest: Any) -> None:
        manifest["members"] = [each for each in manifest["members"] if each["name"] in old]
        manifest["rows"] = {name: rows for name, rows in manifest["rows"].items() if name in columns}

    old["backup.json"] = changed_json(old["backup.json"], relabel)
    old["manifest.json"] = changed_json(old["manifest.json"], drop)
    return relisted(old)


def test_a_backup_of_an_older_schema_is_brought_up_to_date(
    tmp_path: Path, home: Home, database: Database
) -> None:
    """What a program of the first schema backed up becomes a ledger of today's, and goes on."""
    first = Database(sqlite_url(tmp_path / "first.db"))
    first.migrate("0001")
    with first.read() as tx:
        inspector = sa.inspect(tx)
        columns = {
            table: {column["name"] for column in inspector.get_columns(table)}
            for table in inspector.get_table_names()
            if table != "schema_version"
        }
    first.close()
    back_up(home, database, LocalStore(home.store), tmp_path / "b.tar")
    assert "tokens" not in columns
    pack(_as_of_the_first_schema(members_of(tmp_path / "b.tar"), columns), tmp_path / "old.tar")

    checked = check(tmp_path / "old.tar")
    db = restored(tmp_path, tmp_path / "old.tar")

    with db.read() as tx:
        revision = tx.execute(sa.text("SELECT version_num FROM schema_version")).scalar_one()
    assert (checked.label.ledger.revision, revision) == ("0001", SCHEMA_REVISION)
    assert [queries.get(db, job) for job in ("running", "dead")] == [
        queries.get(database, job) for job in ("running", "dead")
    ]
    assert contents(db)["jobs"][0][0:2] == contents(database)["jobs"][0][0:2]
    retries.request_retry(db, "dead", actor="ann", reason="again")
    assert begin(db, "dead", 2).n == 2
    assert schema.metadata.tables.keys() == contents(db).keys()
    db.close()
