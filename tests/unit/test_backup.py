"""A backup tells what it lacks, is refused when it was damaged, and never leaves a half of anything."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.clock import SystemClock
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.errors import BackupDamaged, BackupIncomplete, HomeUnusable, JobsError, UsageError
from autocode.jobs.ledger import checkpoints, glances, queries, results
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.checkpoints import Produced
from autocode.jobs.operations.backup import BackedUp, back_up, check, restore
from autocode.jobs.settings import Home
from autocode.jobs.store import LocalStore
from autocode.jobs.store.verify import verify_store
from backup_world import Members, changed_json, make_step, members_of, pack, relisted
from ledger_world import look, started
from reconcile_world import opened, template

__all__ = ["template"]


@pytest.fixture
def system(tmp_path: Path, template: Path) -> Iterator[System]:
    """Give a home with a job that has its result, and one that runs and has announced an object."""
    with opened(tmp_path, template, SystemClock()) as system:
        complete = started(system.db, "complete")
        digest = step(system, complete, "whole")
        results.commit_result(system.db, complete, Produced(digest, 5, "text/plain", ()))
        results.mark_verified(system.db, "complete", digest)
        running = started(system.db, "running")
        step(system, running, "first", os.urandom(300_000))
        checkpoints.reserve(system.db, running, "sha256:" + "0" * 64, 10)
        for job_id in ("complete", "running"):
            look(system.db, job_id)
        yield system


def step(system: System, attempt: Attempt, label: str, data: bytes | None = None) -> str:
    """Commit a step; return its object's digest."""
    store = LocalStore(system.home.store)
    return make_step(system.db, store, attempt, data or label.encode(), label=label)


def backed_up(system: System, file: Path, **options: Any) -> BackedUp:
    """Back the system's home up."""
    return back_up(system.home, system.db, LocalStore(system.home.store), file, **options)


@pytest.fixture
def file(system: System, tmp_path: Path) -> Path:
    """Give a backup of the system, alone in its folder."""
    (tmp_path / "kept").mkdir()
    return backed_up(system, tmp_path / "kept" / "b.tar").file


def everything(folder: Path) -> dict[str, bytes]:
    """Return what lies in a folder, by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_restored_home_is_whole_private_and_another_ledger(
    system: System, file: Path, tmp_path: Path
) -> None:
    """Jobs and objects are there, nobody else may read them, and the ledger has an epoch of its own."""
    target = Home(tmp_path / "new" / "home")

    done = restore(file, target, actor="ann")
    with open_system(target) as other:
        epoch = glances.epoch(other.db)
        shown = [queries.get(other.db, job) for job in ("complete", "running")]

    assert shown == [queries.get(system.db, job) for job in ("complete", "running")]
    assert verify_store(LocalStore(target.store)).ok
    assert sorted(LocalStore(target.store).list()) == sorted(system.store.list())
    assert epoch == done.epoch != glances.epoch(system.db)
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (target.path, *target.path.rglob("*"))}
    assert modes == {0}
    assert [path.name for path in target.path.parent.iterdir()] == ["home"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_settings_come_along_without_their_secrets(system: System, tmp_path: Path) -> None:
    """Rules, roots and settings are in a backup; tokens, passwords, the database and comments aren't."""
    name = system.home.add_root(tmp_path / "sessions")
    system.home.redaction_rules.write_text("# rules\n")
    secrets = [
        'token = "s3cret"',
        'prefect_auth = "u:s3cret"',
        'database_url = "postgresql://h/d"',
        'prefect_api_url = "http://u:s3cret@h/api"',
    ]
    kept = [
        "workers = 4",
        "drain_seconds = 2.5",
        "request_burst = 100",
        'hosts = "a.b, c"',
        'url = "http://h"',
    ]
    (system.home.path / "config.toml").write_text("\n".join([*secrets, *kept, "# was s3cret"]) + "\n")
    target = Home(tmp_path / "new")

    restore(backed_up(system, tmp_path / "b.tar").file, target, actor="ann")

    assert (target.path / "config.toml").read_text().splitlines() == kept
    assert target.redaction_rules.read_text() == "# rules\n"
    assert target.root(name) == tmp_path / "sessions"
    assert b"s3cret" not in (tmp_path / "b.tar").read_bytes()


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_what_the_store_lacks_is_named_with_its_jobs(system: System, tmp_path: Path, how: str) -> None:
    """A backup without an object that the ledger needs isn't written, unless it was asked for."""
    digest = queries.get(system.db, "complete").history[0].digest
    path = LocalStore(system.home.store).path_of(digest)
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-30] + b"x" * 30)
    (tmp_path / "out").mkdir()

    with pytest.raises(BackupIncomplete) as caught:
        backed_up(system, tmp_path / "out" / "b.tar")
    left = list((tmp_path / "out").iterdir())
    made = backed_up(system, tmp_path / "out" / "b.tar", allow_missing=True)
    checked = check(made.file)

    [missing] = caught.value.data["missing"]
    assert (missing["digest"], missing["jobs"]) == (digest, ["complete"])
    assert digest in caught.value.detail
    assert "complete" in caught.value.detail
    assert left == []
    assert [each.digest for each in checked.manifest.store.missing] == [digest]
    assert checked.manifest.store.objects == 1


def test_a_file_that_is_there_is_kept_unless_forced(system: System, file: Path) -> None:
    """Another backup of the same name is refused, and with force it takes the place at once."""
    before = file.read_bytes()

    with pytest.raises(UsageError, match="is there already"):
        backed_up(system, file)
    kept = file.read_bytes()
    backed_up(system, file, force=True)

    assert kept == before
    assert file.read_bytes() != before
    assert check(file).manifest.rows["jobs"] == 2


def test_a_stop_at_any_moment_leaves_nothing(system: System, file: Path, tmp_path: Path) -> None:
    """Interrupted at each step of their progress, backup and restore leave no file and no folder."""
    target = tmp_path / "target" / "home"
    target.parent.mkdir()

    def stopped(run: Callable[[Callable[[int, int], None]], object], nth: int) -> bool:
        calls = 0

        def progress(_done: int, _total: int) -> None:
            nonlocal calls
            calls += 1
            if calls == nth:
                raise KeyboardInterrupt

        try:
            run(progress)
        except KeyboardInterrupt:
            return True
        return False

    counts = {}
    before = everything(file.parent)
    for name, run in {
        "backup": lambda progress: backed_up(system, file.parent / "c.tar", progress=progress),
        "restore": lambda progress: restore(file, Home(target), actor="ann", progress=progress),
        "check": lambda progress: check(file, progress=progress),
    }.items():
        nth = 1
        while stopped(run, nth):
            assert everything(file.parent) == before
            assert list(target.parent.iterdir()) == []
            nth += 1
        counts[name] = nth
        (file.parent / "c.tar").unlink(missing_ok=True)
        if target.exists():
            target.rename(tmp_path / "done")

    assert min(counts.values()) > 15, counts


def refused(file: Path, tmp_path: Path) -> JobsError:
    """Assert that neither check nor restore takes *file*, and that nothing comes of it; return the error."""
    parent = tmp_path / "refused"
    parent.mkdir(exist_ok=True)
    with pytest.raises(JobsError) as checked:
        check(file)
    with pytest.raises(type(checked.value)) as caught:
        restore(file, Home(parent / "home"), actor="ann")
    assert list(parent.iterdir()) == []
    return caught.value


def test_a_changed_byte_anywhere_is_found(file: Path, tmp_path: Path) -> None:
    """A flipped bit in the bytes or in the header of any member gets the backup refused."""
    whole = file.read_bytes()
    places, offset = [], 0
    for name, data in members_of(file).items():
        places += [(name, offset + 1), (name, offset + 130)]
        places += [(name, offset + 512 + at) for at in {0, len(data) // 2, len(data) - 1} if data]
        offset += 512 + len(data) + -len(data) % 512
    broken = tmp_path / "broken.tar"

    for name, place in places:
        broken.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(BackupDamaged):
            # told where it isn't raised
            print(name, place, check(broken))  # noqa: T201 - pytest shows it

    assert len(places) > 60
    assert isinstance(refused(broken, tmp_path), BackupDamaged)


def test_a_backup_that_was_cut_off_is_refused(file: Path, tmp_path: Path) -> None:
    """Wherever the file ends before its manifest does, it is refused."""
    whole = file.read_bytes()
    end = whole.rindex(b'{"format":1,"members"')
    cut = tmp_path / "cut.tar"

    for length in (0, 1, 512, 513, 1024, len(whole) // 2, end - 512, end, end + 1):
        cut.write_bytes(whole[:length])
        assert isinstance(refused(cut, tmp_path), BackupDamaged), length


def _without(name: str) -> Callable[[Members], Members]:
    return lambda members: {key: data for key, data in members.items() if key != name}


def _object(members: Members) -> str:
    return next(name for name in members if name.startswith("store/objects/"))


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (lambda m: {**m, "more": b""}, "goes on after its manifest"),
        (lambda m: {"backup.json": m["backup.json"], "../out": b"x", **m}, "'../out' where"),
        (lambda m: {**_without("manifest.json")(m)}, "ends before manifest.json"),
        (_without("settings/format"), "settings/roots.json|isn't what its manifest says"),
        (lambda m: relisted({**m, "ledger/meta.jsonl": b'{"key":"epoch"}\n'}), "other columns"),
        (lambda m: relisted({**m, "ledger/jobs.jsonl": b""}), "FOREIGN KEY|rows"),
        (lambda m: relisted({**m, "ledger/jobs.jsonl": b"["}), "middle of a line"),
        (lambda m: relisted(_without(_object(m))(m)), "aren't those that it lists"),
        (lambda m: {**m, "manifest.json": b"[]"}, "can't be understood"),
    ],
)
def test_what_somebody_made_of_a_backup_is_refused(
    file: Path, tmp_path: Path, change: Callable[[Members], Members], detail: str
) -> None:
    """Members that are missing, foreign, or not what the ledger takes, are found also where digests fit."""
    other = tmp_path / "other.tar"
    pack(change(members_of(file)), other)

    error = refused(other, tmp_path)

    assert isinstance(error, BackupDamaged)
    assert re.search(detail, error.detail), error.detail


def test_an_object_that_is_left_out_unsaid_is_missed(file: Path, tmp_path: Path) -> None:
    """A backup whose index and manifest were made to fit doesn't have all that its ledger needs."""
    members = members_of(file)
    gone = _object(members)
    rows = [json.loads(line) for line in members["store/objects.jsonl"].splitlines()]
    left = [row for row in rows if not gone.endswith(row["digest"].removeprefix("sha256:"))]
    members["store/objects.jsonl"] = b"".join(
        json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n" for row in left
    )

    def fewer(manifest: Any) -> None:
        manifest["store"].update(objects=len(left), bytes=sum(row["stored_size"] for row in left))

    members["manifest.json"] = changed_json(members["manifest.json"], fewer)
    pack(relisted(_without(gone)(members)), tmp_path / "other.tar")

    error = refused(tmp_path / "other.tar", tmp_path)

    assert "which its ledger needs" in error.detail


@pytest.mark.parametrize(
    "change",
    [
        lambda label: label.update(format=2, anything=True),
        lambda label: label["ledger"].update(revision="0999"),
        lambda label: label["parts"].append("index"),
    ],
    ids=["format", "schema", "parts"],
)
def test_a_backup_of_a_newer_version_is_refused(
    file: Path, tmp_path: Path, change: Callable[[Any], None]
) -> None:
    """It says that an upgrade helps, and makes no home."""
    members = members_of(file)
    members["backup.json"] = changed_json(members["backup.json"], change)
    pack(relisted(members), tmp_path / "newer.tar")

    error = refused(tmp_path / "newer.tar", tmp_path)

    assert isinstance(error, HomeUnusable)
    assert "Upgrade" in error.hint


def test_a_home_with_anything_in_it_is_not_replaced(system: System, file: Path, tmp_path: Path) -> None:
    """A home in use, a file in its place or one file in a folder: refused; an empty folder is taken."""
    (tmp_path / "a").write_text("file")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "note").write_text("mine")
    (tmp_path / "c").mkdir()
    ledger = system.home.ledger.read_bytes()

    for path in (system.home.path, tmp_path / "a", tmp_path / "b"):
        with pytest.raises(HomeUnusable, match="isn't empty"):
            restore(file, Home(path), actor="ann")
    restore(file, Home(tmp_path / "c"), actor="ann")

    assert system.home.ledger.read_bytes() == ledger
    assert everything(tmp_path / "b") == {"note": b"mine"}
    assert Home(tmp_path / "c").exists()


@pytest.mark.parametrize("name", ["nothing", "folder"])
def test_what_is_no_file_is_no_backup(tmp_path: Path, name: str) -> None:
    """A file that doesn't exist and a folder are refused as a mistake of the call."""
    (tmp_path / "folder").mkdir()

    with pytest.raises(UsageError, match="is no file"):
        check(tmp_path / name)
