"""Source bytes as ``scan`` froze them: opened without surprises, and proven to be the same bytes again.

They lie in a file of a root, or in an object of the store that belongs to a snapshot.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, cast
from urllib.parse import unquote_to_bytes

from autocode.jobs.errors import JobsError, SourceChanged, SourceUnreadable, Transient

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["CHUNK", "FrozenStream", "frozen", "opened", "stored"]

CHUNK: Final = 1 << 20
"""Bytes that are read at once."""

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_REPLACED: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT})


@contextmanager
def opened(path: str, name: str) -> Iterator[io.FileIO]:
    """Open the regular file at *path*, unbuffered; never follows a link, never waits for a pipe.

    Args:
        path: where it lies.
        name: what people call it, for messages.

    Raises:
        SourceChanged: there is nothing at *path* any more, or something else than a regular file.
        SourceUnreadable: this user may not read it.
        Transient: the system is short of something that will be there again.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _told(error, name) from error
    try:
        # before a file object is made of it, which refuses folders with an error of its own
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SourceChanged(f"{name} is no regular file any more.")
        with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


class _Readable(Protocol):
    def readinto(self, buffer: bytearray | memoryview, /) -> int | None: ...


class FrozenStream(io.RawIOBase):
    """The next *size* bytes of a file, hashed as they pass; a file that shrank ends early.

    Args:
        file: the opened file or object, at the first of these bytes.
        size: how many bytes belong to the frozen input.
        name: what people call the file, for messages.
    """

    def __init__(self, file: _Readable, size: int, name: str) -> None:
        super().__init__()
        self._file = file
        self._size = self._left = size
        self._name = name
        self._digest = hashlib.sha256()
        self.position = 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill *buffer*; return how many bytes came, 0 at the end.

        Raises:
            Transient: the disk failed to deliver, or is away for the moment.
        """
        view = memoryview(buffer).cast("B")[: self._left]
        try:
            count = self._file.readinto(view) or 0
        except OSError as error:
            raise Transient(f"{self._name} could not be read: {error.strerror}.") from error
        self._digest.update(view[:count])
        self._left -= count
        self.position += count
        return count

    def prove(self, sha256: str) -> None:
        """Read what is left, and compare size and digest with what was scanned.

        Raises:
            SourceChanged: they differ.
        """
        while self.read(CHUNK):
            pass
        if self.position != self._size or "sha256:" + self._digest.hexdigest() != sha256:
            raise SourceChanged(f"{self._name} no longer holds the {self._size} bytes that were scanned.")


@contextmanager
def frozen(path: str, name: str, offset: int, size: int) -> Iterator[FrozenStream]:
    """Open bytes that ``scan`` recorded; call :meth:`FrozenStream.prove` before you trust them.

    Args:
        path: where the file lies, percent-encoded.
        name: what people call it, for messages.
        offset: position of the first byte.
        size: number of bytes.

    Raises what :func:`opened` raises.
    """
    with opened(os.fsdecode(unquote_to_bytes(path)), name) as stream:
        stream.seek(offset)
        yield FrozenStream(stream, size, name)


@contextmanager
def stored(
    opening: Callable[[str], AbstractContextManager[BinaryIO]], digest: str, name: str, offset: int, size: int
) -> Iterator[FrozenStream]:
    """Open bytes of an object of the store, as :func:`frozen` does those of a file.

    What lies before *offset* is read and dropped, since a compressed object can't be entered in its middle.
    A copy in a temporary file would save nothing: each part is read once, in a process of its own perhaps, so
    each would make the copy anew.

    Args:
        opening: opens an object.
        digest: the object.
        name: what people call it, for messages.
        offset: position of the first byte.
        size: number of bytes.

    Raises:
        ObjectMissing: the store doesn't have it.
        ObjectCorrupt: it is damaged; also later, from the stream.
    """
    with opening(digest) as file:
        reader = cast("_Readable", file)
        buffer = memoryview(bytearray(CHUNK))
        while offset and (count := reader.readinto(buffer[: min(offset, CHUNK)])):
            offset -= count
        yield FrozenStream(reader, size, name)


def _told(error: OSError, name: str) -> JobsError:
    if error.errno in _GONE:
        return SourceChanged(f"{name} vanished after it was found.")
    if error.errno in _REPLACED:
        return SourceChanged(f"{name} is no regular file any more.")
    if error.errno in _PASSING:
        return Transient(f"{name} could not be opened: {error.strerror}.")
    return SourceUnreadable(f"{name} can't be opened: {error.strerror}.")
