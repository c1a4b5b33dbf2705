"""Runs one store operation over and over, each time killed by SIGKILL at the next system call.

``store_kill_driver.py SCENARIO FOLDER`` prepares a store in ``FOLDER/<n>`` for n = 0, 1, 2, …, forks a child
that does the operation there and kills itself at its n-th call into the system, and stops after the first
child that got through. A sound object stands in ``FOLDER/reference``. It prints one JSON list: for each
store, the call the child died at, or null.

A call to ``write`` is torn: half of its bytes are written before the kill. Every other call is killed
before it happens, which for the call before it is the moment after.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autocode.jobs.canonical import digest_of
from autocode.jobs.errors import ObjectCorrupt
from autocode.jobs.store import LocalStore, put_bytes, put_chunks

CHUNKS = [b"a header\n", random.Random(0).randbytes(150_000), random.Random(1).randbytes(150_000)]
CONTENT = b"".join(CHUNKS)
DIGEST = digest_of(CONTENT)
CALLS = ["open", "close", "write", "fchmod", "fsync", "link", "unlink", "mkdir", "rename"]


def damage(store: LocalStore) -> None:
    """Put the object and cut it."""
    put_bytes(store, CONTENT)
    path = store.path_of(DIGEST)
    path.chmod(0o600)
    os.truncate(path, 1000)


def read_damaged(store: LocalStore) -> None:
    """Read the object and expect its damage to be told."""
    try:
        store.verify(DIGEST)
    except ObjectCorrupt:
        return
    raise AssertionError("the damage was not seen")


SCENARIOS: dict[str, tuple[Callable[[LocalStore], object], Callable[[LocalStore], object]]] = {
    "put-into-nothing": (lambda store: store, lambda store: put_chunks(store, CHUNKS)),
    "put-into-a-store": (lambda store: put_bytes(store, b"x"), lambda store: put_chunks(store, CHUNKS)),
    "put-again": (lambda store: put_bytes(store, CONTENT), lambda store: put_chunks(store, CHUNKS)),
    "put-over-damage": (damage, lambda store: put_chunks(store, CHUNKS)),
    "read-damage": (damage, read_damaged),
    "delete": (lambda store: put_bytes(store, CONTENT), lambda store: store.delete(DIGEST)),
}


def arm(kill_at: int, witness: Path) -> None:
    """Make the *kill_at*-th call of this process its last; its name is left in *witness*."""
    passed = 0

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal passed
            if passed == kill_at:
                passed += 1
                witness.write_text(name)
                if name == "write":
                    real(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            passed += 1
            return real(*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, wrap(name, getattr(os, name)))
    fcntl.flock = wrap("flock", fcntl.flock)


def attempt(scenario: str, folder: Path, kill_at: int) -> str | None:
    """Do the scenario in *folder* in a child; return the call that it died at, ``None`` if it got through."""
    prepare, act = SCENARIOS[scenario]
    store = LocalStore(folder / "store")
    prepare(store)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            arm(kill_at, folder / "died-at")
            act(LocalStore(store.root))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return (folder / "died-at").read_text()
    if os.WEXITSTATUS(status):
        raise RuntimeError(f"the child failed at {kill_at}")
    return None


def main(scenario: str, folder: Path) -> None:
    """Kill the scenario at every call and print where."""
    put_bytes(LocalStore(folder / "reference"), CONTENT)
    died: list[str | None] = []
    while not died or died[-1] is not None:
        here = folder / str(len(died))
        here.mkdir()
        died.append(attempt(scenario, here, len(died)))
    print(json.dumps(died))  # noqa: T201 - the answer to the test that runs this


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
