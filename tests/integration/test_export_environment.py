"""The export in processes of its own: other locales and time zones, other users, killed writers."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocode.jobs.operations.export.views import write_folder
from autocode.jobs.store import LocalStore
from autocode.jobs.testing.samples import write_samples
from export_context import export, job_over, line, manifest_of, run

TESTS = Path(__file__).resolve().parents[1]
EXPORT = """
import sys
from pathlib import Path
from export_context import export
print(export(Path(sys.argv[1]), Path(sys.argv[2]))[1])
"""
LOCKED_OUT = """
import sys
from pathlib import Path
from export_context import job_over, line, run
from autocode.jobs.errors import SourceUnreadable

mine = Path(sys.argv[1]) / "s.jsonl"
mine.unlink()
mine.write_bytes(line())
job = job_over(mine.parent, Path(sys.argv[2]))
job.before = lambda step: step == "read" and mine.chmod(0)
try:
    run(job)
except SourceUnreadable as error:
    print("SourceUnreadable", error.detail, error.hint)
"""
UNPACK = """
import sys, time
from pathlib import Path
from autocode.jobs.operations.export.views import write_folder, write_zip
from autocode.jobs.store import LocalStore

def reached(done, total):
    if done > total // 2:
        print("halfway", flush=True)
        time.sleep(600)

store = LocalStore(Path(sys.argv[1]))
if sys.argv[4] == "folder":
    write_folder(store, sys.argv[2], Path(sys.argv[3]), progress=reached)
else:
    write_zip(store, sys.argv[2], Path(sys.argv[3]) / "export.zip", progress=reached)
"""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a child that finds the package and the tests' aids."""
    paths = [str(TESTS), str(TESTS.parent / "src")]
    return {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(paths), **more}


def test_the_digest_is_the_same_in_every_environment(tmp_path: Path) -> None:
    """Time zone, locale, hash seed, encoding, umask and folder of the process don't matter."""
    folder = write_samples(tmp_path / "samples", sessions=3, megabytes=0.05).folder
    environments = [
        environment(TZ="UTC", LC_ALL="C", PYTHONHASHSEED="0"),
        environment(TZ="Asia/Kathmandu", LC_ALL="C.UTF-8", PYTHONHASHSEED="42", PYTHONUTF8="1"),
        environment(
            TZ="America/St_Johns", LC_ALL="tr_TR.UTF-8", PYTHONHASHSEED="random", PYTHONIOENCODING="latin-1"
        ),
    ]

    digests = {
        subprocess.run(
            [sys.executable, "-c", EXPORT, str(folder), str(tmp_path / f"home{number}")],
            env=env,
            cwd="/",
            umask=0o77 if number else 0o22,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for number, env in enumerate(environments)
    }

    assert digests == {export(folder, tmp_path / "here")[1] + "\n"}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_files_that_may_not_be_read_are_left_out_and_counted(open_folder: Path) -> None:
    """An unreadable file and an unreadable folder don't stop the export; the manifest counts them."""
    folder, home = open_folder / "folder", open_folder / "home"
    (folder / "locked").mkdir(parents=True)
    (folder / "good").write_bytes(line())
    (folder / "bad").write_bytes(line("secret", sessionId="bad"))
    (folder / "bad").chmod(0)
    (folder / "locked").chmod(0)
    home.mkdir()
    home.chmod(0o777)

    digest = as_nobody(EXPORT, folder, home).strip()

    (folder / "locked").chmod(0o700)
    manifest = manifest_of(LocalStore(home / "store"), digest)
    assert manifest["left_out"] == {"unreadable-file": 1, "unreadable-folder": 1}
    assert [source["reader"] for source in manifest["sources"]] == ["claude-code"]


def test_a_file_that_may_not_be_read_any_more_stops_the_export(open_folder: Path) -> None:
    """Permissions that are taken away after the scan give an error that names the file and the way out."""
    folder, home = open_folder / "folder", open_folder / "home"
    folder.mkdir()
    (folder / "s.jsonl").write_bytes(line())
    folder.chmod(0o777)
    home.mkdir()
    home.chmod(0o777)

    told = as_nobody(LOCKED_OUT, folder, home)

    assert told.startswith("SourceUnreadable s.jsonl can't be opened: Permission denied.")
    assert "permissions" in told


def as_nobody(program: str, *arguments: Path) -> str:
    """Run a Python program as a user who is not root, and return what it prints."""
    user = 65534 if os.geteuid() == 0 else None
    return subprocess.run(
        # the interpreter may lie where nobody may look, so the parent imports and the child drops its rights
        [sys.executable, "-c", _DROPPING.format(user=user) + program, *map(str, arguments)],
        env=environment(),
        cwd="/",
        check=True,
        capture_output=True,
        text=True,
    ).stdout


_DROPPING = """
import os
import autocode.jobs.operations.export.views, autocode.jobs.store, export_context, encodings.idna
if {user} is not None:
    os.setgroups([])
    os.setgid({user})
    os.setuid({user})
"""


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_a_killed_view_leaves_nothing_that_the_next_does_not_remove(form: str, tmp_path: Path) -> None:
    """SIGKILL halfway leaves a temporary sibling only, and the next view removes it."""
    store, digest = export(write_samples(tmp_path / "samples", sessions=2, megabytes=0.1).folder, tmp_path)
    (tmp_path / "out").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", UNPACK, str(store.root), digest, str(tmp_path / "out"), form],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "halfway\n"
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=30)
    left = list((tmp_path / "out").iterdir())

    root = write_folder(store, digest, tmp_path / "out")

    assert [path.name.endswith(".partial") for path in left] == [True]
    assert list((tmp_path / "out").iterdir()) == [root]


def test_a_living_writer_is_not_swept(tmp_path: Path) -> None:
    """While one process unpacks, another one's sweep leaves its temporary folder alone."""
    store, digest = export(write_samples(tmp_path / "samples", sessions=2, megabytes=0.1).folder, tmp_path)
    (tmp_path / "out").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", UNPACK, str(store.root), digest, str(tmp_path / "out"), "folder"],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        before = list((tmp_path / "out").iterdir())

        root = write_folder(store, digest, tmp_path / "out")

        after = list((tmp_path / "out").iterdir())
        child.kill()
    assert sorted(after) == sorted([*before, root])


def test_a_source_that_is_written_all_the_while_gives_a_whole_prefix(tmp_path: Path) -> None:
    """A session that another process appends to during the export is exported up to the scanned byte."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "s").write_bytes(line() * 500)
    appending = (
        "import sys,time\nf=open(sys.argv[1],'ab',0)\nprint('on',flush=True)\nwhile True: f.write(b'x'*999)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", appending, str(folder / "s")], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            job = job_over(folder, tmp_path)
            job.before = lambda _step: _wait_for_growth(folder / "s")
            digest = run(job)
        finally:
            child.kill()

    source = manifest_of(job.context.store, digest)["sources"][0]
    with (folder / "s").open("rb") as file:
        assert source["sha256"] == "sha256:" + hashlib.sha256(file.read(source["size"])).hexdigest()
    assert source["size"] < (folder / "s").stat().st_size


def _wait_for_growth(path: Path) -> None:
    size = path.stat().st_size
    deadline = time.monotonic() + 10
    while path.stat().st_size == size:
        assert time.monotonic() < deadline, "nobody writes"
