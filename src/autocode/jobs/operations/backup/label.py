"""What a backup says of itself: the label in front, and the manifest at its end."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from autocode.jobs.ledger.portable import Form

__all__ = [
    "FORMAT",
    "INDEX",
    "LABEL",
    "LEFT_OUT",
    "MANIFEST",
    "PARTS",
    "Label",
    "LedgerLabel",
    "Listed",
    "Manifest",
    "Missing",
    "StoreTotals",
    "TableLabel",
]

FORMAT: Final = 1
"""Version of the layout; a backup with a higher number is refused."""

LABEL: Final = "backup.json"
MANIFEST: Final = "manifest.json"
INDEX: Final = "store/objects.jsonl"

PARTS: Final = ("ledger", "settings", "store")
"""What a backup is made of, in order. Each part has a module, and members below its name."""

LEFT_OUT: Final = ("the Prefect database", "passwords and tokens of config.toml", "logs")
"""What people may look for in a backup in vain."""

_Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
_Name = Annotated[str, Field(pattern=r"^[a-z_]{1,64}$")]
_Number = Annotated[int, Field(ge=0)]


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TableLabel(_Told):
    """A table of the ledger.

    Args:
        name: its name.
        columns: how each of them is written.
    """

    name: _Name
    columns: dict[_Name, Form]


class LedgerLabel(_Told):
    """The ledger in a backup.

    Args:
        revision: the newest migration that it had.
        epoch: its name.
        tables: in the order of the members, in which their rows can be inserted.
    """

    revision: Annotated[str, Field(pattern=r"^[0-9]{4}$")]
    epoch: str
    tables: list[TableLabel]


class Label(_Told):
    """The first member: what is needed to read the others, and to refuse them at once.

    Args:
        format: :data:`FORMAT` of the program that wrote it.
        program: that program's version.
        created_at: when the ledger was as it is in here; RFC 3339.
        parts: see :data:`PARTS`.
        ledger: the ledger.
    """

    format: int
    program: str
    created_at: str
    parts: list[str]
    ledger: LedgerLabel


class Listed(_Told):
    """A member that isn't an object."""

    name: str
    size: _Number
    sha256: _Digest


class Missing(_Told):
    """An object that the ledger needs and the store didn't have."""

    digest: _Digest
    reason: str
    jobs: list[str]


class StoreTotals(_Told):
    """The objects, which are listed in a member of their own.

    Args:
        objects: how many.
        bytes: of what is stored.
        missing: what should be there and isn't.
    """

    objects: _Number
    bytes: _Number
    missing: list[Missing]


class Manifest(_Told):
    """The last member: without it a backup was cut off.

    Args:
        format: as in the label.
        members: every member before it but the objects, in order.
        rows: of each table.
        store: what there is of objects.
    """

    format: int
    members: list[Listed]
    rows: dict[_Name, _Number]
    store: StoreTotals
