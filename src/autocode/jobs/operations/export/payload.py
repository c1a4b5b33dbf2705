"""What an export is asked for, and the documents that its steps leave for one another."""

from __future__ import annotations

from typing import Any, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from autocode.jobs.canonical import is_digest
from autocode.jobs.redaction import CustomRules, Policy, policy_with

__all__ = [
    "ENTRY_TYPE",
    "MANIFEST_TYPE",
    "NORMAL_FORM_TYPE",
    "PART_TYPE",
    "RAW_TYPE",
    "SCAN_TYPE",
    "BundleInputs",
    "ExportPayload",
    "FilePart",
    "FoundFile",
    "LeftOut",
    "ReadInputs",
    "ScanInputs",
    "ScanResult",
    "Source",
]

SCAN_TYPE: Final = "application/vnd.autocode.scan+json"
ENTRY_TYPE: Final = "application/vnd.autocode.session-entry+json"
PART_TYPE: Final = "application/vnd.autocode.session-part+json"
NORMAL_FORM_TYPE: Final = "application/vnd.autocode.session+jsonl"
MANIFEST_TYPE: Final = "application/vnd.autocode.export-manifest+json"
RAW_TYPE: Final = "application/octet-stream"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(_Frozen):
    """A selection in a root, or a snapshot.

    A path is never part of a payload: no caller reads what neither the machine offers nor it may see.
    """

    snapshot: str | None = Field(default=None, description="Digest of a snapshot: files that were uploaded.")
    root: str = Field(
        default="", description="Name of a folder that the service knows.", validate_default=True
    )
    select: tuple[str, ...] = Field(
        default=(), description="Files or folders in it, by their path from the root; everything if empty."
    )

    @field_validator("snapshot")
    @classmethod
    def _digest(cls, value: str | None) -> str | None:
        if value is not None and not is_digest(value):
            raise ValueError(f"{value!r} is no digest: sha256: and 64 hex digits")
        return value

    @field_validator("root")
    @classmethod
    def _one_of_two(cls, value: str, info: ValidationInfo) -> str:
        if value and info.data.get("snapshot") is not None:
            raise ValueError("a source is a root or a snapshot, not both")
        if not value and info.data.get("snapshot", "") is None:
            raise PydanticCustomError("missing", "Field required: the name of a root, or else a snapshot")
        return value

    @field_validator("select")
    @classmethod
    def _in_order(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and info.data.get("snapshot") is not None:
            raise ValueError("a snapshot is exported whole: name a snapshot of the wanted files alone")
        for selected in value:
            if not selected or "\0" in selected or {"", ".", ".."}.intersection(selected.split("/")):
                raise ValueError(f"{selected!r} is no path below the root: use names joined by /")
        return tuple(sorted(set(value)))

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # a source with a root keeps the form, and a job the fingerprint, that it had before snapshots
        value: dict[str, Any] = handler(self)
        wanted = {"root", "select"} if self.snapshot is None else {"snapshot"}
        return {name: value[name] for name in value if name in wanted}


class ExportPayload(_Frozen):
    """The payload of an export; its fields are the parameters of the flow."""

    sources: tuple[Source, ...] = Field(description="Where the sessions are.", min_length=1)
    redact: bool = Field(default=True, description="Replace secrets by markers, and leave raw bytes out.")
    rules: CustomRules | None = Field(
        default=None, description="Rules of one's own and an allow list, by content: never the file's path."
    )
    rehash: bool = Field(
        default=False,
        description="Read every source, also one that nobody has touched since the last time.",
    )

    @property
    def policy(self) -> Policy | None:
        """The policy that the export keeps to, however often it is resumed; ``None`` without redaction."""
        return policy_with(self.rules) if self.redact else None

    @model_validator(mode="after")
    def _rules_need_redaction(self) -> Self:
        if self.rules is not None and not self.redact:
            raise ValueError("rules without redaction make no sense: leave out one of them")
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # a payload without it keeps the fingerprint that it had before there was such a field; one that asks
        # to read everything doesn't attach to a job that doesn't
        value: dict[str, Any] = handler(self)
        if self.rules is None:
            value.pop("rules", None)
        if not self.rehash:
            value.pop("rehash", None)
        return value

    @field_validator("sources")
    @classmethod
    def _one_for_each_root(cls, value: tuple[Source, ...]) -> tuple[Source, ...]:
        roots: dict[str, set[str] | None] = {}
        found = {source.snapshot for source in value if source.snapshot is not None}
        for source in value:
            if source.snapshot is not None:
                continue
            before = roots.get(source.root, set())
            whole = not source.select or before is None
            roots[source.root] = None if whole else (before or set()) | set(source.select)
        named = tuple(Source(root=root, select=tuple(roots[root] or ())) for root in sorted(roots))
        return named + tuple(Source(snapshot=digest) for digest in sorted(found))


class ScanInputs(_Frozen):
    """What ``scan`` looks at, and whether it reads what it knows; that changes nothing in a job's result."""

    sources: tuple[Source, ...]
    rehash: bool = Field(default=False, exclude=True)


class FilePart(_Frozen):
    """Bytes by number and digest."""

    size: int
    sha256: str


class FoundFile(_Frozen):
    """A file as ``scan`` froze it: these bytes and no others are exported.

    ``path`` is percent-encoded, since a file name is bytes and JSON holds text; for a member of a snapshot
    it is the digest of its object, which no encoded path looks like. ``parts`` are listed where there are
    several.
    """

    path: str
    name: str
    size: int
    sha256: str
    reader: str | None
    revision: int
    label: str
    parts: tuple[FilePart, ...] = ()

    def cut(self) -> tuple[FilePart, ...]:
        """Return the parts in order; a file that isn't cut is one."""
        return self.parts or (FilePart(size=self.size, sha256=self.sha256),)


class LeftOut(_Frozen):
    """Something in the selection that is no readable file, and why."""

    name: str
    reason: str


class ScanResult(_Frozen):
    """The frozen input: what was found and what was left out; ``reasons`` counts what isn't listed, too."""

    files: tuple[FoundFile, ...]
    left_out: tuple[LeftOut, ...]
    reasons: dict[str, int]
    skipped_folders: dict[str, int]


class ReadInputs(_Frozen):
    """What ``read`` depends on. Where the bytes lie doesn't belong to it.

    ``size`` and ``sha256`` are those of the part; ``whole`` is the file, given with the ``last`` part of
    several. ``before`` is what the part before left. ``policy`` is the policy's digest, and stands for
    ``rules``, its content.
    """

    size: int
    sha256: str
    last: bool
    before: str | None
    whole: FilePart | None
    reader: str | None
    revision: int
    policy: str | None
    raw: bool
    rules: CustomRules | None = Field(default=None, exclude=True)
    path: str = Field(exclude=True)
    name: str = Field(exclude=True)
    offset: int = Field(exclude=True)


class BundleInputs(_Frozen):
    """What ``bundle`` depends on: the entries by digest, and what stays unread or was left out."""

    entries: tuple[str, ...]
    unread: tuple[tuple[str, str, int], ...]
    left_out: dict[str, int]
    policy: dict[str, Any] | None
