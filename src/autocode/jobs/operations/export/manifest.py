"""The manifest of an export as a value: read from the store, checked, never trusted for its paths."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from autocode.jobs.canonical import canonical_json, digest_of, is_digest
from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export.bundle import DEVICES, MANIFEST_FORMAT
from autocode.jobs.operations.paths import clash
from autocode.jobs.store import ObjectStore

__all__ = ["Manifest", "ManifestSource", "Member", "UnreadSource", "load_manifest", "parse_manifest"]

_LARGEST: Final = 1 << 30
"""Bytes that a manifest may have; about a million sessions."""

_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,199}", re.ASCII)
_DEEPEST: Final = 8


def _digest(text: str) -> str:
    if not is_digest(text):
        raise ValueError("no digest")
    return text


def _member_path(text: str) -> str:
    """Accept a path that means one file below ``data/`` on every system, and nothing else anywhere."""
    parts = text.split("/")
    if parts[0] != "data" or not 2 <= len(parts) <= _DEEPEST:
        raise ValueError("no path below data/")
    for part in parts:
        if not _PART.fullmatch(part) or part.endswith("."):
            raise ValueError("a part that isn't a plain name")
        if part.partition(".")[0].casefold() in DEVICES:
            raise ValueError("a part that names a device on Windows")
    return text


Digest = Annotated[str, AfterValidator(_digest)]
MemberPath = Annotated[str, AfterValidator(_member_path)]
Count = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Member(_Strict):
    """A file of the bundle; its bytes are the object of this digest."""

    path: MemberPath
    sha256: Digest
    size: Count


class ManifestSource(_Strict):
    """A file that was exported: what it was, who read it, and what became of it.

    ``path`` is that of its members, without their endings; ``reader`` is ``None`` where only the raw bytes
    were kept. Some tools keep many ``sessions`` in one file. ``parts`` are the paths of a long source's parts
    in order, absent where there is one.
    """

    path: MemberPath
    sha256: Digest
    size: Count
    reader: str | None
    revision: Count
    sessions: Count
    records: Count
    lost: dict[str, int]
    damaged: Count
    damaged_bytes: Count
    redacted: dict[str, int]
    parts: list[MemberPath] = Field(default_factory=list, min_length=2)

    @model_serializer(mode="wrap")
    def _without_empty_parts(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return fields if self.parts else {name: value for name, value in fields.items() if name != "parts"}


class UnreadSource(_Strict):
    """A file that no reader understands and that was not exported."""

    kind: str
    sha256: Digest
    size: Count


class Manifest(_Strict):
    """The canonical manifest; its digest is the identity of the export."""

    format: Literal["autocode-export/1"]
    members: list[Member]
    sources: list[ManifestSource]
    unread: list[UnreadSource]
    left_out: dict[str, int]
    redaction: dict[str, str | int] | None
    totals: dict[str, int]

    def to_bytes(self) -> bytes:
        """Return the canonical JSON, which is the object that was read."""
        return canonical_json(self.model_dump(mode="json"))

    @property
    def digest(self) -> str:
        """The identity of the export."""
        return digest_of(self.to_bytes())


def load_manifest(store: ObjectStore, digest: str) -> Manifest:
    """Return the manifest of the export *digest*, verified and checked.

    What is checked beside the digest: the format, that every member's path is a plain one below ``data/``,
    and that no two of them are one file on a system that doesn't tell cases apart.

    Raises:
        ObjectMissing: there is no such object.
        ObjectCorrupt: it is damaged; it is in quarantine.
        UsageError: it is no manifest of an export, or one that this version doesn't know.
    """
    return parse_manifest(store.open(digest).read_all(limit=_LARGEST), f"Object {digest}")


def parse_manifest(data: bytes, name: str) -> Manifest:
    """Return the manifest whose canonical JSON is *data*, checked as :func:`load_manifest` says.

    Args:
        data: the bytes.
        name: what people call them, to begin a sentence with.

    Raises:
        UsageError: they are no manifest of an export, or one that this version doesn't know.
    """
    try:
        manifest = Manifest.model_validate_json(data)
    except ValidationError as error:
        raise _no_manifest(name, _first_of(error)) from error
    except (ValueError, RecursionError) as error:
        raise _no_manifest(name, "it isn't JSON") from error
    if manifest.to_bytes() != data:
        raise _no_manifest(name, "its JSON isn't canonical")
    both = clash(member.path for member in manifest.members)
    if both is not None:
        raise _no_manifest(name, f"its members {both[0]!r} and {both[1]!r} can't lie side by side")
    return manifest


def _no_manifest(name: str, reason: str) -> UsageError:
    return UsageError(
        f"{name} is no manifest of the format {MANIFEST_FORMAT}: {reason}.",
        hint="Name the artifact of a finished export; `autocode-jobs jobs list` shows them.",
    )


def _first_of(error: ValidationError) -> str:
    first: Any = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = "/".join(str(part) for part in first["loc"]) or "the document"
    return f"{place}: {first['msg']}"[:200]
