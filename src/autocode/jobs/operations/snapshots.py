"""A snapshot: uploaded files by path, digest and size under one digest, which an export can name."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from autocode.jobs.canonical import canonical_json, digest_of, is_digest
from autocode.jobs.errors import UsageError
from autocode.jobs.operations.paths import clash, source_path
from autocode.jobs.store import ObjectStore

__all__ = [
    "MOST_MEMBERS",
    "SNAPSHOT_FORMAT",
    "Digest",
    "MemberPath",
    "Snapshot",
    "SnapshotMember",
    "SnapshotResource",
    "load_snapshot",
    "parse_snapshot",
]

SNAPSHOT_FORMAT: Final = "autocode-snapshot/1"

MOST_MEMBERS: Final = 20_000
"""Files in one snapshot; an export takes several snapshots."""

_LARGEST: Final = 256 << 20


def _digest(text: str) -> str:
    if not is_digest(text):
        raise ValueError("is no digest: sha256: and 64 hex digits")
    return text


Digest = Annotated[str, AfterValidator(_digest)]
MemberPath = Annotated[str, AfterValidator(source_path)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SnapshotMember(_Frozen):
    """A file; its bytes are the object of this digest."""

    path: MemberPath
    digest: Digest
    size: int = Field(ge=0)


class Snapshot(_Frozen):
    """The document whose canonical JSON is the object, and whose digest is the snapshot's name."""

    format: Literal["autocode-snapshot/1"] = SNAPSHOT_FORMAT
    members: list[SnapshotMember] = Field(min_length=1, max_length=MOST_MEMBERS)

    def to_bytes(self) -> bytes:
        """Return the canonical JSON; the order in which the members were given doesn't matter."""
        value = self.model_dump(mode="json")
        value["members"].sort(key=lambda member: member["path"])
        return canonical_json(value)

    @property
    def digest(self) -> str:
        """The snapshot's name."""
        return digest_of(self.to_bytes())


class SnapshotResource(_Frozen):
    """A snapshot as the HTTP interface shows it; ``members`` is empty in the answer to the naming."""

    digest: str
    session_id: str | None
    created_at: str
    files: int
    bytes: int
    members: tuple[SnapshotMember, ...] = ()
    links: dict[Literal["self"], str]

    def to_json(self) -> dict[str, Any]:
        """Return the resource as JSON values."""
        return self.model_dump(mode="json")


def load_snapshot(store: ObjectStore, digest: str) -> Snapshot:
    """Return the snapshot *digest*, verified and checked.

    Raises:
        ObjectMissing: there is no such object.
        ObjectCorrupt: it is damaged; it is in quarantine.
        UsageError: it is no snapshot, or one that this version doesn't know.
    """
    return parse_snapshot(store.open(digest).read_all(limit=_LARGEST), digest)


def parse_snapshot(data: bytes, digest: str) -> Snapshot:
    """Return the snapshot whose object has the bytes *data*; raises as :func:`load_snapshot`."""
    try:
        snapshot = Snapshot.model_validate_json(data)
    except (ValidationError, ValueError, RecursionError) as error:
        raise _no_snapshot(digest) from error
    if snapshot.to_bytes() != data or clash(member.path for member in snapshot.members) is not None:
        raise _no_snapshot(digest)
    return snapshot


def _no_snapshot(digest: str) -> UsageError:
    return UsageError(
        f"Object {digest} is no snapshot of the format {SNAPSHOT_FORMAT}.",
        hint="Name the digest that POST /v1/snapshots answered with.",
    )
