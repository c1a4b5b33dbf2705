"""Where the PostgreSQL of a home keeps its data and its socket, noted in the home so that it is found again.

Normally that is ``home/postgres/cluster``. PostgreSQL refuses to run as root, and the account that runs it
for root can't enter a folder of root's: then the data lie in a folder of that account's own, below
:data:`_BASE`. The socket moves out where its path would be too long.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import stat
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from autocode.jobs.errors import HomeUnusable, LedgerUnavailable
from autocode.jobs.postgres import binaries
from autocode.jobs.postgres.accounts import Account, can_reach, give, owner_of, unprivileged
from autocode.jobs.postgres.cluster import SOCKET_PATH_LIMIT, Cluster, connection_url
from autocode.jobs.postgres.processes import signalled_with_parent
from autocode.jobs.settings import Home, sync_folder, write_durably

__all__ = [
    "DATABASE",
    "PREFECT_DATABASE",
    "Place",
    "base_folder",
    "cluster_of",
    "folder_of",
    "server_log",
    "url_of",
]

DATABASE: Final = "autocode"
"""The ledger's database."""

PREFECT_DATABASE: Final = "prefect"
"""The database of the home's Prefect server."""

_BASE: Final = Path("/var/lib/autocode-jobs")
"""Where root's homes have their data, unless ``AUTOCODE_POSTGRES_FOLDER`` names another folder."""

_SETTINGS: Final = (
    ("max_connections", "200"),
    # a statement whose client is gone ends, and so do its locks
    ("client_connection_check_interval", "1s"),
    # after a crash every file is made durable before anything else: one call on Linux, instead of one a file
    *((("recovery_init_sync_method", "syncfs"),) if sys.platform == "linux" else ()),
    ("log_checkpoints", "off"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """The note in the home.

    Args:
        name: the server's, unlike that of any other home's.
        folder: absolute, of data and programs; ``None`` where that is the home's own.
        socket: absolute, of the socket; ``None`` where it is in the folder.
        made: whether the data folder was ever complete, so that its absence is a loss and no beginning.
    """

    name: str
    folder: str | None = None
    socket: str | None = None
    made: bool = False

    def folder_in(self, home: Home) -> Path:
        """Return the folder of data and programs."""
        return Path(self.folder) if self.folder is not None else home.path / "postgres" / "cluster"

    def socket_in(self, home: Home) -> Path:
        """Return the folder of the socket."""
        return Path(self.socket) if self.socket is not None else self.folder_in(home)


def base_folder() -> Path:
    """Return the folder below which the data of root's new homes go."""
    named = os.environ.get("AUTOCODE_POSTGRES_FOLDER")
    return Path(named).expanduser().absolute() if named else _BASE


def folder_of(home: Home) -> Path | None:
    """Return the folder of the home's data and programs, or ``None`` before the first start.

    Raises:
        LedgerUnavailable: the note in the home is damaged.
    """
    place = _noted(home)
    return None if place is None else place.folder_in(home)


def server_log(home: Home) -> Path:
    """Return the file with what the home's PostgreSQL and its keeper have to say."""
    return home.logs / "postgres.log"


def url_of(home: Home, database: str = DATABASE, *, driver: str = "psycopg") -> str | None:
    """Return the SQLAlchemy URL of a database of the home, or ``None`` before the first start."""
    place = _noted(home)
    try:
        password = _password_file(home).read_text("ascii")
    except FileNotFoundError:
        return None
    if place is None:
        return None
    return connection_url(place.socket_in(home), password, database, driver=driver)


def cluster_of(home: Home) -> Cluster:
    """Return the home's cluster, whose data folder is made if it isn't there yet. Idempotent.

    Killed at any line, the next call completes it. Only for who holds the lock of the home's keeper.

    Raises:
        HomeUnusable: the data were there once and are gone, or belong to another account.
        LedgerUnavailable: ``initdb`` failed.
        UsageError: the wheel isn't installed, or we are root and there is no account to drop to.
    """
    place = _noted(home)
    if place is None:
        place = _new_place(home, unprivileged())
        _note(home, place)
    folder = place.folder_in(home)
    data = folder / "data"
    if place.made and not data.is_dir():
        raise HomeUnusable(
            f"{data}, where the PostgreSQL of {home.path} kept the ledger, is gone.",
            hint=f"Put a backup of it in its place; or move {home.path} away to begin anew.",
        )
    account = owner_of(data) if data.is_dir() else unprivileged()
    _prepare(home, folder, account)
    place = _with_socket(home, place, account)
    cluster = Cluster(
        binaries=binaries.reachable(account, folder),
        account=account,
        data=data,
        socket=place.socket_in(home),
        log=server_log(home),
        password=_password(home),
        name=place.name,
        settings=_SETTINGS,
    )
    if not data.is_dir():
        cluster.initialise(in_child=signalled_with_parent(signal.SIGKILL))
    if not place.made:
        _note(home, replace(place, made=True))
    return cluster


def _prepare(home: Home, folder: Path, account: Account) -> None:
    if not folder.exists():
        folder.mkdir(mode=0o700)
        (folder / "home").write_text(f"{home.path}\n", "utf-8", "surrogateescape")
        sync_folder(folder.parent)
    give(folder, account, deep=False)


def _new_place(home: Home, account: Account) -> Place:
    own = home.path / "postgres"
    own.mkdir(exist_ok=True)
    # whoever runs PostgreSQL may pass, where the home lets it; the password's file is closed by itself
    own.chmod(0o711)
    name = f"autocode-{secrets.token_hex(6)}"
    if not account.drop or can_reach(home.path, account):
        return Place(name)
    base = base_folder()
    try:
        base.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise _no_place(base, account, str(error.strerror)) from error
    facts = base.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _no_place(base, account, "others may write there")
    if not can_reach(base, account):
        raise _no_place(base, account, f"the account {account.name} can't enter it")
    return Place(name, folder=str(base / name))


def _no_place(base: Path, account: Account, why: str) -> HomeUnusable:
    return HomeUnusable(
        f"PostgreSQL refuses to run as root, and as {account.name} it can't use {base}: {why}.",
        hint="Set AUTOCODE_POSTGRES_FOLDER to a folder of root's that everybody may enter; "
        "or run this as an ordinary user.",
    )


def _with_socket(home: Home, place: Place, account: Account) -> Place:
    """Return *place* with a socket folder that exists, is short enough and is the account's alone."""
    if place.socket is None and _fits(place.folder_in(home)):
        return place
    if place.socket is not None and _fits(Path(place.socket)) and _closed_folder(Path(place.socket), account):
        return place
    # not XDG_RUNTIME_DIR, which goes when its user logs out, though a service may stay
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - last resorts
        if not _fits(Path(base) / f"{place.name}-12345678") or not can_reach(Path(base), account):
            continue
        # a name that nobody can guess and take first
        made = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=base))
        give(made, account, deep=False)
        moved = replace(place, socket=str(made))
        _note(home, moved)
        return moved
    raise HomeUnusable(
        f"The path of {home.path} is too long for a socket, and no temporary folder is short enough.",
        hint="Set TMPDIR to a folder with a short path that everybody may enter.",
    )


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / ".s.PGSQL.65535.lock")) <= SOCKET_PATH_LIMIT


def _closed_folder(folder: Path, account: Account) -> bool:
    """Say whether *folder*, made again if somebody's sweep of old files took it, is the account's alone."""
    try:
        folder.mkdir(mode=0o700)
        give(folder, account, deep=False)
    except FileExistsError:
        pass
    except OSError:
        return False
    facts = folder.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == account.uid and not facts.st_mode & 0o077


def _note_file(home: Home) -> Path:
    return home.path / "postgres" / "place.json"


def _password_file(home: Home) -> Path:
    return home.path / "postgres" / "password"


def _noted(home: Home) -> Place | None:
    try:
        return Place(**json.loads(_note_file(home).read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise LedgerUnavailable(
            f"{_note_file(home)} is damaged: {error}.", hint="Restore the file from a backup of the home."
        ) from error


def _note(home: Home, place: Place) -> None:
    write_durably(_note_file(home), json.dumps(asdict(place)).encode())


def _password(home: Home) -> str:
    """Return the one user's password, made at the first call; its file is for the home's owner alone."""
    file = _password_file(home)
    if not file.exists():
        write_durably(file, secrets.token_hex(24).encode())
    return file.read_text("ascii")
