"""Folder and zip file made from an artifact: complete, verified, atomic, and never beside their place."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autocode.jobs.errors import DiskFull, JobsError, ObjectCorrupt, ObjectMissing, UsageError
from autocode.jobs.operations import partial
from autocode.jobs.operations.export import archive, folder
from autocode.jobs.operations.export.views import bag_files, bag_name, load_manifest, write_folder, write_zip
from autocode.jobs.store import LocalStore
from autocode.jobs.testing.samples import write_samples
from export_context import export, manifest_of

Writer = Callable[[LocalStore, str, Path], Path]


def as_folder(store: LocalStore, digest: str, parent: Path) -> Path:
    """Unpack the export below *parent*."""
    return write_folder(store, digest, parent)


def as_zip(store: LocalStore, digest: str, parent: Path) -> Path:
    """Pack the export into a file in *parent*."""
    return write_zip(store, digest, parent / "export.zip")


WRITERS = pytest.mark.parametrize("write", [as_folder, as_zip])


@pytest.fixture
def exported(tmp_path: Path) -> tuple[LocalStore, str]:
    """A finished export."""
    samples = write_samples(tmp_path / "samples", sessions=3, megabytes=0.02)
    return export(samples.folder, tmp_path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder for the view."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def contents(root: Path) -> dict[str, bytes]:
    """Return every file below *root* by its path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_sha256sum_accepts_the_folder(exported: tuple[LocalStore, str], out: Path) -> None:
    """sha256sum alone checks the payload and the tag files, and names the artifact."""
    root = write_folder(*exported, out)

    checks = [
        subprocess.run(
            ["sha256sum", "--strict", "-c", name], cwd=root, check=False, capture_output=True, text=True
        )
        for name in ("manifest-sha256.txt", "tagmanifest-sha256.txt")
    ]
    identity = subprocess.run(
        ["sha256sum", "manifest.json"], cwd=root, check=True, capture_output=True, text=True
    )

    assert [check.returncode for check in checks] == [0, 0]
    assert checks[0].stdout.count(": OK") == len(manifest_of(*exported)["members"])
    assert "sha256:" + identity.stdout.split()[0] == exported[1]


def test_sha256sum_finds_a_changed_byte(exported: tuple[LocalStore, str], out: Path) -> None:
    """The check that the README gives fails when one byte of one session is another."""
    root = write_folder(*exported, out)
    victim = next(root.rglob("*.jsonl"))
    victim.write_bytes(victim.read_bytes().replace(b"a", b"b", 1))

    check = subprocess.run(
        ["sha256sum", "-c", "manifest-sha256.txt"], cwd=root, check=False, capture_output=True
    )

    assert check.returncode == 1


def test_the_folder_is_a_valid_bag(exported: tuple[LocalStore, str], out: Path) -> None:
    """What RFC 8493, section 3, asks of a complete and valid bag holds."""
    files = contents(write_folder(*exported, out))

    def listed(name: str) -> dict[str, str]:
        rows = [row.split("  ", 1) for row in files[name].decode().splitlines()]
        return {path: digest for digest, path in rows}

    payload = {
        path: hashlib.sha256(data).hexdigest() for path, data in files.items() if path.startswith("data/")
    }
    tags = {
        path: hashlib.sha256(data).hexdigest()
        for path, data in files.items()
        if "/" not in path and path != "tagmanifest-sha256.txt"
    }
    size = sum(len(data) for path, data in files.items() if path in payload)
    info = dict(row.split(": ", 1) for row in files["bag-info.txt"].decode().splitlines())
    assert files["bagit.txt"] == b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
    assert listed("manifest-sha256.txt") == payload
    assert listed("tagmanifest-sha256.txt") == tags
    assert list(listed("manifest-sha256.txt")) == sorted(payload)
    assert info["Payload-Oxum"] == f"{size}.{len(payload)}"
    assert info["External-Identifier"] == exported[1]
    assert "Bagging-Date" not in info
    assert {path for path in files if "/" not in path} == {*tags, "tagmanifest-sha256.txt"}
    assert set(tags) == {"README.txt", "bag-info.txt", "bagit.txt", "manifest-sha256.txt", "manifest.json"}


def test_the_readme_gives_the_identity_and_the_policy(exported: tuple[LocalStore, str], out: Path) -> None:
    """Who finds the folder learns how to check it, which export it is, and what was redacted."""
    readme = (write_folder(*exported, out) / "README.txt").read_text("ascii")

    assert "sha256sum -c manifest-sha256.txt" in readme
    assert exported[1].removeprefix("sha256:") in readme
    assert "policy default (revision" in readme
    assert max(map(len, readme.splitlines())) <= 110


def test_the_readme_warns_of_what_was_not_redacted(tmp_path: Path, out: Path) -> None:
    """A bag without redaction says so in capitals."""
    samples = write_samples(tmp_path / "samples", sessions=2, megabytes=0)

    root = write_folder(*export(samples.folder, tmp_path, redact=False), out)

    assert "NOTHING WAS REDACTED" in (root / "README.txt").read_text()


def test_the_files_of_the_bag_are_a_function_of_the_manifest(exported: tuple[LocalStore, str]) -> None:
    """Two loads give the same files, sorted, with true digests and sizes."""
    files = bag_files(load_manifest(*exported))

    assert files == bag_files(load_manifest(*exported))
    assert [file.path for file in files] == sorted(file.path for file in files)
    for file in files:
        content = file.content or exported[0].open(file.sha256).read_all(limit=1 << 20)
        assert ("sha256:" + hashlib.sha256(content).hexdigest(), len(content)) == (file.sha256, file.size)


def test_the_folder_belongs_to_its_owner_alone(exported: tuple[LocalStore, str], out: Path) -> None:
    """Nobody else on the machine can read the unpacked conversations."""
    root = write_folder(*exported, out)

    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in [root, *root.rglob("*")]}

    assert modes == {0}


def test_unzip_gives_the_folder(exported: tuple[LocalStore, str], out: Path, tmp_path: Path) -> None:
    """The zip file holds one folder, which is the unpacked bag to the byte."""
    root = write_folder(*exported, out)
    (tmp_path / "unzipped").mkdir()

    with zipfile.ZipFile(write_zip(*exported, out / "e.zip")) as packed:
        assert packed.testzip() is None
        packed.extractall(tmp_path / "unzipped")

    assert contents(tmp_path / "unzipped" / root.name) == contents(root)
    assert [path.name for path in (tmp_path / "unzipped").iterdir()] == [bag_name(exported[1])]


def test_two_zip_files_of_one_export_are_equal(
    exported: tuple[LocalStore, str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time, time zone and umask leave no trace in the file."""
    one = write_zip(*exported, out / "one.zip")
    monkeypatch.setenv("TZ", "Pacific/Chatham")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    before = os.umask(0o027)
    try:
        two = write_zip(*exported, out / "two.zip")
    finally:
        os.umask(before)

    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as packed:
        entries = packed.infolist()
    assert {(e.date_time, e.create_system, e.external_attr) for e in entries} == {
        ((1980, 1, 1, 0, 0, 0), 3, 0o100644 << 16)
    }
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)


def test_large_entries_get_the_long_form(
    exported: tuple[LocalStore, str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries beyond the classic limit are written as ZIP64 and can be read."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)

    path = write_zip(*exported, out / "e.zip")

    with zipfile.ZipFile(path) as packed:
        assert packed.testzip() is None
        assert max(entry.extract_version for entry in packed.infolist()) == 45


@WRITERS
def test_writing_again_gives_the_same_place(
    write: Writer, exported: tuple[LocalStore, str], out: Path
) -> None:
    """A view that is there already stays as it is, and is returned."""
    first = write(*exported, out)
    before = first.stat().st_ino

    second = write(*exported, out)

    assert (second, second.stat().st_ino) == (first, before)
    assert [path.name for path in out.iterdir()] == [first.name]


@WRITERS
def test_progress_reaches_its_total(write: Writer, exported: tuple[LocalStore, str], out: Path) -> None:
    """Progress grows to the number of bytes in the bag."""
    told: list[tuple[int, int]] = []

    if write is as_folder:
        write_folder(*exported, out, progress=lambda done, total: told.append((done, total)))
    else:
        write_zip(*exported, out / "e.zip", progress=lambda done, total: told.append((done, total)))

    total = sum(file.size for file in bag_files(load_manifest(*exported)))
    assert told[-1] == (total, total)
    assert told == sorted(told)


def _link_for(name: str) -> Callable[[Path], None]:
    def replace(root: Path) -> None:
        (root / name).rename(root.parent / "aside")
        (root / name).symlink_to(root.parent / "aside")

    return replace


def _pipe_for_the_readme(root: Path) -> None:
    (root / "README.txt").unlink()
    os.mkfifo(root / "README.txt")


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("another byte", lambda root: (root / "bagit.txt").write_text("x" * 55)),
        ("a file too many", lambda root: (root / "extra").touch()),
        ("a folder too many", lambda root: (root / "data" / "extra").mkdir()),
        ("a file too few", lambda root: (root / "README.txt").unlink()),
        ("a link for a file", _link_for("README.txt")),
        ("a link for a folder", _link_for("data")),
        ("a pipe for a file", _pipe_for_the_readme),
    ],
)
def test_a_folder_that_is_something_else_is_not_touched(
    name: str, spoil: Callable[[Path], object], exported: tuple[LocalStore, str], out: Path
) -> None:
    """A folder of that name that isn't exactly this bag is refused and stays as it is."""
    root = write_folder(*exported, out)
    spoil(root)
    before = sorted(str(path) for path in out.rglob("*"))

    with pytest.raises(UsageError) as caught:
        write_folder(*exported, out)

    assert str(root) in caught.value.detail, name
    assert "Move it away" in caught.value.hint
    assert sorted(str(path) for path in out.rglob("*")) == before


@pytest.mark.parametrize("kind", ["file", "folder", "link", "empty"])
def test_a_zip_file_never_replaces_anything(kind: str, exported: tuple[LocalStore, str], out: Path) -> None:
    """Whatever else has the name stays."""
    path = out / "e.zip"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    else:
        path.symlink_to(out / "nowhere")

    with pytest.raises(UsageError):
        write_zip(*exported, path)

    assert list(out.iterdir()) == [path]
    assert not (out / "nowhere").exists()


def test_a_zip_file_is_renamed_where_there_are_no_links(
    exported: tuple[LocalStore, str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without hard links the file appears all the same."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)

    path = write_zip(*exported, out / "e.zip")

    assert zipfile.is_zipfile(path)
    assert list(out.iterdir()) == [path]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "/x", "a\0b"])
def test_the_folder_stays_in_its_parent(name: str, exported: tuple[LocalStore, str], out: Path) -> None:
    """A name that leads elsewhere is refused."""
    with pytest.raises(UsageError):
        write_folder(*exported, out, name=name)

    assert list(out.iterdir()) == []


def test_the_folder_may_have_another_name(exported: tuple[LocalStore, str], out: Path) -> None:
    """A name of the user's own is taken."""
    assert write_folder(*exported, out, name="mine") == out / "mine"


@WRITERS
@pytest.mark.parametrize("nth", [0, 3, 7])
@pytest.mark.parametrize(
    "refusal",
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EROFS, UsageError), (errno.EIO, OSError)],
)
def test_a_write_that_fails_leaves_nothing(
    write: Writer, refusal: tuple[int, type[Exception]], nth: int, exported: tuple[LocalStore, str], out: Path
) -> None:
    """Whichever file the disk refuses, nothing of the view is left."""
    number, error = refusal
    calls = iter(range(1000))
    module = folder if write is as_folder else archive
    real = module.content_of

    def failing(*arguments: Any) -> object:
        if next(calls) == nth:
            raise OSError(number, os.strerror(number))
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "content_of", failing)
        with pytest.raises(error):
            write(*exported, out)

    assert list(out.iterdir()) == []


@pytest.mark.parametrize("write", [write_folder, write_zip])
def test_an_interrupted_write_leaves_nothing(write: Any, exported: tuple[LocalStore, str], out: Path) -> None:
    """A progress callback that raises stops the write without a trace."""

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    place = out if write is write_folder else out / "export.zip"

    with pytest.raises(KeyboardInterrupt):
        write(*exported, place, progress=stop)

    assert list(out.iterdir()) == []


@WRITERS
@pytest.mark.parametrize(("damage", "error"), [("missing", ObjectMissing), ("corrupt", ObjectCorrupt)])
def test_an_object_that_is_not_sound_leaves_nothing(
    write: Writer, damage: str, error: type[JobsError], exported: tuple[LocalStore, str], out: Path
) -> None:
    """A member that is gone or damaged in the store makes no view."""
    store, digest = exported
    victim = store.path_of(manifest_of(store, digest)["members"][-1]["sha256"])
    data = bytearray(victim.read_bytes())
    victim.chmod(0o600)
    if damage == "missing":
        victim.unlink()
    else:
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)

    with pytest.raises(error):
        write(store, digest, out)

    assert list(out.iterdir()) == []


@WRITERS
def test_a_missing_parent_is_an_error_of_usage(
    write: Writer, exported: tuple[LocalStore, str], out: Path
) -> None:
    """A parent that doesn't exist or is a file is named, and not made."""
    (out / "file").touch()

    for parent in (out / "missing", out / "file"):
        with pytest.raises(UsageError) as caught:
            write(*exported, parent)
        assert str(parent) in caught.value.detail

    assert [path.name for path in out.iterdir()] == ["file"]


def test_what_a_killed_run_left_is_removed_and_what_runs_is_not(
    exported: tuple[LocalStore, str], out: Path
) -> None:
    """Temporary siblings go unless a living process holds them; other names are never touched."""
    abandoned = [out / f".autocode-export-{digit * 16}.partial" for digit in "ab"]
    abandoned[0].mkdir()
    (abandoned[0] / "data").mkdir()
    (abandoned[0] / "data" / "x").touch()
    abandoned[1].touch()
    foreign = [out / ".autocode-export-notours.partial", out / f".autocode-export-{'c' * 16}.partial.bak"]
    for path in foreign:
        path.mkdir()
    link = out / f".autocode-export-{'d' * 16}.partial"
    link.symlink_to(foreign[0])
    with partial.partial_folder(out) as living:
        root = write_folder(*exported, out)

        left = set(out.iterdir())

    assert left == {root, living, *foreign, link}
    assert not living.exists()


def test_a_temporary_folder_taken_by_a_sweep_is_made_anew(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep between making and locking costs a second try, and no data."""
    real = fcntl.flock
    sweeps: list[int] = []

    def late(descriptor: int, operation: int) -> None:
        if not sweeps:
            sweeps.append(0)
            sweeps[0] = partial.sweep(out)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)

    with partial.partial_folder(out) as made:
        assert sweeps == [1]
        assert list(out.iterdir()) == [made]


def test_a_faster_twin_is_as_good(
    exported: tuple[LocalStore, str], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the same bag appears while ours is written, theirs stays and is returned."""
    real = folder._fill

    def overtaken(root: Path, *rest: object) -> None:
        monkeypatch.setattr(folder, "_fill", real)
        write_folder(*exported, out)
        real(root, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(folder, "_fill", overtaken)

    root = write_folder(*exported, out)

    assert list(out.iterdir()) == [root]
    assert contents(root)
