"""The store under SIGKILL, at every call into the system, and beside others that use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autocode.jobs.store import LocalStore, put_bytes, verify_store

PUT = """
import sys
from pathlib import Path
from autocode.jobs import crash
from autocode.jobs.store import LocalStore, put_chunks
crash.arm(sys.argv[2] or None, tokens=None)
print(put_chunks(LocalStore(Path(sys.argv[1])), [bytes([n]) * 700_000 for n in range(4)]).digest)
"""

RACE = """
import sys
from pathlib import Path
from autocode.jobs.store import LocalStore, put_bytes
store = LocalStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for n in range(60):
    put_bytes(store, str(n).encode() * 10_000)
print("done", flush=True)
"""

MEMORY = """
import resource, sys
from pathlib import Path
from autocode.jobs.store import LocalStore, put_bytes, put_chunks
store = LocalStore(Path(sys.argv[1]))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
put_bytes(store, b"warm"); [store.verify(digest) for digest in store.list()]
mib = bytes(1 << 20)
before = peak()
info = put_chunks(store, (mib for _ in range(400)))
store.verify(info.digest)
print(info.size, peak() - before)
"""


def temp_files(store: LocalStore) -> list[Path]:
    """Return the temp files in the store."""
    return list((store.root / "objects" / "sha256" / "tmp").glob("*"))


@pytest.mark.parametrize(
    ("scenario", "calls"),
    [
        (
            "put-into-nothing",
            {"open", "close", "write", "fchmod", "fsync", "link", "unlink", "mkdir", "flock"},
        ),
        (
            "put-into-a-store",
            {"open", "close", "write", "fchmod", "fsync", "link", "unlink", "mkdir", "flock"},
        ),
        ("put-again", {"open", "close", "write", "fchmod", "fsync", "link", "unlink", "flock"}),
        ("put-over-damage", {"open", "write", "fsync", "link", "unlink", "mkdir", "rename", "flock"}),
        ("read-damage", {"open", "close", "write", "fsync", "mkdir", "rename", "flock"}),
        ("delete", {"open", "close", "fsync", "unlink", "flock"}),
    ],
)
def test_a_kill_at_any_call_leaves_a_sound_store(scenario: str, calls: set[str], tmp_path: Path) -> None:
    """Wherever an operation is killed: no partial object, no lost evidence, and a second go succeeds."""
    driver = Path(__file__).with_name("store_kill_driver.py")

    run = subprocess.run(
        [sys.executable, driver, scenario, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    died: list[str | None] = json.loads(run.stdout)
    assert calls <= set(died), "the driver skipped a call that matters"
    assert died[-1] is None
    reference = LocalStore(tmp_path / "reference")
    (digest,) = reference.list()
    content = reference.open(digest).read_all(limit=1 << 20)
    sound = reference.path_of(digest).read_bytes()
    damaged = sound[:1000] if "damage" in scenario else None
    for number in range(len(died)):
        store = LocalStore(tmp_path / str(number) / "store")
        path = store.path_of(digest)
        in_place = path.read_bytes() if path.exists() else None
        kept = [item.read_bytes() for item in store.quarantine.glob("*") if item.suffix != ".json"]
        assert in_place in {None, sound, damaged}, died[number]
        if damaged is not None:
            assert [in_place, *kept].count(damaged) == 1, died[number]
        elif scenario == "put-again":
            assert in_place == sound, died[number]

        put_bytes(store, content)
        store.sweep_temp()

        assert path.read_bytes() == sound
        assert verify_store(store).ok
        assert temp_files(store) == []


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python program that may use the package."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_writer_killed_at_the_crash_point_leaves_an_orphan_to_sweep(tmp_path: Path) -> None:
    """``step.mid-write`` kills with bytes on disk and nothing visible; a rerun succeeds, a sweep cleans."""
    store = LocalStore(tmp_path)

    with start(PUT, str(tmp_path), "step.mid-write:2=kill") as killed:
        killed.communicate()
    (orphan,) = temp_files(store)
    size = orphan.stat().st_size
    with start(PUT, str(tmp_path), "") as rerun:
        digest = rerun.communicate()[0].strip()

    assert killed.returncode == -signal.SIGKILL
    assert size > 0
    assert list(store.list()) == [digest]
    assert verify_store(store).ok
    assert store.sweep_temp() == 1
    assert temp_files(store) == []


def test_a_writer_that_is_stopped_keeps_its_temp_file(tmp_path: Path) -> None:
    """A sweep beside a writer that stands still takes nothing from it; it goes on and finishes."""
    store = LocalStore(tmp_path)

    with start(PUT, str(tmp_path), "step.mid-write=pause") as writer:
        _, status = os.waitpid(writer.pid, os.WUNTRACED)
        swept = store.sweep_temp()
        writer.send_signal(signal.SIGCONT)
        digest = writer.communicate()[0].strip()

    assert os.WIFSTOPPED(status)
    assert swept == 0
    assert list(store.list()) == [digest]
    assert verify_store(store).ok


def test_writers_of_the_same_objects_and_a_sweep_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Four processes put the same sixty objects while temps are swept: all succeed, sixty are there."""
    store = LocalStore(tmp_path)
    writers = [start(RACE, str(tmp_path)) for _ in range(4)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()

    swept = 0
    while any(writer.poll() is None for writer in writers):
        swept += store.sweep_temp()
    said = [writer.communicate()[0] for writer in writers]

    assert said == ["done\n"] * 4
    assert [writer.returncode for writer in writers] == [0] * 4
    assert len(list(store.list())) == 60
    assert verify_store(store).ok
    assert temp_files(store) == []
    assert not store.quarantine.exists()


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """Writing and verifying 400 MiB takes less than 24 MiB more than an object of four bytes."""
    with start(MEMORY, str(tmp_path)) as program:
        size, growth = (int(word) for word in program.communicate()[0].split())

    assert size == 400 << 20
    assert growth < 24 << 20


def test_zstd_and_sha256sum_are_all_that_a_reader_needs(tmp_path: Path) -> None:
    """``zstd -dc FILE | sha256sum`` prints the file's name; ``zstd -t`` finds the file sound."""
    store = LocalStore(tmp_path)
    path = store.path_of(put_bytes(store, os.urandom(300_000)).digest)

    proof = subprocess.run(
        ["sh", "-c", 'zstd -dc "$1" | sha256sum', "sh", path], capture_output=True, text=True, check=True
    )
    subprocess.run(["zstd", "-qt", path], check=True)

    assert proof.stdout.split()[0] == path.name
