"""What a second scan reads: what was touched, and whatever isn't certain to be untouched."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from api_served import until
from autocode.jobs.errors import SourceChanged
from autocode.jobs.operations.export import EXPORT, seen
from autocode.jobs.operations.export import seen as module
from autocode.jobs.operations.export.payload import FoundFile, ScanResult, Source
from autocode.jobs.operations.export.scan import scan_files
from autocode.jobs.operations.export.seen import Moment, Seen, Stamp, clock_of
from autocode.jobs.operations.export.seen_file import SeenFile
from autocode.jobs.sessions import READERS, Cutter
from export_context import Job, export, job_over, line, run
from opened_files import opened_in

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def later(seconds: float, device: int | None = None) -> Callable[[Path], Moment]:
    """Return a clock that is ahead of the file system's, and may be that of another device."""

    def clock(folder: Path) -> Moment:
        now = clock_of(folder)
        return Moment(now.device if device is None else device, now.ns + int(seconds * SECOND))

    return clock


LATER = later(200)
"""The clock of a scan that begins when all that a test wrote has settled."""


class World:
    """Three sessions in a folder, and the cache of a home."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "root"
        self.cache = tmp_path / "cache"
        self.file = self.cache / "scan.db"
        self.root.mkdir()
        for name in ("a", "b", "c"):
            (self.root / name).write_bytes(line(name, sessionId=name) * 20)

    def scan(
        self, *, rehash: bool = False, clock: Callable[[Path], Moment] = LATER
    ) -> tuple[ScanResult, set[str]]:
        """Scan with the cache, a while after everything was written; return what was found and opened."""
        with opened_in(self.root) as names, Seen(self.cache, rehash=rehash, clock=clock) as seen:
            found = scan_files(lambda _: self.root, (Source(root="x"),), lambda _: None, seen)
        assert found == self.truth()
        return found, names

    def truth(self) -> ScanResult:
        """Return what a scan finds that reads everything."""
        return scan_files(lambda _: self.root, (Source(root="x"),), lambda _: None)

    def opened(self, *, clock: Callable[[Path], Moment] = LATER) -> set[str]:
        """Scan; return what was opened."""
        return self.scan(clock=clock)[1]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Give a world in which everything was scanned once."""
    world = World(tmp_path)
    assert world.opened() == {"a", "b", "c"}
    return world


def test_what_nobody_touched_is_not_opened(world: World) -> None:
    """The second scan opens no file and finds the same."""
    assert world.opened() == set()


def test_by_the_real_clock_a_file_settles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files written a moment ago are read each time; once they are old enough, once more and never again."""
    monkeypatch.setattr(seen, "_SETTLED", 3 * SECOND)
    world = World(tmp_path)
    began = time.monotonic()
    assert world.opened(clock=clock_of) == {"a", "b", "c"}
    assert world.opened(clock=clock_of) == {"a", "b", "c"}
    until(lambda: not world.opened(clock=clock_of))
    assert time.monotonic() - began > 2.5


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(line("more"))


def _swap(path: Path) -> None:
    facts = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"b"', b'"B"'))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert path.stat().st_mtime_ns == facts.st_mtime_ns


def _replace(path: Path) -> None:
    facts = path.stat()
    new = path.with_name("new")
    new.write_bytes(path.read_bytes().replace(b'"b"', b'"B"'))
    os.utime(new, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    new.rename(path)


@pytest.mark.parametrize(
    ("change", "opened"),
    [
        (_append, {"b"}),
        (_swap, {"b"}),
        (_replace, {"b"}),
        (lambda path: path.rename(path.with_name("d")), {"d"}),
        (lambda path: path.with_name("d").hardlink_to(path), {"b", "d"}),
        (lambda path: path.chmod(0o600), {"b"}),
        (lambda path: os.truncate(path, 100), {"b"}),
        (Path.unlink, set()),
        (lambda path: path.with_name("d").symlink_to("b"), set()),
    ],
    ids=["append", "swap", "replace", "rename", "hard-link", "chmod", "truncate", "unlink", "link"],
)
def test_what_was_touched_is_read_alone(
    change: Callable[[Path], object], opened: set[str], world: World
) -> None:
    """Whatever gives a file another stamp or path has it read, also where size and mtime are as before."""
    change(world.root / "b")

    assert world.opened() - {"new"} == opened
    assert world.opened() == set()


def test_a_file_that_changed_within_the_tick_of_a_clock_is_read(tmp_path: Path) -> None:
    """What had just been written when it was scanned is read again, for another write may bear its stamp."""
    world = World(tmp_path)

    world.scan(clock=later(100))

    assert world.opened() == {"a", "b", "c"}


def test_a_file_that_changes_while_it_is_scanned_is_read_again(tmp_path: Path) -> None:
    """What grew between first and last byte isn't remembered."""
    world = World(tmp_path)
    grown: list[int] = []

    def grow(_count: int) -> None:
        if not grown:
            grown.append(1)
            for name in ("a", "b", "c"):
                _append(world.root / name)

    with Seen(world.cache, clock=LATER) as seen:
        scan_files(lambda _: world.root, (Source(root="x"),), grow, seen)

    assert world.opened() & {"a", "b", "c"}
    assert world.opened() == set()


def test_a_clock_that_was_set_back_has_everything_read(world: World) -> None:
    """While the clock is behind an earlier scan, nothing that it found counts; and nothing new is trusted."""
    assert world.opened(clock=later(-3600)) == {"a", "b", "c"}
    assert world.opened(clock=later(-3600)) == {"a", "b", "c"}
    assert world.opened() == set()


def test_another_device_takes_an_hour(tmp_path: Path) -> None:
    """On another device than the cache's a file must be older than clocks differ."""
    world = World(tmp_path)
    assert world.opened(clock=later(3500, device=-1)) == {"a", "b", "c"}
    assert world.opened(clock=later(3500, device=-1)) == {"a", "b", "c"}
    assert world.opened(clock=later(3700, device=-1)) == {"a", "b", "c"}
    assert world.opened(clock=later(3700, device=-1)) == set()


STAMP = Stamp(1, 2, 3, 4, HOUR + 123_456_789)


@pytest.mark.parametrize(
    ("stamp", "began", "settled"),
    [
        (STAMP, Moment(1, STAMP.ctime_ns + 120 * SECOND), True),
        (STAMP, Moment(1, STAMP.ctime_ns + 120 * SECOND - 1), False),
        (STAMP, Moment(1, STAMP.ctime_ns - HOUR), False),
        (STAMP, Moment(9, STAMP.ctime_ns + HOUR), True),
        (STAMP, Moment(9, STAMP.ctime_ns + HOUR - 1), False),
        (STAMP._replace(inode=0), Moment(1, 9 * HOUR), False),
        (STAMP._replace(ctime_ns=HOUR), Moment(1, 9 * HOUR), False),
        (STAMP._replace(ctime_ns=HOUR + 120_000_000), Moment(1, 9 * HOUR), False),
    ],
    ids=["120 s", "less", "to come", "1 h elsewhere", "less elsewhere", "no inode", "seconds", "10 ms"],
)
def test_a_stamp_is_trusted_when_no_later_write_can_bear_it(
    stamp: Stamp, began: Moment, settled: bool
) -> None:
    """Old enough for its device, with an inode, from a fine clock."""
    assert stamp.is_settled(began) is settled


def test_another_device_or_inode_has_a_file_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file system's numbers changed, by a new mount or without reason, files are read."""
    real = module.stamp_of
    for changed in ({"device": 77}, {"inode": 77}, {"inode": 0}):
        monkeypatch.setattr(module, "stamp_of", lambda facts, new=changed: real(facts)._replace(**new))
        assert world.opened() == {"a", "b", "c"}
    monkeypatch.setattr(module, "stamp_of", real)
    assert world.opened() == set()


@pytest.mark.parametrize(
    ("name", "value"),
    [("READERS", READERS[1:]), ("_RULES", 0), ("__version__", "0"), ("PART", 1), ("HEAD_BYTES", 1)],
)
def test_other_rules_have_everything_read(
    name: str, value: object, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another reader, cut, head or version nothing counts that was found before."""
    monkeypatch.setattr(module, name, value)

    assert world.opened() == {"a", "b", "c"}
    assert world.opened() == set()


def test_rehash_reads_everything(world: World) -> None:
    """With rehash all is read, and remembered for the next."""
    assert world.scan(rehash=True)[1] == {"a", "b", "c"}
    assert world.opened() == set()


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _garble(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for at in range(100, len(data), 7):
        data[at] ^= 0x55
    file.write_bytes(data)


def _sql(statement: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(statement)


def _becomes_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _becomes_a_folder(file: Path) -> None:
    file.unlink()
    (file / "x").mkdir(parents=True)


@pytest.mark.parametrize(
    ("damage", "heals"),
    [
        (Path.unlink, True),
        (lambda file: file.write_bytes(b""), True),
        (lambda file: file.write_bytes(b"no database\n" * 500), True),
        (_cut, True),
        (_garble, True),
        (partial(_sql, "DROP TABLE seen"), True),
        (partial(_sql, "UPDATE seen SET value = CAST(replace(value, 'sha256:', 'sha256:0') AS BLOB)"), True),
        (partial(_sql, "UPDATE seen SET value = 1, day = 'x'"), True),
        (partial(_sql, "UPDATE seen SET path = CAST(path || 'x' AS BLOB)"), True),
        (partial(_sql, "PRAGMA user_version = 99"), False),
        (_becomes_a_pipe, False),
        (_becomes_a_folder, False),
    ],
    ids=[
        "missing", "empty", "no-database", "cut", "garbled", "no-table", "wrong-digests", "wrong-types",
        "wrong-paths", "newer", "pipe", "folder",
    ],
)  # fmt: skip
def test_a_damaged_cache_costs_time_and_nothing_else(
    damage: Callable[[Path], object], heals: bool, world: World
) -> None:
    """Whatever lies in the cache's place, the scan is right; what is damaged is made anew, the rest left."""
    damage(world.file)

    assert world.opened() == {"a", "b", "c"}
    assert world.opened() == (set() if heals else {"a", "b", "c"})


def test_a_cache_of_a_newer_version_is_left_alone(world: World) -> None:
    """Not a byte of it is changed."""
    _sql("PRAGMA user_version = 99", world.file)
    before = world.file.read_bytes()

    world.scan()

    assert world.file.read_bytes() == before


def test_a_cache_that_somebody_holds_is_not_waited_for(world: World) -> None:
    """Under another process's lock the scan reads everything, at once."""
    with closing(sqlite3.connect(world.file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        assert world.opened() == {"a", "b", "c"}
        assert time.monotonic() - began < 5
    assert world.opened() == set()


def test_a_cache_folder_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    """A file in the folder's place, or a missing home, is no error."""
    world = World(tmp_path)
    world.cache.write_bytes(b"")
    assert world.opened() == {"a", "b", "c"}
    world.cache = tmp_path / "nowhere" / "cache"
    assert world.opened() == {"a", "b", "c"}
    assert not world.cache.parent.exists()


def test_a_cache_that_cannot_be_written_still_tells(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where SQLite may not write, what is known counts and what is new isn't kept."""
    real = sqlite3.connect

    def read_only(path: Path, **options: object) -> sqlite3.Connection:
        return real(f"{path.as_uri()}?mode=ro", uri=True, **options)  # type: ignore[call-overload,no-any-return]

    _append(world.root / "b")
    monkeypatch.setattr(sqlite3, "connect", read_only)

    assert world.opened() == {"b"}
    assert world.opened() == {"b"}


def test_scans_side_by_side_share_the_cache(world: World) -> None:
    """Several scans at once, each with a connection of its own, find what is there."""
    for number in range(40):
        (world.root / f"n{number}").write_bytes(line(number, sessionId=f"n{number}"))
    truth = world.truth()
    found: list[ScanResult] = []

    def scan() -> None:
        for _ in range(5):
            with Seen(world.cache, clock=LATER) as seen:
                found.append(scan_files(lambda _: world.root, (Source(root="x"),), lambda _: None, seen))

    threads = [threading.Thread(target=scan) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [truth] * 20
    world.scan()
    assert world.opened() == set()


def test_what_no_scan_met_for_long_is_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are too old, of a day to come, or too many are dropped when something is written."""
    file = SeenFile(world.file)
    _sql("UPDATE seen SET day = day - 91 WHERE CAST(path AS TEXT) LIKE '%/a'", world.file)
    _sql("UPDATE seen SET day = day + 2 WHERE CAST(path AS TEXT) LIKE '%/b'", world.file)
    file.put({b"/new": b"x"})
    file.close()
    assert world.opened() == {"a", "b"}

    monkeypatch.setattr("autocode.jobs.operations.export.seen_file._MOST", 3)
    _sql("UPDATE seen SET day = day - 1 WHERE CAST(path AS TEXT) LIKE '%/c'", world.file)
    file = SeenFile(world.file)
    file.put({b"/new": b"y"})
    file.close()
    assert world.opened() == {"c"}


def test_what_a_scan_meets_is_kept(world: World) -> None:
    """A file that was known counts as used on that day."""
    _sql("UPDATE seen SET day = day - 89", world.file)

    world.scan()

    with closing(sqlite3.connect(world.file)) as db:
        assert db.execute("SELECT count(DISTINCT day), max(day) - ? FROM seen", (_day(),)).fetchone() == (
            1,
            0,
        )


def _day() -> int:
    return int(time.time()) // 86_400


def job_with_cache(world: World, home: Path, number: int, before: Job | None = None) -> Job:
    """Return a job over the home's objects and memory, and the world's cache."""
    job = job_over(world.root, home)
    job.context.cache = world.cache
    if before is not None:
        job.memo = before.memo
    job.job_id = f"job-{number}"
    return job


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs begin when all that was written has settled."""
    scan = sys.modules["autocode.jobs.operations.export.scan"]
    monkeypatch.setattr(scan, "Seen", partial(Seen, clock=LATER))


@pytest.mark.usefixtures("settled")
def test_an_export_again_opens_what_is_new_and_gives_the_artifact_of_a_fresh_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changed: no source is opened. One grew, in parts or not: it alone. The digest is the same."""
    monkeypatch.setattr(sys.modules["autocode.jobs.operations.export.scan"], "Cutter", partial(Cutter, 4096))
    world = World(tmp_path)
    (world.root / "c").write_bytes(line("c", sessionId="c") * 100)
    home = tmp_path / "home"
    job = job_with_cache(world, home, 1)
    first = run(job)

    job = job_with_cache(world, home, 2, job)
    with opened_in(world.root) as names:
        assert run(job) == first
    assert names == set()

    for number, name in enumerate("bc", 3):
        _append(world.root / name)
        job = job_with_cache(world, home, number, job)
        with opened_in(world.root) as names:
            grown = run(job)
        assert names == {name}
        assert grown == export(world.root, tmp_path / f"fresh-{name}")[1]


@pytest.mark.usefixtures("settled")
def test_a_payload_can_ask_to_read_everything(tmp_path: Path) -> None:
    """It is another request than the same without; one that doesn't ask is what it was before one could."""
    world = World(tmp_path)
    job = job_with_cache(world, tmp_path / "home", 1)
    digest = run(job)
    plain = job.payload.model_dump(mode="json")

    job = job_with_cache(world, tmp_path / "home", 2, job)
    job.payload = EXPORT.parse({**plain, "rehash": True})
    with opened_in(world.root) as names:
        assert run(job) == digest

    assert names == {"a", "b", "c"}
    assert plain == {"sources": [{"root": "samples", "select": []}], "redact": True}
    assert job.payload.model_dump(mode="json") == {**plain, "rehash": True}
    assert EXPORT.parse({**plain, "rehash": False}).model_dump(mode="json") == plain


@pytest.mark.usefixtures("settled")
def test_a_file_that_is_not_what_it_was_taken_for_is_read_by_the_next_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the stamp lied, the export stops, names the file, and the next one is right."""
    world = World(tmp_path)
    real = module.stamp_of
    scan = sys.modules["autocode.jobs.operations.export.scan"]
    for place in (module, scan):
        # a file system that says nothing of changes
        monkeypatch.setattr(
            place, "stamp_of", lambda facts: real(facts)._replace(mtime_ns=1, ctime_ns=123_456_789)
        )
    run(job_with_cache(world, tmp_path / "home", 1))
    path = world.root / "b"
    path.write_bytes(path.read_bytes().replace(b'"b"', b'"B"'))

    with pytest.raises(SourceChanged, match="b no longer holds"):
        run(job_with_cache(world, tmp_path / "other", 2))
    digest = run(job_with_cache(world, tmp_path / "other", 3))

    assert digest == export(world.root, tmp_path / "fresh")[1]


def test_a_found_file_survives_the_cache(world: World) -> None:
    """Every field of what is found comes back, names of odd bytes among them."""
    odd = Path(os.fsdecode(os.fsencode(world.root) + b"/\xff\n"))
    odd.write_bytes(b"SQLite format 3\0" + bytes(100))
    world.scan()

    found, opened = world.scan()

    assert opened == set()
    assert set(FoundFile.model_fields) == {
        "path", "name", "size", "sha256", "reader", "revision", "label", "parts",
    }  # fmt: skip
    assert [file.label for file in found.files if file.reader is None] == ["sqlite"]


def test_any_damaged_byte_costs_reading_and_nothing_else(world: World) -> None:
    """Whatever SQLite or Python says of damage is damage: no export ever fails of it."""
    whole = world.file.read_bytes()
    # the name of an index is quoted in SQLite's own words, which are no UTF-8 then
    name = whole.index(b"sqlite_autoindex_seen_1")

    for at in (name + 11, *range(0, 4_096, 41)):
        world.file.write_bytes(whole[:at] + b"\xaa" + whole[at + 1 :])
        world.scan()
        world.scan(rehash=True)

    world.file.write_bytes(whole[: name + 11] + b"\xaa" + whole[name + 12 :])
    assert world.opened() == {"a", "b", "c"}
    assert world.opened() == set()


@pytest.mark.parametrize("end", ["", "-journal", "-wal", "-shm"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(world: World, end: str) -> None:
    """SQLite would open it and wait for ever; the scan reads its sources instead."""
    world.file.unlink()
    os.mkfifo(world.file.with_name(world.file.name + end))

    assert world.opened() == {"a", "b", "c"}
