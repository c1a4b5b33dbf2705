"""The folders of a lesson: sessions to export, and homes that share one Prefect server."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from autocode.jobs.errors import UsageError
from autocode.jobs.settings import Home
from autocode.jobs.testing.lessons.tables import Table
from autocode.jobs.testing.samples import SampleFile, write_samples

__all__ = ["Folders"]

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday")
_SEED: Final = 3
_SERVER_FILES: Final = ("server.json", "server.lock", "clients.lock", "start.lock")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,63}")
_TOOLS: Final = ("claude-code", "codex")


class Folders:
    """Everything that a lesson has on disk, below one folder.

    Args:
        root: an empty folder.
        sessions: how many sample sessions to write, 2 to 5.

    Raises:
        UsageError: *sessions* is out of range.
    """

    def __init__(self, root: Path, *, sessions: int = 3) -> None:
        if not 2 <= sessions <= len(_DAYS):
            raise UsageError(f"A lesson has 2 to {len(_DAYS)} sessions, not {sessions}.")
        self.root = root
        self.sessions = root / "sessions"
        self.server = Home(root / "server")
        """The home that the Prefect server belongs to."""
        self.server.prepare()
        (root / "homes").mkdir()
        self._files = _write_sessions(self.sessions, sessions)

    def table(self) -> Table:
        """Return what there is to export: name, tool, records and bytes of each session."""
        return Table.of(
            ("session", "tool", "records", "bytes"),
            [(name, file.tool, file.records, file.size) for name, file in self._files.items()],
        )

    def home(self, name: str) -> Home:
        """Return the home called *name*; it is made if it doesn't exist.

        It has a ledger and a store of its own. Its Prefect server is the lesson's, since the start of a
        server is what costs most: the locks that say where one runs are links to those of :attr:`server`.

        Raises:
            UsageError: *name* can't be the name of a folder.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} can't name a home.", hint="Use letters, digits, '.', ':' and '-'.")
        home = Home(self.root / "homes" / name)
        if not home.exists():
            home.path.mkdir()
            home.prefect.symlink_to(self.server.prefect)
            home.prepare()
            for file in _SERVER_FILES:
                (home.run / file).symlink_to(self.server.run / file)
        return home

    def remove(self, name: str) -> None:
        """Remove the home called *name* and the bundles that it delivered. Idempotent."""
        for folder in (self.root / "homes" / name, self.bundles(name)):
            if folder.exists():
                shutil.rmtree(folder)

    def bundles(self, name: str) -> Path:
        """Return the folder into which the home called *name* delivers its bundles."""
        return self.root / "bundles" / name

    def outputs(self, name: str, number: int) -> tuple[Path, Path]:
        """Return the files for stdout and stderr of the run *number* on the home called *name*."""
        folder = self.root / "outputs" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{number}.out", folder / f"{number}.err"


def _write_sessions(folder: Path, count: int) -> dict[str, SampleFile]:
    """Write *count* sample sessions under names that a person can tell apart."""
    drafts = folder.with_name("drafts")
    samples = write_samples(drafts, seed=_SEED, sessions=count, megabytes=0.1)
    # a subagent's file has no name of its own to be moved to
    main = [file for file in samples.files if file.tool in _TOOLS and "/subagents/" not in file.relative]
    folder.mkdir()
    named = dict(zip(_DAYS, main, strict=False))
    for name, file in named.items():
        (drafts / file.relative).rename(folder / f"{name}.jsonl")
    shutil.rmtree(drafts)
    return named
