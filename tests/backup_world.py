"""Homes worth a backup, and archives that are taken apart and put together again."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from autocode.jobs.ledger import checkpoints
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.checkpoints import Produced
from autocode.jobs.ledger.database import Database
from autocode.jobs.store import LocalStore, put_bytes
from ledger_world import memo_key

Members = dict[str, bytes]
"""The members of an archive by name, in order."""


def make_step(db: Database, store: LocalStore, attempt: Attempt, data: bytes, *, label: str) -> str:
    """Commit a step that produced *data*, and return the object's digest."""
    info = put_bytes(store, data)
    checkpoints.reserve(db, attempt, info.digest, info.size)
    produced = Produced(info.digest, info.size, "text/plain", ())
    checkpoints.commit_step(db, attempt, memo_key(inputs=label), produced, label=label, reused=False)
    return info.digest


def members_of(file: Path) -> Members:
    """Read a whole archive."""
    with tarfile.open(file) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]


def pack(members: Members, file: Path) -> None:
    """Write an archive, whose manifest is left as it is."""
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, BytesIO(data))


def changed_json(data: bytes, change: Callable[[Any], None]) -> bytes:
    """Return a JSON document with a change made to its value."""
    value = json.loads(data)
    change(value)
    return json.dumps(value).encode()


def relisted(members: Members) -> Members:
    """Return the members with a manifest that lists them as they are, as who knows the format could."""

    def relist(manifest: Any) -> None:
        for listed in manifest["members"]:
            data = members[listed["name"]]
            listed.update(size=len(data), sha256=f"sha256:{hashlib.sha256(data).hexdigest()}")

    return {**members, "manifest.json": changed_json(members["manifest.json"], relist)}
