"""Tar archives (POSIX pax) as a stream of members, each hashed on its way; memory doesn't grow with them."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from autocode.jobs.errors import BackupDamaged

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Member", "Reader", "Region", "SourceBroken", "Writer", "Written"]

_CHUNK: Final = 1 << 20
_MODE: Final = 0o600


class SourceBroken(Exception):
    """What was to be copied can't be read, or ends too early. Internal: the text says why."""


@dataclass(frozen=True, slots=True)
class Written:
    """A member that was written, or read.

    Args:
        name: the member.
        size: of its bytes.
        sha256: their digest.
        before: where its header begins, in a writer's archive.
        start: where its bytes begin there.
    """

    name: str
    size: int
    sha256: str
    before: int = 0
    start: int = 0


class Region(io.RawIOBase):
    """Some bytes of an open file as a file of their own, whatever else moves in that file.

    Args:
        descriptor: the file; not closed with this.
        start: of the region.
        size: of the region, in bytes.
    """

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._start = start
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Say that this file can be read."""
        return True

    def seekable(self) -> bool:
        """Say that this file can seek."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to *offset* and return the new position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill *buffer* with the next bytes and return their number; 0 at the end."""
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self._size - self._position))
        data = os.pread(self._descriptor, wanted, self._start + self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


class Writer:
    """Writes members one after the other.

    Args:
        file: an empty file, open for reading and writing, buffered.
        at: the time of every member, in seconds since 1970.
        moved: told the number of bytes that were just copied; may raise to stop.
    """

    def __init__(
        self, file: BinaryIO, *, at: int, moved: Callable[[int], None] = lambda _count: None
    ) -> None:
        self._file = file
        self._at = at
        self._moved = moved

    def add_bytes(self, name: str, data: bytes) -> Written:
        """Add a member that holds *data*."""
        return self.add(name, len(data), io.BytesIO(data))

    def add(self, name: str, size: int, source: BinaryIO) -> Written:
        """Add a member with the next *size* bytes of *source*. Atomic: if that fails, there is no member.

        Raises:
            SourceBroken: *source* can't be read so far.
            OSError: the archive can't be written.
        """
        before = self._file.tell()
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, _MODE, self._at
        self._file.write(info.tobuf(tarfile.PAX_FORMAT))
        start = self._file.tell()
        digest = hashlib.sha256()
        try:
            for chunk in _chunks(source, size):
                digest.update(chunk)
                self._file.write(chunk)
                self._moved(len(chunk))
        except SourceBroken:
            self._undo(before)
            raise
        self._pad(tarfile.BLOCKSIZE)
        return Written(name, size, f"sha256:{digest.hexdigest()}", before, start)

    def written(self, member: Written) -> BinaryIO:
        """Return the bytes of a member as they are in the archive."""
        self._file.flush()
        return cast("BinaryIO", Region(self._file.fileno(), member.start, member.size))

    def withdraw(self, member: Written) -> None:
        """Remove the member that was added last."""
        self._undo(member.before)

    def end(self) -> None:
        """Write the end of the archive, and everything to disk."""
        self._file.write(tarfile.NUL * 2 * tarfile.BLOCKSIZE)
        self._pad(tarfile.RECORDSIZE)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _undo(self, offset: int) -> None:
        self._file.seek(offset)
        self._file.truncate()

    def _pad(self, multiple: int) -> None:
        self._file.write(tarfile.NUL * (-self._file.tell() % multiple))


class Member:
    """One member of an archive that is being read.

    Args:
        info: its header.
        descriptor: the archive.
        moved: told the number of bytes that were just read; may raise to stop.
    """

    def __init__(self, info: tarfile.TarInfo, descriptor: int, moved: Callable[[int], None]) -> None:
        self.name = info.name
        self.size = info.size
        self._start = info.offset_data
        self._descriptor = descriptor
        self._moved = moved
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The digest of what :meth:`chunks` has yielded."""
        return f"sha256:{self._digest.hexdigest()}"

    def region(self) -> BinaryIO:
        """Return the member's bytes as a file of their own."""
        return cast("BinaryIO", Region(self._descriptor, self._start, self.size))

    def seen(self) -> Written:
        """Return what the member is, once all of it was read."""
        return Written(self.name, self.size, self.sha256)

    def chunks(self) -> Iterator[bytes]:
        """Yield the member's bytes; to be called once.

        Raises:
            BackupDamaged: the file ends too early, or can't be read.
        """
        try:
            for chunk in _chunks(self.region(), self.size):
                self._digest.update(chunk)
                self._moved(len(chunk))
                yield chunk
        except SourceBroken as broken:
            raise BackupDamaged(f"{self.name} in the backup can't be read: {broken}.") from broken

    def lines(self) -> Iterator[bytes]:
        """Yield the member's lines, by way of :meth:`chunks`."""
        rest = b""
        for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
        if rest:
            raise BackupDamaged(f"{self.name} in the backup ends in the middle of a line.")


class Reader:
    """The members of an archive, in order, with one to look ahead.

    Args:
        file: the archive; can seek.
        moved: told the number of bytes of members that were just read; may raise to stop.
    """

    def __init__(self, file: BinaryIO, *, moved: Callable[[int], None] = lambda _count: None) -> None:
        self._descriptor = file.fileno()
        self._moved = moved
        try:
            self._tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - the file is the caller's
        except (tarfile.TarError, OSError) as error:
            raise BackupDamaged(f"It is no tar archive ({error}), so it is no backup.") from error
        self._next = self._read()

    @property
    def name(self) -> str | None:
        """The name of the next member; ``None`` at the end."""
        return None if self._next is None else self._next.name

    def take(self, name: str) -> Member:
        """Return the next member.

        Raises:
            BackupDamaged: it isn't called *name*, or there is none.
        """
        member = self._next
        if member is None:
            raise BackupDamaged(
                f"The backup ends before {name}: it was cut off, or a header in it is damaged."
            )
        if member.name != name:
            raise BackupDamaged(f"The backup has {member.name!r} where {name} should be.")
        self._next = self._read()
        return member

    def _read(self) -> Member | None:
        try:
            info = self._tar.next()
        except (tarfile.TarError, OSError, ValueError) as error:
            raise BackupDamaged(f"The backup can't be read further: {error}.") from error
        # it would keep every header that it has read
        self._tar.members.clear()  # type: ignore[attr-defined]
        if info is None:
            return None
        if not info.isreg():
            raise BackupDamaged(f"{info.name!r} in the backup is no plain file.")
        return Member(info, self._descriptor, self._moved)


def _chunks(source: BinaryIO, size: int) -> Iterator[bytes]:
    left = size
    while left:
        try:
            chunk = source.read(min(_CHUNK, left))
        except OSError as error:
            raise SourceBroken(error.strerror or str(error)) from error
        if not chunk:
            raise SourceBroken(f"it ends {left} bytes too early")
        left -= len(chunk)
        yield chunk
