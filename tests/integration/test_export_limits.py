"""What huge input costs: memory, and for how long nothing else in the process gets a turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from export_context import line

TESTS = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow

MEASURED = """
import json, sys, threading, time
from pathlib import Path
from export_context import job_over, run
from autocode.jobs.errors import JobsError, describe

gaps, over = [0.0], threading.Event()

def tick():
    last = time.process_time()  # of this process, so that a busy machine doesn't count
    while not over.is_set():
        time.sleep(0.02)
        now = time.process_time()
        gaps.append(now - last)
        last = now

def memory(name):
    rows = (row.split() for row in open("/proc/self/status"))
    return next(int(row[1]) for row in rows if row[0] == name) / 1024

before = memory("VmRSS:")
ticker = threading.Thread(target=tick)
ticker.start()
began = time.monotonic()
job = job_over(Path(sys.argv[1]), Path(sys.argv[2]))
told = {}
try:
    told["digest"] = run(job)
except JobsError as error:
    told["error"] = describe(error)
told["seconds"] = time.monotonic() - began
over.set()
ticker.join()
print(json.dumps({**told, "gap": max(gaps), "peak": memory("VmHWM:"), "grown": memory("VmHWM:") - before}))
"""


def measured(folder: Path, home: Path) -> dict[str, Any]:
    """Export *folder* in a process of its own and return what that cost."""
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder), str(home)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
    )
    cost: dict[str, Any] = json.loads(done.stdout)
    return cost


def test_a_gigabyte_of_zeros_costs_little(tmp_path: Path) -> None:
    """A sparse file of 1 GiB is refused with little memory, and nobody waits for it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with (folder / "zeros").open("wb") as file:
        file.truncate(1 << 30)

    cost = measured(folder, tmp_path)

    assert cost["error"]["type"] == "no-sessions"
    assert "1 zeros" in cost["error"]["detail"]
    assert cost["peak"] < 300
    assert cost["gap"] < 1.5


def test_a_session_that_ends_in_zeros_is_read(tmp_path: Path) -> None:
    """The zeros that a crashed machine left behind a session are padding, however many they are."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with (folder / "s").open("wb") as file:
        file.write(line())
        file.truncate(1 << 28)

    cost = measured(folder, tmp_path)

    assert "digest" in cost
    assert cost["peak"] < 300
    assert cost["gap"] < 1.5


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("plain text", b"word and more " * 4_300_000),
        ("a lone surrogate", b"\\udcb2" + b"word and more " * 4_300_000),
        ("many lone surrogates", b"a\\udcb2bcdefghijklmnop" * 2_700_000),
        ("line breaks", b"a line of output\\n" * 3_300_000),
        ("invalid UTF-8", b"\xffabcdefghijklmnopqrstuv" * 2_600_000),
        ("many secrets", b"ghp_7kABCDEFGHIJKLMNOPQRSTUVWXYZabcdef0123 and so on " * 20_000),
    ],
)
def test_a_line_of_sixty_megabytes_starves_nobody(name: str, body: bytes, tmp_path: Path) -> None:
    """A thread that renews a lease gets its turn all the while that a huge line is exported."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "s").write_bytes(line() + line("XX").replace(b"XX", body))

    cost = measured(folder, tmp_path)

    assert "digest" in cost, name
    assert cost["gap"] < 1.5, cost


def test_many_sessions_cost_the_memory_of_one(tmp_path: Path) -> None:
    """Memory doesn't grow with the number and size of sessions."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(40):
        text = line("word and more " * 100, sessionId=f"s-{number}")
        (folder / f"{number}").write_bytes(text * (1_000_000 // len(text)))

    cost = measured(folder, tmp_path)

    assert "digest" in cost
    assert cost["grown"] < 60
