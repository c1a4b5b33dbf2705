"""The bytes of a stored object: one zstd frame with a checksum, then a trailer that plain zstd skips.

The trailer is a *skippable frame* (RFC 8878, section 3.1.2): it carries the size of the uncompressed bytes,
which a stream only knows at its end, and a CRC-32 of all stored bytes before it, so that every changed bit
is found, also one that happens to decode to the same content.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass
from typing import Final

import zstandard

__all__ = ["TRAILER_SIZE", "WINDOW_LIMIT", "Encoder", "ObjectInfo", "Trailer"]

LEVEL: Final = 3
WINDOW_LIMIT: Final = 8 << 20
"""The largest window in bytes that a reader accepts: the least that RFC 8878 asks of every decoder."""

_TRAILER: Final = struct.Struct("<II8sQI")
_MAGIC: Final = 0x184D2A5E
_TAG: Final = b"autocode"
TRAILER_SIZE: Final = _TRAILER.size


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What there is to know about an object.

    Args:
        digest: ``sha256:<hex>`` of the uncompressed bytes.
        size: number of uncompressed bytes.
        stored_size: number of bytes that it takes in the store.
    """

    digest: str
    size: int
    stored_size: int


@dataclass(frozen=True, slots=True)
class Trailer:
    """The end of a stored object.

    Args:
        size: number of uncompressed bytes.
        crc: CRC-32 of all stored bytes before the trailer.
    """

    size: int
    crc: int

    def pack(self) -> bytes:
        """Return the trailer as a skippable frame of :data:`TRAILER_SIZE` bytes."""
        return _TRAILER.pack(_MAGIC, TRAILER_SIZE - 8, _TAG, self.size, self.crc)

    @classmethod
    def parse(cls, data: bytes) -> Trailer | None:
        """Return the trailer in *data*, the end of the stored bytes; ``None`` if it is none."""
        if len(data) != TRAILER_SIZE:
            return None
        magic, length, tag, size, crc = _TRAILER.unpack(data)
        if (magic, length, tag) != (_MAGIC, TRAILER_SIZE - 8, _TAG):
            return None
        return cls(size, crc)


class Encoder:
    """Turns the bytes of one object into stored bytes, piece by piece, and hashes both sides.

    The stored bytes are a function of the content and of the zstd library's version where the first piece is
    one byte; it is flushed, so that a writer has something on disk from then on.
    """

    def __init__(self) -> None:
        compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, threads=0)
        self._stream = compressor.compressobj()
        self._hash = hashlib.sha256()
        self._crc = 0
        self._size = 0
        self._stored_size = 0

    @property
    def size(self) -> int:
        """Number of uncompressed bytes so far."""
        return self._size

    @property
    def info(self) -> ObjectInfo:
        """Digest and sizes of what was encoded so far; final after :meth:`finish`."""
        return ObjectInfo("sha256:" + self._hash.hexdigest(), self._size, self._stored_size)

    def feed(self, piece: memoryview) -> bytes:
        """Add *piece* and return the stored bytes that are ready; the first piece is ready at once."""
        first = not self._size
        self._hash.update(piece)
        self._size += len(piece)
        stored = self._stream.compress(piece)
        if first:
            stored += self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        return self._count(stored)

    def finish(self) -> bytes:
        """Return the last stored bytes, trailer included. To be called once."""
        stored = self._count(self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH))
        return stored + self._count(Trailer(self._size, self._crc).pack())

    def _count(self, stored: bytes) -> bytes:
        self._crc = zlib.crc32(stored, self._crc)
        self._stored_size += len(stored)
        return stored
