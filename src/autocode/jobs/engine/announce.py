"""How a part of the service says that it runs: a lock that it holds, and a record that it is ready."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from autocode.jobs import locks
from autocode.jobs.clock import SystemClock, rfc3339
from autocode.jobs.settings import Home, write_durably

__all__ = ["announced", "lives", "slots"]

_PATIENCE_SECONDS: Final = 0.2


@contextmanager
def announced(home: Home, part: str, name: str | None = None) -> Iterator[Callable[[], None]]:
    """Hold ``run/<part>.lock`` for the length of the block; give what to call once the part is ready.

    That writes ``run/<part>.json`` (``pid``, ``at``), which counts only while the lock is held. The second of
    a kind gets a name of its own: ``<part>-<name>``, or its process id for a name.

    Raises:
        TimeoutError: another process of this very name runs.
    """
    with contextlib.ExitStack() as stack:
        label = part if name is None else f"{part}-{name}"
        try:
            stack.enter_context(locks.owned(home.run / f"{label}.lock", within=_PATIENCE_SECONDS))
        except TimeoutError:
            if name is not None:
                raise
            label = f"{part}-{os.getpid()}"
            stack.enter_context(locks.owned(home.run / f"{label}.lock", within=_PATIENCE_SECONDS))
            stack.callback((home.run / f"{label}.lock").unlink, missing_ok=True)
        record = home.run / f"{label}.json"
        record.unlink(missing_ok=True)
        stack.callback(record.unlink, missing_ok=True)
        yield lambda: _write(record)


def lives(home: Home, part: str) -> bool:
    """Say whether a process of this part, whatever its name, lives on this machine."""
    first = home.run / f"{part}.lock"
    return locks.is_held(first) or any(locks.is_held(each) for each in home.run.glob(f"{part}-*.lock"))


def slots(home: Home) -> dict[str, int]:
    """Return how many runs at once each worker takes that lives on this machine, by its name.

    A worker that isn't ready yet takes none, and isn't here.
    """
    found: dict[str, int] = {}
    for lock in (home.run / "worker.lock", *home.run.glob("worker-*.lock")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if locks.is_held(lock):
                found[lock.stem] = int(json.loads(lock.with_suffix(".json").read_text("utf-8"))["slots"])
    return found


def _write(record: Path) -> None:
    said = {"pid": os.getpid(), "at": rfc3339(SystemClock().now())}
    write_durably(record, json.dumps(said).encode())
