"""Bytes that come over the network on their way into the store: referred to by the ledger, then visible."""

from __future__ import annotations

import shutil
import threading
from collections.abc import AsyncIterator

from autocode.jobs import crash
from autocode.jobs.api.service import Service
from autocode.jobs.api.threads import RequestCalls
from autocode.jobs.engine.system import System
from autocode.jobs.errors import DiskFull, ObjectCorrupt
from autocode.jobs.ledger import uploads
from autocode.jobs.ledger.access import Principal
from autocode.jobs.request_errors import DigestMismatch, RequestStalled
from autocode.jobs.settings import ENOUGH_BYTES
from autocode.jobs.store import ObjectInfo, ObjectStore, Staging

__all__ = ["is_stored", "put_object"]


def is_stored(store: ObjectStore, digest: str) -> bool:
    """Say whether the store has an object; one that shows damage is in quarantine, and has to come again."""
    try:
        return store.stat(digest) is not None
    except ObjectCorrupt:
        return False


async def put_object(
    service: Service,
    calls: RequestCalls,
    caller: Principal,
    body: AsyncIterator[bytes],
    *,
    digest: str,
    length: int,
) -> tuple[ObjectInfo, bool]:
    """Write *body* to the store under *digest*, referred to as an upload of *caller*.

    The reference comes before the object is visible, as with every object. A caller that breaks off leaves
    nothing.

    Args:
        service: the application's.
        calls: to the ledger; their time begins anew when the body is complete.
        caller: who sends it.
        body: the bytes, in blocks.
        digest: what they must be.
        length: how many there will be, as far as that is known.

    Returns:
        The object, and whether it is this caller's first upload of it.

    Raises:
        DigestMismatch: the bytes are others.
        DiskFull: there is no room.
    """
    files = service.files
    writing = _Writing(service.system)
    try:
        await files(writing.begin, length)
        async for block in body:
            await files(writing.write, block)
        info = await files(writing.finish)
        if info.digest != digest:
            raise DigestMismatch(f"The {info.size:,} bytes that came are {info.digest}.", digest=info.digest)
        calls.renew()
        new = await calls(uploads.note_upload, service.db, caller, info.digest, info.size)
        await files(writing.publish)
        return info, new
    finally:
        # in a thread: the last write may be under way still when the caller has gone
        files.later(writing.discard)


class _Writing:
    """An object on its way into the store; a call waits for the one before, in whatever thread that is."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._staging: Staging | None = None
        self._over = False

    def begin(self, length: int) -> None:
        with self._lock:
            self._check_room(length)
            if not self._over:
                self._staging = self._system.store.stage()

    def write(self, block: bytes) -> None:
        with self._lock:
            self._check_room(len(block))
            self._held().write(block)

    def finish(self) -> ObjectInfo:
        with self._lock:
            return self._held().finish()

    def publish(self) -> None:
        with self._lock:
            self._held().publish()
        crash.at("step.after-object")

    def discard(self) -> None:
        with self._lock:
            self._over = True
            if self._staging is not None:
                self._staging.discard()

    def _held(self) -> Staging:
        if self._staging is None:
            raise RequestStalled("The request was given up.")
        return self._staging

    def _check_room(self, length: int) -> None:
        # what is left is the ledger's: an upload must not take the room that running jobs need to go on
        home = self._system.home.path
        if shutil.disk_usage(home).free < length + ENOUGH_BYTES:
            raise DiskFull(f"{home} has no room for another {length:,} bytes.")
