"""What lies in the store's folder, unpacked and hashed anew by two libraries that know nothing of us."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import zstandard

__all__ = ["ObjectFile", "damage", "listing"]


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """A file of the store.

    Args:
        name: the digest that its name promises, 64 hex digits.
        content: the unpacked bytes; ``None`` where they can't be unpacked.
        identity: inode and time of the last write: both stay while nobody replaces the file.
    """

    name: str
    content: bytes | None
    identity: tuple[int, int]

    @property
    def whole(self) -> bool:
        """Whether the bytes are those that the name promises."""
        return self.content is not None and hashlib.sha256(self.content).hexdigest() == self.name


def listing(store: Path) -> dict[str, ObjectFile]:
    """Return every object below *store* by its name, in the order of names."""
    files = (path for path in (store / "objects" / "sha256").glob("??/*") if path.is_file())
    return {path.name: _read(path) for path in sorted(files, key=lambda path: path.name)}


def damage(store: Path, name: str) -> None:
    """Change one byte in the middle of an object's file, as a bad disk would.

    Raises:
        FileNotFoundError: the store has no such object.
    """
    path = store / "objects" / "sha256" / name[:2] / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    mode = path.stat().st_mode
    path.chmod(0o600)
    path.write_bytes(data)
    path.chmod(mode)


def _read(path: Path) -> ObjectFile:
    status = path.stat()
    identity = (status.st_ino, status.st_mtime_ns)
    try:
        # the trailer after the frame is a skippable one, which this call doesn't look at
        content = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    except zstandard.ZstdError:
        content = None
    return ObjectFile(path.name, content, identity)
