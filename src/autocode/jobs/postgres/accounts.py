"""Who runs a child process, and what that account can reach.

PostgreSQL refuses to run as root, so a root process (a container, a CI machine) starts it as somebody else.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autocode.jobs.errors import HomeUnusable, UsageError

__all__ = ["Account", "can_reach", "give", "owner_of", "unprivileged"]

_CANDIDATES: Final = ("autocode", "postgres", "nobody")
"""Most dedicated first: other services run as ``nobody`` too and could signal or trace our process."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of this machine.

    Args:
        name: the login name.
        uid: the user's number.
        gid: the number of the user's own group.
        drop: whether a child must change to it, since this process is root.
    """

    name: str
    uid: int
    gid: int
    drop: bool

    def popen_options(self) -> dict[str, Any]:
        """Return ``subprocess.Popen`` options that run a child as this account, without our groups."""
        options: dict[str, Any] = {"cwd": "/", "start_new_session": True}
        if self.drop:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return options


def unprivileged() -> Account:
    """Return the account for a child that must not be root: our own, or a substitute when we are root.

    Raises:
        UsageError: this process is root and the machine has none of the accounts that could take over.
    """
    if os.geteuid() != 0:
        return Account(str(os.geteuid()), os.geteuid(), os.getegid(), drop=False)
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, drop=True)
    raise UsageError(
        "PostgreSQL doesn't run as root, and this machine has no account to run it as.",
        hint=f"Create one of the accounts {', '.join(_CANDIDATES)}, or run this as an ordinary user.",
    )


def owner_of(folder: Path) -> Account:
    """Return the account that *folder* belongs to, for a child that works on it.

    Raises:
        HomeUnusable: it isn't ours and we can't act for its owner, or it is root's.
    """
    facts = folder.stat()
    own = os.geteuid()
    if facts.st_uid == 0 or own not in {0, facts.st_uid}:
        raise HomeUnusable(
            f"{folder} belongs to user {facts.st_uid}, and this is user {own}.",
            hint="Run this as the user that made it.",
        )
    try:
        name = pwd.getpwuid(facts.st_uid).pw_name
    except KeyError:
        name = str(facts.st_uid)
    return Account(name, facts.st_uid, facts.st_gid, drop=own == 0)


def can_reach(path: Path, account: Account) -> bool:
    """Say whether *account* may read and search *path* and search every folder above it.

    Only permission bits count, not ACLs: a wrong no costs a copy, and a wrong yes shows as an error.
    """
    path = path.resolve()
    if not _allows(path, account, stat.S_IROTH | stat.S_IXOTH):
        return False
    return all(_allows(parent, account, stat.S_IXOTH) for parent in path.parents)


def give(tree: Path, account: Account, *, deep: bool = True) -> None:
    """Make *account* the owner of *tree* and of all that is in it; does nothing unless we are root.

    Args:
        tree: a folder or a file.
        account: the new owner.
        deep: whether what is in the folder goes with it.
    """
    if not account.drop:
        return
    os.chown(tree, account.uid, account.gid, follow_symlinks=False)
    if not deep:
        return
    for folder, _, names in os.walk(tree):
        for path in (folder, *(os.path.join(folder, name) for name in names)):  # noqa: PTH118 - walk gives strings
            os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _allows(path: Path, account: Account, bits: int) -> bool:
    try:
        facts = path.stat()
    except OSError:
        return False
    if facts.st_uid == account.uid:
        bits <<= 6
    elif facts.st_gid == account.gid:
        bits <<= 3
    return facts.st_mode & bits == bits
