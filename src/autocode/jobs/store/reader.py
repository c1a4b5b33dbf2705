"""Reading an object: a binary file that proves what it hands out."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Final, NoReturn, cast

import zstandard

from autocode.jobs.errors import ObjectCorrupt, UsageError
from autocode.jobs.store.encoding import TRAILER_SIZE, WINDOW_LIMIT, ObjectInfo, Trailer

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["CHUNK", "Damage", "VerifiedReader", "prove_stored", "read_trailer"]

CHUNK: Final = 256 << 10
"""Bytes in one piece of content where the caller doesn't choose."""

_STORED_CHUNK: Final = 128 << 10
_MISMATCH: Final = "its stored bytes don't match the checksum in its trailer"


class Damage(Exception):
    """The stored bytes can't be the object; the text says why. Internal: callers get ObjectCorrupt."""


def read_trailer(file: BinaryIO, stored_size: int) -> Trailer:
    """Return the trailer of the stored object in *file*, of *stored_size* bytes, and rewind it.

    Raises:
        Damage: the file doesn't end in a trailer.
    """
    if stored_size < TRAILER_SIZE:
        raise Damage(f"it has {stored_size} bytes, fewer than any object")
    file.seek(stored_size - TRAILER_SIZE)
    trailer = Trailer.parse(file.read(TRAILER_SIZE))
    if trailer is None:
        raise Damage("it doesn't end in a trailer: truncated, appended to, or no object at all")
    file.seek(0)
    return trailer


class _Frames:
    """The stored bytes before the trailer, summed up as they are read."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        self._file = file
        self.left = length
        self.crc = 0

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, self.left))
        self.left -= len(data)
        self.crc = zlib.crc32(data, self.crc)
        return data


class VerifiedReader(io.RawIOBase):
    """The content of one object as a binary file, verified on the way.

    Size, checksum and digest are compared **before the last byte is handed out**: who has read as many bytes
    as :attr:`info` says, or has seen the end, has read the object. A reader that is closed earlier has
    proven nothing (:attr:`verified` is false), and closing it is no error.

    Iterating yields chunks of up to 256 KiB, not lines; for lines, wrap it: ``io.BufferedReader(reader)``.
    It can't seek. Memory is bounded by the buffers that the caller asks for plus about 10 MiB.

    Args:
        file: the stored bytes, positioned at 0; closed with the reader.
        info: the digest that was asked for and the sizes that the store claims.
        trailer: the trailer of the stored bytes.
        on_damage: told what is wrong; raises, normally :class:`~autocode.jobs.errors.ObjectCorrupt` after
            it moved the object away. Called at most once, and before *file* is closed.
    """

    def __init__(
        self, file: BinaryIO, *, info: ObjectInfo, trailer: Trailer, on_damage: Callable[[str], NoReturn]
    ) -> None:
        super().__init__()
        self._file = file
        self._info = info
        self._crc = trailer.crc
        self._on_damage = on_damage
        self._frames = _Frames(file, info.stored_size - TRAILER_SIZE)
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_LIMIT)
        # across frames, so that bytes behind the first frame are looked at rather than ignored
        self._stream = decompressor.stream_reader(
            cast("BinaryIO", self._frames),
            read_size=_STORED_CHUNK,
            read_across_frames=True,
        )
        self._hash = hashlib.sha256()
        self._position = 0
        self._verified = False

    @property
    def info(self) -> ObjectInfo:
        """Digest and sizes: claims until :attr:`verified`, facts afterwards."""
        return self._info

    @property
    def verified(self) -> bool:
        """Whether everything was read and matched."""
        return self._verified

    def readable(self) -> bool:
        """Say that this file can be read."""
        return True

    def tell(self) -> int:
        """Return how many bytes of content were read."""
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill *buffer* with the next bytes of content and return their number; 0 at the end.

        Raises:
            ObjectCorrupt: the object is damaged; it was moved to quarantine.
            ValueError: the reader is closed.
        """
        if self.closed:
            raise ValueError("this reader is closed")
        view = memoryview(buffer).cast("B")
        if self._verified or not view:
            return 0
        try:
            count = self._stream.readinto(view)
            self._position += count
            self._hash.update(view[:count])
            if not count or self._position >= self._info.size:
                self._check_end()
        except (Damage, zstandard.ZstdError) as error:
            self._damaged(str(error))
        except OSError as error:
            self._damaged(f"it can't be read: {error.strerror}")
        return count

    def check(self) -> None:
        """Compare the stored bytes with the trailer's checksum, without decompressing them.

        Nothing can be read afterwards, and nothing of the content was proven.

        Raises:
            ObjectCorrupt: they differ; the object was moved to quarantine.
        """
        try:
            while self._frames.left and self._frames.read(CHUNK):
                pass
        except OSError as error:
            self._damaged(f"it can't be read: {error.strerror}")
        if not self._matches():
            self._damaged(_MISMATCH)

    def readall(self) -> bytes:
        """Return the rest of the content. Prefer :meth:`read_all` with a limit for what came from outside."""
        return b"".join(self)

    def read_all(self, *, limit: int) -> bytes:
        """Return the rest of the content, which is at most *limit* bytes, and close the reader.

        Raises:
            UsageError: the object is larger than *limit*; nothing was read.
            ObjectCorrupt: the object is damaged; it was moved to quarantine.
        """
        with self:
            if self._info.size - self._position > limit:
                raise UsageError(
                    f"Object {self._info.digest} has {self._info.size} bytes, more than {limit}.",
                    hint="Read it in chunks.",
                )
            return self.readall()

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self.read(CHUNK) or b"", b"")

    def close(self) -> None:
        """Close the reader; never raises for content that was not read. Idempotent."""
        if not self.closed:
            self._file.close()
        super().close()

    def _check_end(self) -> None:
        if self._position > self._info.size or self._stream.read(1):
            raise Damage(f"it holds more than the {self._info.size} bytes of its trailer")
        if self._position < self._info.size:
            raise Damage(f"it ends after {self._position} of the {self._info.size} bytes of its trailer")
        if not self._matches():
            raise Damage(_MISMATCH)
        actual = "sha256:" + self._hash.hexdigest()
        if actual != self._info.digest:
            raise Damage(f"its content is {actual}")
        self._verified = True

    def _matches(self) -> bool:
        return not self._frames.left and self._frames.crc == self._crc

    def _damaged(self, reason: str) -> NoReturn:
        try:
            self._on_damage(reason)
        finally:
            self.close()


def prove_stored(file: BinaryIO, digest: str, stored_size: int) -> ObjectInfo:
    """Read a stored object that lies in some other place than a store, and return its proven sizes.

    Args:
        file: its bytes as a store keeps them; can seek, and is closed.
        digest: what it should be.
        stored_size: the number of its bytes.

    Raises:
        ObjectCorrupt: the bytes aren't that object.
    """

    def refuse(reason: str) -> NoReturn:
        raise ObjectCorrupt(f"Object {digest} is damaged: {reason}.", digest=digest, reason=reason)

    with file:
        try:
            trailer = read_trailer(file, stored_size)
        except Damage as damage:
            refuse(str(damage))
        info = ObjectInfo(digest, trailer.size, stored_size)
        buffer = bytearray(CHUNK)
        with VerifiedReader(file, info=info, trailer=trailer, on_damage=refuse) as reader:
            while reader.readinto(buffer):
                pass
        return info
