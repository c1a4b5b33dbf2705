"""Scans a folder over and over, each time killed by SIGKILL at the next line of the cache's code.

``scan_kill_driver.py FOLDER`` does it in ``FOLDER/<case>-<n>`` for n = 0, 1, 2, …: without a cache, and with
one in which one of two files is out of date. After each kill the folder is scanned twice more. It prints a
JSON list of objects, the last of each case being that of the first child that got through.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from autocode.jobs.operations.export import seen, seen_file
from autocode.jobs.operations.export.payload import ScanResult, Source
from autocode.jobs.operations.export.scan import scan_files
from autocode.jobs.operations.export.seen import Moment, Seen, clock_of
from opened_files import opened_in

CODE = {seen.__file__, seen_file.__file__}


def later(folder: Path) -> Moment:
    """Return the time in some minutes, when all that was written has settled."""
    now = clock_of(folder)
    return Moment(now.device, now.ns + 200_000_000_000)


def scan(root: Path, cache: Path | None) -> ScanResult:
    """Scan *root* with the cache."""
    with Seen(cache, clock=later) as memory:
        return scan_files(lambda _: root, (Source(root="x"),), lambda _: None, memory)


def arm(kill_at: int) -> None:
    """Make the *kill_at*-th line of the cache's code, in any thread, this process's last."""
    passed = iter(range(10_000_000))

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename not in CODE:
            return None
        if event == "line" and next(passed) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)


def attempt(case: str, folder: Path, kill_at: int) -> dict[str, Any]:
    """Scan in a child that dies at its *kill_at*-th line; say what scans after it find and open."""
    root, cache = folder / "root", folder / "cache"
    root.mkdir(parents=True)
    for name in ("a", "b"):
        (root / name).write_bytes(name.encode() * 100)
    if case == "known":
        scan(root, cache)
        (root / "b").write_bytes(b"another")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            arm(kill_at)
            scan(root, cache)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    truth = scan(root, None)
    first = scan(root, cache)
    with opened_in(root) as names:
        second = scan(root, cache)
    is_right = first == second == truth
    return {"case": case, "status": status, "is_right": is_right, "opened": sorted(names)}


def main(folder: Path) -> None:
    """Kill at every line, and print what came of it."""
    told: list[dict[str, Any]] = []
    for case in ("new", "known"):
        for number in range(10_000):
            told.append(attempt(case, folder / f"{case}-{number}", number))
            if told[-1]["status"] == 0:
                break
    print(json.dumps(told))  # noqa: T201 - the answer to the test that runs this


if __name__ == "__main__":
    main(Path(sys.argv[1]))
