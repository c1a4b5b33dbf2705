"""What a store is: the protocol that every backend keeps, and the two ways most callers put an object.

Publishing has two phases, because a caller registers its reference to an object in the ledger *between*
knowing the digest (:meth:`Staging.finish`) and making the object visible (:meth:`Staging.publish`). Prune
never sees an object that nobody refers to yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from autocode.jobs.store.encoding import ObjectInfo
from autocode.jobs.store.reader import VerifiedReader

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["ObjectInfo", "ObjectStore", "Staging", "put_bytes", "put_chunks"]


@runtime_checkable
class Staging(Protocol):
    """One object on its way into the store. Used as a context manager, by one thread.

    Leaving the ``with`` block without :meth:`publish` discards what was written, whatever the reason.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def write(self, data: ReadableBuffer) -> int:
        """Add *data* (any contiguous buffer) and return its length in bytes.

        Memory is bounded however large *data* is. Passes the crash point ``step.mid-write`` once the first
        byte has reached the backend, and again with every full MiB.

        Raises:
            DiskFull: no room; what was written is discarded.
            HomeUnusable: the store can't be written to; what was written is discarded.
            ValueError: the object was finished, published or discarded before.
        """
        ...

    def finish(self) -> ObjectInfo:
        """End the object, make its bytes durable and return its digest and sizes. Idempotent.

        Nothing is visible yet. Raises what :meth:`write` raises.
        """
        ...

    def publish(self) -> ObjectInfo:
        """Make the object visible under its digest, finishing it first if need be. Atomic and idempotent.

        When it returns, the object survives a power loss. An object that is there already is verified
        before it is trusted: a sound one stays and ours is discarded, a damaged one goes to quarantine and
        ours takes its place.

        Raises:
            DiskFull: no room; nothing is left behind.
            HomeUnusable: the store can't be written to; nothing is left behind.
            ValueError: the object was discarded before.
        """
        ...

    def discard(self) -> None:
        """Drop what was written. Idempotent; does nothing to a published object."""
        ...


@runtime_checkable
class ObjectStore(Protocol):
    """Immutable objects by digest. Safe to use from several threads and processes at once.

    Every method that takes a digest raises :class:`~autocode.jobs.errors.UsageError` for a text that isn't
    one, so that no digest from outside can name another place.
    """

    def stage(self) -> Staging:
        """Begin a new object.

        Raises:
            DiskFull: no room.
            HomeUnusable: the store can't be written to.
        """
        ...

    def open(self, digest: str) -> VerifiedReader:
        """Open an object for reading; the reader proves size and digest before it hands out the last byte.

        Raises:
            ObjectMissing: there is no such object.
            ObjectCorrupt: its frame is damaged (now, or later from the reader); it is in quarantine.
        """
        ...

    def stat(self, digest: str) -> ObjectInfo | None:
        """Return the sizes that the object claims, without reading its content; ``None`` if it isn't there.

        Never answered from a cache. Proves only that the end of the file is intact.

        Raises:
            ObjectCorrupt: the object is damaged where its size is kept; it is in quarantine.
        """
        ...

    def verify(self, digest: str) -> ObjectInfo:
        """Read the whole object, with bounded memory, and return its proven sizes.

        Raises:
            ObjectMissing: there is no such object.
            ObjectCorrupt: its bytes don't match; it is in quarantine.
        """
        ...

    def check(self, digest: str) -> ObjectInfo:
        """Read every stored byte, compare size and checksum with the trailer, and return the sizes.

        A tenth of what :meth:`verify` costs, since nothing is decompressed. It finds a changed bit anywhere
        but in the trailer's size, and whatever disks and killed processes do to a file; not another sound
        object under this name, which takes somebody with access to the folder. A reader finds those, too.

        Raises:
            ObjectMissing: there is no such object.
            ObjectCorrupt: its stored bytes aren't those that were written; it is in quarantine.
        """
        ...

    def list(self, after: str | None = None) -> Iterator[str]:
        """Yield the digests of all objects in ascending order, those above *after* only.

        Not a snapshot: an object that comes or goes meanwhile may be listed or not. Memory is bounded by
        a 256th of the store.
        """
        ...

    def sweep_temp(self) -> int:
        """Remove what writers that died left half-written; return how many. Living writers are let be."""
        ...

    def delete(self, digest: str) -> bool:
        """Remove an object; say whether it was there. Idempotent and durable; asks nobody's leave."""
        ...


def put_bytes(store: ObjectStore, data: ReadableBuffer) -> ObjectInfo:
    """Put *data* as one object and return its info. Atomic, idempotent; raises as :meth:`Staging.publish`."""
    return put_chunks(store, [data])


def put_chunks(store: ObjectStore, chunks: Iterable[ReadableBuffer]) -> ObjectInfo:
    """Put the concatenation of *chunks* as one object and return its info, holding one chunk at a time.

    Atomic and idempotent: the same bytes give the same digest however they are cut. Raises as
    :meth:`Staging.publish`, and whatever iterating *chunks* raises; then nothing is left behind.
    """
    with store.stage() as staging:
        for chunk in chunks:
            staging.write(chunk)
        return staging.publish()
