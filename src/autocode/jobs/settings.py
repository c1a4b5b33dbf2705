"""Where this program keeps its data, and the folders that it may read sessions from."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from autocode.jobs.errors import DiskFull, HomeUnusable, UsageError

__all__ = [
    "CANCEL_GRACE_SECONDS",
    "ENOUGH_BYTES",
    "LEASE_SECONDS",
    "Home",
    "has_room",
    "rename_durably",
    "sync_folder",
    "write_durably",
]

LEASE_SECONDS: Final = 5.0
"""How long an attempt may go without a renewal before it counts as lost."""

CANCEL_GRACE_SECONDS: Final = 5.0
"""How long an attempt whose job was called off has to end itself."""

ENOUGH_BYTES: Final = 8_000_000
"""With less room than this below the home no attempt begins."""

_FORMAT: Final = 1
"""Version of the home's layout; a home with a higher number is refused."""


@dataclass(frozen=True, slots=True)
class Home:
    """The data folder: ledger, store, the private Prefect server's files, logs.

    Nothing in it is readable by other users of the machine.
    """

    path: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Home:
        """Return the home that ``AUTOCODE_HOME`` names, or the platform's usual data folder."""
        named = environ.get("AUTOCODE_HOME")
        if named:
            return cls(_named_home(named))
        return cls(Path(platformdirs.user_data_dir("autocode-jobs", appauthor=False)))

    @property
    def ledger(self) -> Path:
        """The ledger's SQLite file."""
        return self.path / "ledger.db"

    @property
    def store(self) -> Path:
        """The folder of the content-addressed store."""
        return self.path / "store"

    @property
    def prefect(self) -> Path:
        """``PREFECT_HOME`` of everything that runs for this home."""
        return self.path / "prefect"

    @property
    def run(self) -> Path:
        """Locks and addresses of what runs now."""
        return self.path / "run"

    @property
    def logs(self) -> Path:
        """Log files."""
        return self.path / "logs"

    @property
    def cache(self) -> Path:
        """What saves work and may be deleted at any time; may be missing."""
        return self.path / "cache"

    @property
    def redaction_rules(self) -> Path:
        """The rules file that exports keep to unless another is named; there may be none."""
        return self.path / "redaction.toml"

    def exists(self) -> bool:
        """Say whether the home was ever prepared."""
        return (self.path / "format").exists()

    def prepare(self) -> None:
        """Create the folders that are missing and check that this version may use the home. Idempotent.

        Raises:
            HomeUnusable: the folder is read-only, is no folder, or a newer version wrote it.
            DiskFull: there is no room.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            # before anything is made in it: a home of a newer version is none of our business
            self._check_format()
            for folder in (self.store, self.prefect, self.run, self.logs):
                folder.mkdir(exist_ok=True, mode=0o700)
            probe = self.run / f"probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise _unusable(self.path, error) from error

    def roots(self) -> dict[str, Path]:
        """Return the folders known by name that sessions may be read from."""
        try:
            named = json.loads((self.path / "roots.json").read_text("utf-8"))
            if not isinstance(named, dict) or not all(isinstance(path, str) for path in named.values()):
                raise ValueError("it isn't an object of names and folders")  # noqa: TRY301 - told as any other damage
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise HomeUnusable(
                f"{self.path / 'roots.json'} can't be read: {error}.",
                hint="Move the file away; it is written anew when a folder is next exported.",
            ) from error
        return {name: Path(folder) for name, folder in named.items()}

    def add_root(self, folder: Path) -> str:
        """Make *folder* known by a name and return the name. Idempotent, atomic.

        Raises:
            HomeUnusable: the home can't be written.
            DiskFull: there is no room.
        """
        folder = folder.absolute()
        try:
            with _locked(self.run / "roots.lock"):
                known = self.roots()
                for name, path in known.items():
                    if path == folder:
                        return name
                digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
                name = f"local-{digest}"
                known[name] = folder
                named = {key: str(path) for key, path in sorted(known.items())}
                write_durably(self.path / "roots.json", json.dumps(named, indent=1).encode())
                return name
        except OSError as error:
            raise _unusable(self.path, error) from error

    def root(self, name: str) -> Path:
        """Return the folder of a root.

        Raises:
            UsageError: no root has this name.
        """
        known = self.roots()
        if name not in known:
            raise UsageError(
                f"No root is called {name!r}.",
                hint="Known roots: " + (", ".join(sorted(known)) or "none") + ".",
            )
        return known[name]

    def _check_format(self) -> None:
        file = self.path / "format"
        if not file.exists():
            write_durably(file, f"{_FORMAT}\n".encode())
            return
        text = file.read_text("ascii", errors="replace").strip()
        if not text.isdecimal() or int(text) > _FORMAT:
            raise HomeUnusable(
                f"{self.path} has format {text[:20]!r}, and this version knows {_FORMAT} at most.",
                hint="Upgrade autocode-jobs, or point AUTOCODE_HOME at another folder.",
            )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # two commands that add a root at once would each write a list without the other's
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _named_home(named: str) -> Path:
    try:
        named.encode("utf-8")
        return Path(named).expanduser().absolute()
    except (UnicodeEncodeError, RuntimeError, FileNotFoundError) as error:
        raise UsageError(
            f"AUTOCODE_HOME={os.fsencode(named).decode('utf-8', 'backslashreplace')} names no folder.",
            hint="Set it to an absolute path in plain text.",
        ) from error


def write_durably(path: Path, data: bytes) -> None:
    """Replace the file at *path* by *data*: after a crash it holds the old bytes or the new. Atomic."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        rename_durably(Path(name), path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def rename_durably(new: Path, path: Path) -> None:
    """Put the file *new* in the place of *path*, in the same folder, with all its bytes on disk. Atomic."""
    _sync(new)
    new.replace(path)
    sync_folder(path.parent)


def has_room(path: Path) -> bool:
    """Say whether the file system of *path* has room for what a process must write before it can begin."""
    try:
        return shutil.disk_usage(path).free >= ENOUGH_BYTES
    except OSError:
        # what is wrong with it, whoever writes there is told
        return True


def sync_folder(folder: Path) -> None:
    """Make the names in *folder* durable, such as that of a file that was renamed."""
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: OSError) -> HomeUnusable | DiskFull:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull(f"{path} has no room left.")
    return HomeUnusable(f"{path} can't be used: {error.strerror or error}.")
