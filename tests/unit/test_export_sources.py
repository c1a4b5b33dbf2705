"""Sources that change, vanish or are odd: what the user is told, and that nothing half-written stays."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from autocode.jobs.errors import (
    DiskFull,
    JobsError,
    NoSessions,
    SourceChanged,
    Transient,
    UsageError,
    is_transient,
)
from autocode.jobs.operations.export import EXPORT, frozen
from autocode.jobs.operations.export.payload import FoundFile, Source
from autocode.jobs.operations.export.scan import freeze, scan_files
from autocode.jobs.operations.export.seen import Stamp
from autocode.jobs.sessions.discover import Candidate
from autocode.jobs.store import posix, staging
from export_context import Job, export, job_over, leftovers_of, line, manifest_of, paths_of, run

ONE = line("one") + line("two")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one session, ``s.jsonl``."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "s.jsonl").write_bytes(ONE)
    return tmp_path / "folder"


def job_that(folder: Path, change: Callable[[], object], step: str = "read") -> Job:
    """Return a job before whose first *step* the world changes once."""
    job = job_over(folder, folder.parent)
    changes = [change]

    def before(name: str) -> None:
        if name == step and changes:
            changes.pop()()

    job.before = before
    return job


def fails(job: Job) -> JobsError:
    """Run *job*, which has to fail, and return its error; no manifest and no temporary file is there."""
    with pytest.raises(JobsError) as caught:
        run(job)
    assert leftovers_of(job.context.store) == []
    assert "bundle" not in job.ran
    return caught.value


def test_what_is_appended_after_the_scan_waits_for_the_next_export(folder: Path) -> None:
    """A session that grows between scan and read is exported as it was scanned."""
    _, expected = export(folder, folder.parent / "before")

    def grow() -> None:
        with (folder / "s.jsonl").open("ab") as file:
            file.write(line("three"))

    digest = run(job_that(folder, grow))

    assert digest == expected


def _becomes_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _becomes_a_link(path: Path) -> None:
    path.rename(path.with_name("target"))
    path.symlink_to("target")


def _becomes_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _loses_its_folder(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("shrinks", lambda path: os.truncate(path, 10)),
        ("empties", lambda path: os.truncate(path, 0)),
        ("is rewritten", lambda path: path.write_bytes(ONE.replace(b"one", b"eno"))),
        ("vanishes", Path.unlink),
        ("becomes a pipe", _becomes_a_pipe),
        ("becomes a folder", _becomes_a_folder),
        ("becomes a link", _becomes_a_link),
        ("loses its folder", _loses_its_folder),
    ],
)
def test_a_source_that_changes_after_the_scan_stops_the_export(
    name: str, change: Callable[[Path], object], folder: Path
) -> None:
    """A changed file is a permanent error that names it and says what to do; nothing is published."""
    job = job_that(folder, lambda: change(folder / "s.jsonl"))

    error = fails(job)

    assert type(error) is SourceChanged, name
    assert "s.jsonl" in error.detail
    assert "again" in error.hint
    assert job.ran == ["scan"]


def test_a_source_that_becomes_a_socket_stops_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket in a file's place is never connected to."""
    folder = tmp_path / "f"
    folder.mkdir()
    path = folder / "s.jsonl"
    path.write_bytes(ONE)
    monkeypatch.chdir(folder)  # the name of a socket may have 107 bytes only

    def replace() -> None:
        path.unlink()
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("s.jsonl")

    error = fails(job_that(folder, replace))

    assert type(error) is SourceChanged


@pytest.mark.parametrize("step", ["scan", "read"])
def test_a_shortage_of_the_system_is_worth_another_try(
    step: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No free file descriptor while a source is opened leaves no file out and kills no job."""
    real = os.open

    def scarce(path: object, *rest: object, **more: object) -> int:
        if str(path).endswith("s.jsonl"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *rest, **more)  # type: ignore[arg-type]

    job = job_that(folder, lambda: monkeypatch.setattr(os, "open", scarce), step)

    error = fails(job)

    assert type(error) is Transient
    assert is_transient(error)


def test_a_disk_that_fails_while_reading_is_worth_another_try(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input error in the middle of a session names the file and is transient."""

    class Failing:
        def readinto(self, buffer: memoryview) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    stream = frozen.FrozenStream(Failing(), 10, "s.jsonl")  # type: ignore[arg-type]

    with pytest.raises(Transient, match=r"s\.jsonl could not be read"):
        stream.read(5)


def test_a_link_that_appears_after_discovery_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is replaced by a link between being listed and being opened is left out."""
    outside = folder.parent / "outside.jsonl"
    outside.write_bytes(ONE)
    (folder / "a.jsonl").write_bytes(line("other"))

    def swapped(candidate: Candidate, looked_at: Callable[[], None]) -> tuple[FoundFile, Stamp | None]:
        if candidate.relative == "s.jsonl":
            candidate.path.unlink()
            candidate.path.symlink_to(outside)
        return freeze(candidate, looked_at)

    # by its module: the package has a step of that name
    monkeypatch.setattr(sys.modules[scan_files.__module__], "freeze", swapped)

    found = scan_files(lambda _root: folder, [Source(root="r")], lambda _count: None)

    assert [file.name for file in found.files] == ["a.jsonl"]
    assert found.reasons in ({"vanished": 1}, {"symlink-outside": 1})


@pytest.mark.parametrize("select", ["", "..", "../x", "/etc", "a/../b", "a//b", "a/", "./a", "a\0b", "."])
def test_a_selection_names_something_below_its_root(select: str) -> None:
    """No payload reaches out of a root, whatever way its path is written."""
    with pytest.raises(ValidationError):
        Source(root="r", select=(select,))


def test_a_selection_does_not_leave_its_root_through_a_link(folder: Path) -> None:
    """A selected link that leads elsewhere is refused."""
    (folder.parent / "outside").mkdir()
    (folder.parent / "outside" / "s.jsonl").write_bytes(ONE)
    (folder / "link").symlink_to(folder.parent / "outside")

    error = fails(job_over(folder, folder.parent, select=("link",)))

    assert type(error) is UsageError
    assert "leads out of the root" in error.detail


def test_a_missing_path_is_named_with_its_neighbours(folder: Path) -> None:
    """A selection that doesn't exist gives a usage error that suggests what does."""
    error = fails(job_over(folder, folder.parent, select=("s.jsnl",)))

    assert type(error) is UsageError
    assert "s.jsonl" in error.hint


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (None, "no file at all"),
        (b"", "1 empty"),
        (bytes(range(256)), "1 binary"),
        (b"\0" * 5000, "1 zeros"),
        (b"hello", "1 text"),
        (b"SQLite format 3\0" + bytes(100), "1 sqlite"),
        (b"\xff\xfe" * 100, "1 binary"),
    ],
)
def test_a_folder_without_sessions_says_what_is_there(
    content: bytes | None, kind: str, tmp_path: Path
) -> None:
    """No session is a permanent error that tells what was found instead."""
    folder = tmp_path / "folder"
    folder.mkdir()
    if content is not None:
        (folder / "file").write_bytes(content)

    for redact in (True, False):
        job = job_over(folder, tmp_path, redact=redact)
        error = fails(job)

        assert type(error) is NoSessions
        assert kind in error.detail
        assert "doctor" in error.hint


@pytest.mark.parametrize(
    ("name", "content", "records", "damaged"),
    [
        ("invalid UTF-8", ONE + line("x").replace(b'"x"', b'"\xff\xfe"'), 4, 0),
        ("NUL padding", line("a") + bytes(5000) + b"\n" + line("b"), 3, 0),
        ("glued", line("a")[:-1] + line("b"), 3, 0),
        ("truncated", ONE + line("cut")[:40], 3, 1),
        ("truncated in the middle", line("a") + line("cut")[:40] + b"\n" + line("b"), 3, 1),
        ("line separators", line("a\u2028b\u2029c\x85d"), 2, 0),
        ("raw line separators", line("XX").replace(b"XX", "\u2028\x85".encode()), 2, 0),
        ("carriage returns", ONE.replace(b"\n", b"\r\n"), 3, 0),
        ("lone surrogates", line("a\ud800b\udfff"), 2, 0),
        ("duplicate ids", line("a", uuid="u") + line("b", uuid="u"), 3, 0),
        ("cyclic parents", line("a", uuid="u", parentUuid="v") + line("b", uuid="v", parentUuid="u"), 3, 0),
        ("its own parent", line("a", uuid="u", parentUuid="u"), 2, 0),
        ("absurd times", line("a", timestamp="9999-99-99") + line("b", timestamp=-1e300), 3, 0),
        ("no times", line("a", timestamp=None), 2, 0),
        ("infinity", line("a") + line("b").replace(b'"b"', b"1e999"), 2, 1),
        ("deep nesting", line("a") + line("b").replace(b'"b"', b"[" * 5000 + b"]" * 5000), 2, 1),
        ("numbers beyond 64 bits", line("a", big=2**70, tiny=5e-324), 2, 0),
        ("paths that climb", line("a", cwd="../../etc", gitBranch="../x"), 2, 0),
        ("no final newline", ONE[:-1], 3, 0),
        ("a byte order mark", b"\xef\xbb\xbf" + ONE, 3, 0),
    ],
)
def test_a_damaged_session_is_exported_with_an_account_of_the_damage(
    name: str, content: bytes, records: int, damaged: int, tmp_path: Path
) -> None:
    """Whatever can be read is exported, what can't is counted, and twice gives the same digest."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "s.jsonl").write_bytes(content)

    store, digest = export(folder, tmp_path / "one")

    source = manifest_of(store, digest)["sources"][0]
    assert (source["records"], source["damaged"]) == (records, damaged), name
    assert export(folder, tmp_path / "two")[1] == digest


def test_odd_names_change_nothing(folder: Path) -> None:
    """Files whose names are no text, hold newlines or have 255 bytes are exported by their content."""
    _, expected = export(folder, folder.parent / "one")
    data = (folder / "s.jsonl").read_bytes()
    (folder / "s.jsonl").unlink()
    for name in (b"a\nb\x1b[31m", b"\xff\xfe.jsonl", b"x" * 255):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(data)

    _, actual = export(folder, folder.parent / "two")

    assert actual == expected


def test_loops_and_specials_are_left_out_and_counted(folder: Path) -> None:
    """Symbolic links in a circle, links to folders and pipes are counted in the manifest by reason."""
    (folder / "loop").symlink_to("loop")
    (folder / "self").symlink_to(".")
    (folder / "outside").symlink_to("/etc/hosts")
    os.mkfifo(folder / "pipe")

    store, digest = export(folder, folder.parent)

    assert manifest_of(store, digest)["left_out"] == {
        "fifo": 1, "symlink-broken": 1, "symlink-outside": 1, "symlinked-folder": 1,
    }  # fmt: skip


def test_everything_left_out_is_counted_beyond_what_is_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest counts what was left out also where the list of names was cut short."""
    monkeypatch.setattr("autocode.jobs.sessions.discover._PROBLEMS_KEPT", 3)
    for number in range(10):
        (folder / f"link{number}").symlink_to("nowhere")

    store, digest = export(folder, folder.parent)

    assert manifest_of(store, digest)["left_out"] == {"symlink-broken": 10}


@pytest.mark.parametrize("nth", range(8))
def test_a_full_disk_leaves_nothing_half_written(
    nth: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever write finds the disk full, the error says so, and the next try gives the usual digest."""
    _, expected = export(folder, folder.parent / "undisturbed")
    writes = iter(range(1000))

    def full(file: int, data: bytes) -> None:
        if next(writes) == nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        posix.write_all(file, data)

    monkeypatch.setattr(staging, "write_all", full)
    job = job_over(folder, folder.parent)

    with pytest.raises(DiskFull) as caught:
        run(job)
    again = run(job)

    assert "Free some space" in caught.value.hint
    assert leftovers_of(job.context.store) == []
    assert again == expected


def test_progress_ends_at_its_total(folder: Path) -> None:
    """The last thing told is that all bytes are done, and no figure is beyond the total."""
    job = job_over(folder, folder.parent, redact=False)

    run(job)

    told = [(done, total) for done, total, unit in job.context.told if unit == "bytes"]
    assert told[-1] == (len(ONE), len(ONE))
    assert all(done <= (total or 0) for done, total in told)
    assert told == sorted(told)


def test_the_payload_tells_what_is_wrong_with_it() -> None:
    """An empty list of sources and unknown fields are refused with a pointer."""
    with pytest.raises(JobsError) as caught:
        EXPORT.parse({"sources": [], "path": "/etc"})

    assert "/sources" in caught.value.detail
    assert "/path" in caught.value.detail


def test_nested_selections_are_exported_once(folder: Path) -> None:
    """A file that is selected by itself and by its folder is one session."""
    (folder / "sub").mkdir()
    (folder / "sub" / "t.jsonl").write_bytes(line(sessionId="t"))

    store, digest = export(folder, folder.parent, select=("sub", "sub/t.jsonl", "sub-not"[:3]))

    assert paths_of(store, digest) == [
        "data/sessions/claude-code/t.jsonl",
        "data/sessions/claude-code/t.report.json",
    ]
