"""The store in a local folder."""

from __future__ import annotations

import fnmatch
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from autocode.jobs.canonical import canonical_json, is_digest
from autocode.jobs.errors import ObjectCorrupt, ObjectMissing, UsageError
from autocode.jobs.store import posix
from autocode.jobs.store.encoding import ObjectInfo
from autocode.jobs.store.reader import CHUNK, Damage, VerifiedReader, read_trailer
from autocode.jobs.store.staging import Handed, LocalStaging

__all__ = ["LocalStore"]

_PREFIX: Final = "sha256:"
_FANOUT: Final = re.compile(r"[0-9a-f]{2}")
_LINK_TRIES: Final = 8
"""Each further try needs somebody who damages or removes the object in between."""


class LocalStore:
    """Objects in a folder of this machine; satisfies :class:`~autocode.jobs.store.base.ObjectStore`.

    ``docs/store.md`` has the layout and what is left after a crash at each point. Nothing is made on disk
    before the first :meth:`stage`, so a store on a read-only disk can be read and verified.

    Args:
        root: the store's folder, on a local file system with hard links. It holds ``objects/`` and
            ``quarantine/``.
        clock: seconds since the epoch, for the note beside a quarantined object.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.root = root
        self.quarantine = root / "quarantine"
        self._objects = root / "objects" / "sha256"
        self._temp = self._objects / "tmp"
        self._lock = self._objects / "lock"
        self._clock = clock
        self._durable: set[Path] = set()

    def path_of(self, digest: str) -> Path:
        """Return where the object of this digest is kept, whether or not it exists.

        Raises:
            UsageError: *digest* isn't a digest.
        """
        if not is_digest(digest):
            raise UsageError(f"{digest!r} is not a digest.", hint="A digest is sha256: and 64 hex digits.")
        name = digest.removeprefix(_PREFIX)
        return self._objects / name[:2] / name

    def stage(self) -> LocalStaging:
        """Begin a new object; see :meth:`ObjectStore.stage <autocode.jobs.store.base.ObjectStore.stage>`."""
        with posix.explained(self.root):
            self._ensure(self._temp)
            return LocalStaging(self._temp, root=self.root, link=self._link, sync=self._sync)

    def adopt(self, handed: Handed) -> LocalStaging:
        """Take over a finished object that another process wrote; see :meth:`LocalStaging.hand_over`."""
        return LocalStaging(self._temp, root=self.root, link=self._link, sync=self._sync, handed=handed)

    def publish_all(self, stagings: Sequence[LocalStaging]) -> None:
        """Make several ended objects durable and visible: first all bytes, then all names.

        The disk is asked to write everything before anything is waited for; each folder is synced once, and
        so is the one above them, where some of them are new to this process. Not
        atomic: after an error some of them are visible. Raises what :meth:`Staging.publish
        <autocode.jobs.store.base.Staging.publish>` raises.
        """
        for staging in stagings:
            staging.write_out()
        infos = [staging.finish() for staging in stagings]
        with posix.explained(self.root):
            self._ensure_fanout(info.digest for info in infos)
        digests = [staging.link().digest for staging in stagings]
        with posix.explained(self.root):
            for folder in sorted({self.path_of(digest).parent for digest in digests}):
                posix.sync_folder(folder)

    def open(self, digest: str) -> VerifiedReader:
        """Open an object; see :meth:`ObjectStore.open <autocode.jobs.store.base.ObjectStore.open>`."""
        file = self.open_stored(digest)

        def on_damage(reason: str) -> NoReturn:
            self._condemn(digest, reason, file)

        stored_size = os.fstat(file.fileno()).st_size
        try:
            trailer = read_trailer(file, stored_size)
        except Damage as damage:
            with file:
                on_damage(str(damage))
        except OSError as error:
            with file:
                on_damage(f"it can't be read: {error.strerror}")
        info = ObjectInfo(digest, trailer.size, stored_size)
        return VerifiedReader(file, info=info, trailer=trailer, on_damage=on_damage)

    def open_stored(self, digest: str) -> BinaryIO:
        """Open the bytes of an object as they lie here, to be copied; proves nothing (see ``prove_stored``).

        Raises:
            ObjectMissing: there is no such object.
            ObjectCorrupt: something else than a file stands in its place; it is in quarantine.
        """
        with posix.explained(self.root):
            try:
                return posix.open_regular(self.path_of(digest))
            except FileNotFoundError:
                raise ObjectMissing(f"Object {digest} is not in the store.", digest=digest) from None
            except posix.NotAFile:
                self._condemn(digest, "it is no regular file", None)

    def stat(self, digest: str) -> ObjectInfo | None:
        """Return the sizes; see :meth:`ObjectStore.stat <autocode.jobs.store.base.ObjectStore.stat>`."""
        try:
            with self.open(digest) as reader:
                return reader.info
        except ObjectMissing:
            return None

    def verify(self, digest: str) -> ObjectInfo:
        """Prove an object; see :meth:`ObjectStore.verify <autocode.jobs.store.base.ObjectStore.verify>`."""
        buffer = bytearray(CHUNK)
        with self.open(digest) as reader:
            while reader.readinto(buffer):
                pass
            return reader.info

    def check(self, digest: str) -> ObjectInfo:
        """Compare checksums; see :meth:`ObjectStore.check <autocode.jobs.store.base.ObjectStore.check>`."""
        with self.open(digest) as reader:
            reader.check()
            return reader.info

    def list(self, after: str | None = None) -> Iterator[str]:
        """Yield the digests; see :meth:`ObjectStore.list <autocode.jobs.store.base.ObjectStore.list>`."""
        start = "" if after is None else self.path_of(after).name
        for folder in _names(self._objects):
            if _FANOUT.fullmatch(folder) and folder >= start[:2]:
                for name in _names(self._objects / folder):
                    if name > start and name.startswith(folder) and is_digest(_PREFIX + name):
                        yield _PREFIX + name

    def delete(self, digest: str) -> bool:
        """Remove an object; see :meth:`ObjectStore.delete <autocode.jobs.store.base.ObjectStore.delete>`."""
        path = self.path_of(digest)
        if not self._lock.parent.is_dir():
            return False
        with posix.explained(self.root), posix.exclusive(self._lock):
            try:
                path.unlink()
            except FileNotFoundError:
                return False
            posix.sync_folder(path.parent)
        return True

    def sweep_temp(self) -> int:
        """Remove the temp files of writers that are gone and return their number. Idempotent.

        A writer holds a lock on its temp file, so a file that can be locked has none: neither age nor pid
        is guessed from. Safe beside living writers and other sweeps.

        Raises:
            HomeUnusable: the store can't be written to.
        """
        swept = 0
        with posix.explained(self.root):
            for name in fnmatch.filter(_names(self._temp), "*.tmp"):
                path = self._temp / name
                try:
                    file = posix.open_regular(path)
                except (FileNotFoundError, posix.NotAFile):
                    continue
                with file:
                    if posix.is_abandoned(file) and posix.same_file(path, file):
                        path.unlink(missing_ok=True)
                        swept += 1
        return swept

    def _ensure(self, folder: Path) -> None:
        # its entry has to be made durable once a process; that it still exists is looked at every time
        if folder in self._durable and folder.is_dir():
            return
        if folder == self.root:
            folder.parent.mkdir(parents=True, exist_ok=True)
        else:
            self._ensure(folder.parent)
        posix.make_folders(folder.parent, [folder.name])
        self._durable.add(folder)

    def _ensure_fanout(self, digests: Iterable[str]) -> None:
        """Make the folders of these objects: their entries become durable together."""
        folders = {self.path_of(digest).parent for digest in digests}
        missing = {folder for folder in folders if folder not in self._durable or not folder.is_dir()}
        if missing:
            self._ensure(self._objects)
            posix.make_folders(self._objects, sorted(folder.name for folder in missing))
            self._durable |= missing

    def _link(self, temp: Path, info: ObjectInfo) -> ObjectInfo:
        path = self.path_of(info.digest)
        self._ensure(path.parent)
        for left in reversed(range(_LINK_TRIES)):
            try:
                os.link(temp, path)
                break
            except FileExistsError:
                try:
                    info = self.verify(info.digest)
                    break
                except (ObjectMissing, ObjectCorrupt):
                    if not left:
                        raise
        temp.unlink(missing_ok=True)
        return info

    def _sync(self, digest: str) -> None:
        posix.sync_folder(self.path_of(digest).parent)

    def _condemn(self, digest: str, reason: str, file: BinaryIO | None) -> NoReturn:
        try:
            name = self._quarantine(digest, reason, file)
            where = (
                f"it was moved to quarantine/{name}" if name else "somebody replaced or removed it meanwhile"
            )
        except OSError as error:
            name, where = None, f"it could not be moved away ({error.strerror})"
        raise ObjectCorrupt(
            f"Object {digest} is damaged: {reason}; {where}.",
            digest=digest,
            reason=reason,
            quarantined=name,
        )

    def _quarantine(self, digest: str, reason: str, file: BinaryIO | None) -> str | None:
        path = self.path_of(digest)
        self._ensure(self.quarantine)
        with posix.exclusive(self._lock):
            # somebody may have put a sound object there since; only lock holders take names away, so what
            # is seen here stays until the rename
            if not (_is_no_file(path) if file is None else posix.same_file(path, file)):
                return None
            name = f"{path.name}.{secrets.token_hex(4)}"
            path.rename(self.quarantine / name)
        posix.sync_folder(path.parent)
        self._note(name, digest, reason)
        posix.sync_folder(self.quarantine)
        return name

    def _note(self, name: str, digest: str, reason: str) -> None:
        found_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        note = canonical_json({"digest": digest, "found_at": found_at, "reason": reason})
        # a full disk must not keep a damaged object in its place: the note is for people, the move counts
        with suppress(OSError):
            file = os.open(self.quarantine / f"{name}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                posix.write_all(file, note + b"\n")
                os.fsync(file)
            finally:
                os.close(file)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_no_file(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False
