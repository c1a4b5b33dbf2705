"""The files of an unpacked export: a bag as RFC 8493 (BagIt 1.0) describes it, the same for everybody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from autocode.jobs.canonical import digest_of
from autocode.jobs.errors import UsageError
from autocode.jobs.operations.export.manifest import Manifest
from autocode.jobs.store import ObjectStore

__all__ = ["BagFile", "bag_files", "bag_name", "content_of"]

_BAGIT: Final = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"

_README: Final = """\
Sessions of coding agents, exported by autocode-jobs.

    data/sessions/TOOL/ID.jsonl        a session in the normal form, one JSON record a line
    data/sessions/TOOL/ID.part-*.jsonl its further parts, where it is long
    data/sessions/TOOL/ID.report.json  what was mapped, lost, damaged and redacted in it
    data/sessions/TOOL/ID.agents/      its subagents, likewise
    data/unread/                       files that no reader understands (exports without redaction only)
    manifest.json                      every file of data/, where it came from, and all counts

{redaction}

To check that every byte is as it was exported, in this folder:

    sha256sum -c manifest-sha256.txt
    sha256sum -c tagmanifest-sha256.txt
    sha256sum manifest.json

The last command prints the identity of this export:

    {digest}

The same sessions give the same identity on every machine. Where there is no sha256sum,
`shasum -a 256` takes the same arguments. This folder is a bag (RFC 8493), which other tools can check too.
"""
_REDACTED: Final = (
    "Secrets that the policy {name} (revision {revision}) knows were replaced by markers such as\n"
    "[REDACTED:github-token:1]. No policy knows every secret: look before you publish."
)
_NOT_REDACTED: Final = (
    "NOTHING WAS REDACTED: the text is as it was recorded, and so are the raw files. Don't publish it."
)


@dataclass(frozen=True, slots=True)
class BagFile:
    """A file of the bag.

    Args:
        path: where it lies in the bag, with ``/``.
        sha256: digest of its bytes, in its written form.
        size: number of its bytes.
        content: its bytes; ``None`` for those of the object *sha256*.
    """

    path: str
    sha256: str
    size: int
    content: bytes | None = None


def bag_name(digest: str) -> str:
    """Return the usual name of the folder of an export."""
    return f"autocode-export-{digest.removeprefix('sha256:')[:12]}"


def bag_files(manifest: Manifest) -> list[BagFile]:
    """Return every file of the bag, sorted by path.

    A pure function of the manifest: no clock (so no ``Bagging-Date``), no host, no version of this program.
    """
    payload = sorted(
        (BagFile(member.path, member.sha256, member.size) for member in manifest.members),
        key=lambda file: file.path,
    )
    text = manifest.to_bytes()
    digest = digest_of(text)
    tags = [
        _tag("README.txt", _readme(manifest, digest)),
        _tag("bag-info.txt", _info(manifest, digest)),
        _tag("bagit.txt", _BAGIT.encode()),
        _tag("manifest-sha256.txt", _checksums(payload)),
        _tag("manifest.json", text),
    ]
    return sorted(
        [*tags, *payload, _tag("tagmanifest-sha256.txt", _checksums(tags))], key=lambda file: file.path
    )


def content_of(store: ObjectStore, file: BagFile) -> Iterator[bytes]:
    """Yield the bytes of *file* in pieces; who has taken the last one has verified bytes.

    Raises:
        ObjectMissing: its object isn't in the store.
        ObjectCorrupt: its object is damaged; it is in quarantine.
        UsageError: its object has another size than the manifest says.
    """
    if file.content is not None:
        yield file.content
        return
    with store.open(file.sha256) as reader:
        if reader.info.size != file.size:
            raise UsageError(
                f"The manifest gives {file.path} {file.size} bytes, and its object has {reader.info.size}.",
                hint="This manifest was not written by an export; don't use it.",
            )
        yield from reader


def _tag(path: str, content: bytes) -> BagFile:
    return BagFile(path, digest_of(content), len(content), content)


def _checksums(files: Sequence[BagFile]) -> bytes:
    # two spaces: the form that `sha256sum -c` reads in text mode and RFC 8493 shows in its example
    lines = (f"{file.sha256.removeprefix('sha256:')}  {file.path}\n" for file in files)
    return "".join(lines).encode("ascii")


def _info(manifest: Manifest, digest: str) -> bytes:
    size = sum(member.size for member in manifest.members)
    return (
        f"External-Identifier: {digest}\n"
        "External-Description: Sessions of coding agents\n"
        f"Payload-Oxum: {size}.{len(manifest.members)}\n"
    ).encode("ascii")


def _readme(manifest: Manifest, digest: str) -> bytes:
    policy = manifest.redaction
    redaction = (
        _NOT_REDACTED
        if policy is None
        else _REDACTED.format(name=policy.get("name"), revision=policy.get("revision"))
    )
    return _README.format(redaction=redaction, digest=digest.removeprefix("sha256:")).encode()
