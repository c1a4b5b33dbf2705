"""One object on its way into the local store: a locked temp file that becomes the object by a link."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from autocode.jobs import crash
from autocode.jobs.store.encoding import Encoder, ObjectInfo
from autocode.jobs.store.posix import explained, write_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Handed", "LocalStaging"]

_MIB: Final = 1 << 20


class Handed(NamedTuple):
    """An ended temp file on its way from the process that wrote it to the one that publishes it.

    Args:
        name: its name in the folder of temp files.
        file: descriptor that holds its lock.
        info: digest and sizes.
    """

    name: str
    file: int
    info: ObjectInfo


class LocalStaging:
    """A temp file that this process holds a lock on for as long as it lives.

    The lock tells a sweep that the writer is alive; the system drops it with the process, however it ends.
    Satisfies :class:`~autocode.jobs.store.base.Staging`.

    Args:
        folder: where temp files live, on the file system of the objects.
        root: the store, for messages.
        link: gives a finished temp file its final name, and returns the info of what then stands there; the
            name is not durable yet.
        sync: makes the name of the object with this digest durable.
        handed: a finished temp file that another process wrote, see :meth:`hand_over`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        root: Path,
        link: Callable[[Path, ObjectInfo], ObjectInfo],
        sync: Callable[[str], None],
        handed: Handed | None = None,
    ) -> None:
        self._root = root
        self._link = link
        self._sync = sync
        self._encoder = Encoder()
        self._info: ObjectInfo | None = None
        self._published = False
        self._durable = False
        self._path: Path
        self._file: int | None
        if handed is None:
            self._path, self._file = _create_locked(folder)
        else:
            self._path, self._file, self._info = folder / handed.name, handed.file, handed.info

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def write(self, data: ReadableBuffer) -> int:
        """Add *data*; see :meth:`Staging.write <autocode.jobs.store.base.Staging.write>`."""
        if self._info is not None or self._file is None:
            raise ValueError("this object takes no more bytes: it was finished or discarded")
        view = memoryview(data).cast("B")
        start = 0
        while start < len(view):
            # pieces end after the first byte and at full MiB of the object: neither the stored bytes nor the
            # crash points depend on how it was cut
            position = self._encoder.size
            end = min(len(view), start + (_MIB - position % _MIB if position else 1))
            self._store(self._encoder.feed(view[start:end]))
            if not position or self._encoder.size % _MIB == 0:
                with explained(self._root):
                    crash.at("step.mid-write")
            start = end
        return len(view)

    def finish(self) -> ObjectInfo:
        """Make the bytes durable; see :meth:`Staging.finish <autocode.jobs.store.base.Staging.finish>`."""
        info = self.end()
        if not self._durable:
            self.sync()
        return info

    def end(self) -> ObjectInfo:
        """End the object without waiting for the disk, for somebody who will :meth:`sync` it. Idempotent."""
        if self._info is None:
            if self._file is None:
                raise ValueError("this object was discarded")
            self._store(self._encoder.finish(), last=True)
            self._info = self._encoder.info
        return self._info

    def write_out(self) -> None:
        """Ask the disk to begin, so that a :meth:`sync` has little to wait for."""
        if self._file is not None and not self._durable and hasattr(os, "posix_fadvise"):
            # on Linux this starts the writing of what is dirty (mm/fadvise.c); elsewhere it may do nothing
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Make an object that was ended durable, under no name yet."""
        if self._file is None:
            raise ValueError("this object was discarded")
        try:
            with explained(self._root):
                os.fsync(self._file)
        except BaseException:
            self.discard()
            raise
        self._durable = True

    def hand_over(self) -> Handed:
        """Give the ended temp file away: somebody else publishes or discards it, and holds its lock.

        Raises:
            ValueError: this object was discarded or published.
        """
        info = self.end()
        if self._file is None:
            raise ValueError("this object was discarded or published")
        handed = Handed(self._path.name, self._file, info)
        self._file = None
        return handed

    def publish(self) -> ObjectInfo:
        """Make it visible; see :meth:`Staging.publish <autocode.jobs.store.base.Staging.publish>`."""
        was_published = self._published
        info = self.link()
        if not was_published:
            with explained(self._root):
                self._sync(info.digest)
        return info

    def link(self) -> ObjectInfo:
        """Give it its name, which survives a power loss once the name's folder was synced. Idempotent."""
        info = self.finish()
        if not self._published:
            if self._file is None:
                raise ValueError("this object was discarded")
            try:
                with explained(self._root):
                    self._info = info = self._link(self._path, info)
            except BaseException:
                self.discard()
                raise
            self._published = True
            self._close()
        return info

    def discard(self) -> None:
        """Drop the temp file; see :meth:`Staging.discard <autocode.jobs.store.base.Staging.discard>`."""
        if self._file is not None:
            with suppress(FileNotFoundError):
                self._path.unlink()
            self._close()

    def _store(self, stored: bytes, *, last: bool = False) -> None:
        assert self._file is not None
        try:
            with explained(self._root):
                write_all(self._file, stored)
                if last:
                    # before the fsync, so that the mode is as durable as the bytes
                    os.fchmod(self._file, 0o444)
        except BaseException:
            self.discard()
            raise

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _create_locked(folder: Path) -> tuple[Path, int | None]:
    while True:
        path = folder / f"{os.getpid()}-{secrets.token_hex(8)}.tmp"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except BaseException:
            path.unlink(missing_ok=True)
            os.close(file)
            raise
        # a sweep that came between the two calls has taken the file for an orphan
        if os.fstat(file).st_nlink:
            return path, file
        os.close(file)
