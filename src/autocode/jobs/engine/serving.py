"""Which ledger the service of a home works on: said while it runs, and remembered afterwards.

Every process of the service that opens the ledger holds a ``run/serving-….lock`` while it lives, and says in
the JSON file beside it where the ledger is. That file may hold a password: it is its owner's alone (mode
0600, in a folder of mode 0700) and goes with its process, or before the next one starts. What stays is
``served.json`` in the home, without the password.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autocode.jobs import locks
from autocode.jobs.errors import HomeUnusable
from autocode.jobs.settings import Home, write_durably
from autocode.jobs.urls import masked, plain_url

__all__ = ["Served", "held", "memory", "remember", "remembered", "served"]


@dataclass(frozen=True, slots=True)
class Served:
    """What a running service works on.

    Args:
        pid: a process of it.
        url: of its ledger, with the password; ``None`` where that is the home's own.
    """

    pid: int
    url: str | None


def served(home: Home) -> Served | None:
    """Return what the service that runs on *home* works on; ``None`` where none runs. Changes nothing."""
    for lock in sorted(home.run.glob("serving-*.lock")):
        if not locks.is_held(lock):
            continue
        try:
            said = json.loads(lock.with_suffix(".json").read_text("utf-8"))
            return Served(int(said["pid"]), said["url"])
        except FileNotFoundError:
            # it left between our two looks
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HomeUnusable(
                f"{lock.with_suffix('.json')}, where the service says which ledger it uses, can't be read.",
                hint="Start the service again.",
            ) from error
    return None


@contextmanager
def held(home: Home, url: str | None) -> Iterator[None]:
    """Say within the block that this process serves the ledger at *url*, or the home's own. Sweeps what died.

    Call it while ``run/serving.lock`` is held, see :func:`autocode.jobs.engine.databases.serving`.
    """
    for lock in home.run.glob("serving-*.lock"):
        if not locks.is_held(lock):
            _forget(lock)
    # no process id: two containers with one home may have the same
    own = home.run / f"serving-{secrets.token_hex(6)}.lock"
    # before the lock: whoever finds that held finds what it stands for
    write_durably(own.with_suffix(".json"), json.dumps({"pid": os.getpid(), "url": url}).encode())
    try:
        with locks.owned(own, within=2.0):
            yield
    finally:
        _forget(own)


def remember(home: Home, url: str) -> None:
    """Note durably, without its password, that the ledger of *home* was at *url*. Idempotent, atomic."""
    text = masked(plain_url(url))
    if remembered(home) != text:
        write_durably(memory(home), json.dumps({"database": text}).encode())


def remembered(home: Home) -> str | None:
    """Return the database of somebody else's that last held the ledger of *home*, without its password.

    Raises:
        HomeUnusable: the note can't be read.
    """
    try:
        return str(json.loads(memory(home).read_text("utf-8"))["database"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HomeUnusable(
            f"{memory(home)}, which names the database that last held the ledger, can't be read: {error}.",
            hint="Remove it, and name that database in AUTOCODE_DATABASE_URL if there is one.",
        ) from error


def memory(home: Home) -> Path:
    """Return the file of that note."""
    return home.path / "served.json"


def _forget(lock: Path) -> None:
    lock.with_suffix(".json").unlink(missing_ok=True)
    lock.unlink(missing_ok=True)
