"""The part of a backup that is small files of the home: what sessions come from, rules and settings."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

from autocode.jobs.configuration import FILE_NAME
from autocode.jobs.errors import BackupDamaged, UsageError
from autocode.jobs.operations.backup.tar import Reader, Writer, Written
from autocode.jobs.settings import Home
from autocode.jobs.urls import masked

__all__ = ["read_settings", "write_settings"]

_FOLDER: Final = "settings"
_COPIED: Final = ("format", "redaction.toml", "roots.json")
_FILES: Final = (FILE_NAME, *_COPIED)
_LARGEST: Final = 16 << 20
"""Bytes of a file of settings; people write them."""

_DROPPED: Final = frozenset({"token", "prefect_auth", "database_url"})
"""Secrets, and the database: a restored ledger is in the home, and the other one goes on without it."""

_URLS: Final = frozenset({"url", "prefect_api_url"})


def write_settings(writer: Writer, home: Home) -> list[Written]:
    """Write the files that *home* has, and return the members.

    Raises:
        UsageError: ``config.toml`` can't be read.
    """
    members = []
    for name in _FILES:
        try:
            data = (home.path / name).read_bytes()
        except FileNotFoundError:
            continue
        if name == FILE_NAME:
            data = _without_secrets(home.path / name, data)
        members.append(writer.add_bytes(f"{_FOLDER}/{name}", data))
    return members


def read_settings(reader: Reader, into: Path | None) -> list[Written]:
    """Read the files, and write them into the folder *into* where one is given.

    Raises:
        BackupDamaged: a file is none that a backup has, or can't be read.
    """
    members = []
    waiting = list(_FILES)
    while reader.name is not None and reader.name.startswith(f"{_FOLDER}/"):
        name = reader.name.removeprefix(f"{_FOLDER}/")
        if name not in waiting:
            raise BackupDamaged(f"The backup has {reader.name!r}, which belongs to no backup.")
        del waiting[: waiting.index(name) + 1]
        member = reader.take(reader.name)
        if member.size > _LARGEST:
            raise BackupDamaged(
                f"{member.name} in the backup has {member.size} bytes, more than it can have."
            )
        data = b"".join(member.chunks())
        if into is not None:
            path = into / name
            path.touch(mode=0o600)
            path.write_bytes(data)
        members.append(member.seen())
    return members


def _without_secrets(path: Path, data: bytes) -> bytes:
    """Return the settings that another home may have; without comments, since they may hold anything."""
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except ValueError as error:
        raise UsageError(
            f"{path} can't be read: {error}.", hint="Correct it; see docs/settings.md."
        ) from error
    kept = [f"{name} = {_toml(value)}\n" for name, value in table.items() if not _is_secret(name, value)]
    return "".join(kept).encode()


def _is_secret(name: str, value: Any) -> bool:
    # what isn't a plain value is no setting of ours
    if name in _DROPPED or not isinstance(value, str | int | float):
        return True
    return name in _URLS and masked(str(value)) != value


def _toml(value: str | float) -> str:
    # JSON's form of these is TOML's, but for a character that TOML wants escaped
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
