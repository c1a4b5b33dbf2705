"""The local store: its layout, what it does about damage, and what it does when the disk says no."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from autocode.jobs import crash
from autocode.jobs.canonical import digest_of
from autocode.jobs.errors import DiskFull, HomeUnusable, ObjectCorrupt, ObjectMissing
from autocode.jobs.store import LocalStore, ObjectInfo, put_bytes, put_chunks, verify_objects, verify_store

MIB = 1 << 20
TEXT = b"what the agent said\n" * 100


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Return an empty store whose clock stands still."""
    return LocalStore(tmp_path / "home" / "store", clock=lambda: 1_700_000_000.0)


@pytest.fixture
def _disarmed() -> Iterator[None]:
    yield
    crash.disarm()


def files_below(folder: Path) -> list[str]:
    """Return the names of all files below *folder* but the lock."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != "lock")


def truncate(store: LocalStore, digest: str) -> None:
    """Cut the last byte off an object, in a file of its own."""
    path = store.path_of(digest)
    stored = path.read_bytes()
    path.unlink()
    path.write_bytes(stored[:-1])


class TestLayout:
    """What is on disk."""

    def test_an_object_is_a_read_only_file_in_private_folders(self, store: LocalStore) -> None:
        """Objects are 0444 at objects/sha256/ab/<hex>; every folder is 0700."""
        info = put_bytes(store, TEXT)

        name = hashlib.sha256(TEXT).hexdigest()
        path = store.root / "objects" / "sha256" / name[:2] / name

        assert store.path_of(info.digest) == path
        assert stat.S_IMODE(path.stat().st_mode) == 0o444
        assert path.stat().st_size == info.stored_size
        folders = [store.root, *(item for item in store.root.rglob("*") if item.is_dir())]
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}

    def test_an_object_is_a_plain_zstd_stream(self, store: LocalStore) -> None:
        """A decoder that knows nothing of us reads the content and skips our trailer."""
        info = put_bytes(store, TEXT)

        with store.path_of(info.digest).open("rb") as file:
            content = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()

        assert content == TEXT

    def test_a_temp_file_is_private_and_goes_with_publish(self, store: LocalStore) -> None:
        """While it is written an object is a 0600 file in objects/sha256/tmp, gone once published."""
        folder = store.root / "objects" / "sha256" / "tmp"

        with store.stage() as staging:
            staging.write(TEXT)
            (temp,) = folder.iterdir()
            assert stat.S_IMODE(temp.stat().st_mode) == 0o600
            staging.publish()

        assert list(folder.iterdir()) == []

    def test_reading_makes_nothing(self, store: LocalStore) -> None:
        """A store that was never written to is empty, and asking it changes nothing on disk."""
        assert list(store.list()) == []
        assert store.stat(digest_of(TEXT)) is None
        assert store.delete(digest_of(TEXT)) is False
        assert store.sweep_temp() == 0
        assert verify_store(store).checked == 0
        assert not store.root.exists()

    def test_strange_files_are_not_objects(self, store: LocalStore) -> None:
        """Listing leaves out temp files, the lock, and names that are no digest or in the wrong folder."""
        info = put_bytes(store, TEXT)
        path = store.path_of(info.digest)
        (path.parent / "README").write_text("a note")
        (path.parent / path.name.swapcase()).write_text("upper case")
        other = path.parent.parent / ("00" if path.parent.name != "00" else "01")
        other.mkdir()
        (other / path.name).write_text("in the wrong folder")

        assert list(store.list()) == [info.digest]

    def test_a_folder_that_somebody_removed_is_made_again(self, store: LocalStore) -> None:
        """A living store doesn't trust its memory of folders."""
        info = put_bytes(store, TEXT)
        store.delete(info.digest)
        store.path_of(info.digest).parent.rmdir()

        assert put_bytes(store, TEXT) == info
        assert store.verify(info.digest) == info

    def test_content_is_durable_before_its_name(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The file is synced before the link, the folder after it, and the folder's own entry as well."""
        path = store.path_of(digest_of(TEXT))
        names: dict[int, str] = {}
        log: list[str] = []
        open_, fsync, link = os.open, os.fsync, os.link

        def logged_open(target: Path, *rest: int) -> int:
            file = open_(target, *rest)
            names[file] = Path(target).suffix or Path(target).name
            return file

        def logged_fsync(file: int) -> None:
            log.append(f"sync {names[file]}")
            fsync(file)

        def logged_link(source: Path, target: Path) -> None:
            log.append("link")
            link(source, target)

        monkeypatch.setattr(os, "open", logged_open)
        monkeypatch.setattr(os, "fsync", logged_fsync)
        monkeypatch.setattr(os, "link", logged_link)
        put_bytes(store, TEXT)

        before, after = log[: log.index("link")], log[log.index("link") + 1 :]
        assert {"sync .tmp", "sync home", "sync store", "sync objects", "sync sha256"} == set(before)
        assert after == [f"sync {path.parent.name}"]

    def test_objects_published_together_are_durable_before_the_first_name(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All files are synced, then new folders' entries at once; then come all links, then each folder."""
        store.delete(put_bytes(store, TEXT).digest)
        log: list[str] = []
        fsync, link = os.fsync, os.link

        def logged_fsync(file: int) -> None:
            log.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
            fsync(file)

        def logged_link(source: Path, target: Path) -> None:
            log.append("link")
            link(source, target)

        stagings = [store.stage() for _ in range(3)]
        for number, staging in enumerate(stagings):
            staging.write(TEXT + bytes([number]))
            staging.end()
        monkeypatch.setattr(os, "fsync", logged_fsync)
        monkeypatch.setattr(os, "link", logged_link)
        store.publish_all(stagings)

        digests = [digest_of(TEXT + bytes([number])) for number in range(3)]
        folders = len({store.path_of(digest).parent for digest in digests})
        assert log == ["file"] * 3 + ["folder"] + ["link"] * 3 + ["folder"] * folders
        assert [store.verify(digest).digest for digest in digests] == digests
        assert list(store.root.rglob("*.tmp")) == []

    def test_an_object_that_was_handed_over_belongs_to_whoever_adopts_it(self, store: LocalStore) -> None:
        """Its writer can drop it no more, a sweep lets it be, and the adopter publishes it."""
        with store.stage() as staging:
            staging.write(TEXT)
            handed = staging.hand_over()
        swept = store.sweep_temp()

        info = store.adopt(handed).publish()

        assert swept == 0
        assert info.digest == digest_of(TEXT)
        assert store.verify(info.digest) == info
        assert list(store.root.rglob("*.tmp")) == []


class TestQuarantine:
    """What happens to what is damaged."""

    def test_a_damaged_object_is_kept_with_a_note(self, store: LocalStore) -> None:
        """The bytes go to quarantine as they are, beside a note that says what, when and why."""
        info = put_bytes(store, TEXT)
        truncate(store, info.digest)
        stored = store.path_of(info.digest).read_bytes()

        with pytest.raises(ObjectCorrupt) as caught:
            store.open(info.digest)

        name = caught.value.data["quarantined"]
        assert (store.quarantine / name).read_bytes() == stored
        assert json.loads((store.quarantine / f"{name}.json").read_text()) == {
            "digest": info.digest,
            "found_at": "2023-11-14T22:13:20Z",
            "reason": "it doesn't end in a trailer: truncated, appended to, or no object at all",
        }
        assert files_below(store.root / "objects") == []

    def test_damage_twice_is_kept_twice(self, store: LocalStore) -> None:
        """A second damaged object of the same digest doesn't replace the first in quarantine."""
        for _ in range(2):
            info = put_bytes(store, TEXT)
            truncate(store, info.digest)
            with pytest.raises(ObjectCorrupt):
                store.verify(info.digest)

        assert len(files_below(store.quarantine)) == 4

    @pytest.mark.parametrize("thing", ["link", "dangling link", "folder", "pipe", "socket"])
    def test_what_is_no_file_is_moved_away(self, store: LocalStore, tmp_path: Path, thing: str) -> None:
        """Nothing but a regular file is an object: links aren't followed, pipes aren't waited for."""
        info = put_bytes(store, TEXT)
        path = store.path_of(info.digest)
        sound = tmp_path / "elsewhere"
        path.rename(sound)
        make: dict[str, Callable[[], object]] = {
            "link": lambda: path.symlink_to(sound),
            "dangling link": lambda: path.symlink_to(tmp_path / "nothing"),
            "folder": path.mkdir,
            "pipe": lambda: os.mkfifo(path),
            "socket": lambda: _bind(path),
        }
        make[thing]()

        (verdict,) = verify_objects(store)

        assert (verdict.digest, verdict.state) == (info.digest, "damaged")
        assert "no regular file" in verdict.detail
        assert not os.path.lexists(path)
        assert sound.exists()
        assert put_bytes(store, TEXT) == info

    def test_a_late_reader_takes_no_sound_object_away(self, store: LocalStore) -> None:
        """A reader of a damaged file, repaired meanwhile, raises and leaves the new file in place."""
        info = put_bytes(store, bytes(MIB))
        path = store.path_of(info.digest)
        stored = bytearray(path.read_bytes())
        stored[10] ^= 1
        path.unlink()
        path.write_bytes(stored)
        late = store.open(info.digest)
        put_bytes(store, bytes(MIB))

        with pytest.raises(ObjectCorrupt) as caught:
            late.read_all(limit=MIB)

        assert caught.value.data["quarantined"] is None
        assert "replaced or removed it" in caught.value.detail
        assert store.verify(info.digest) == info

    def test_damage_on_a_disk_that_takes_no_writes_is_still_told(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where the object can't be moved away, the error says so and is the same error."""
        info = put_bytes(store, TEXT)
        truncate(store, info.digest)
        monkeypatch.setattr(os, "rename", _failing(errno.EROFS))

        with pytest.raises(ObjectCorrupt, match="could not be moved away") as caught:
            store.verify(info.digest)

        assert caught.value.data["quarantined"] is None

    def test_a_put_gives_up_where_damage_stays(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A damaged object that can't be moved away fails the put; it is never taken for the sound one."""
        info = put_bytes(store, TEXT)
        truncate(store, info.digest)
        monkeypatch.setattr(os, "rename", _failing(errno.EIO))

        with pytest.raises(ObjectCorrupt):
            put_bytes(store, TEXT)

        assert files_below(store.root / "objects" / "sha256" / "tmp") == []

    def test_a_full_disk_keeps_no_damage_in_place(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without room for the note the object is moved all the same."""
        info = put_bytes(store, TEXT)
        truncate(store, info.digest)
        monkeypatch.setattr(os, "write", _failing(errno.ENOSPC))

        with pytest.raises(ObjectCorrupt) as caught:
            store.verify(info.digest)

        assert (store.quarantine / caught.value.data["quarantined"]).exists()
        assert list(store.list()) == []


class TestRefusals:
    """What happens when the system says no."""

    @pytest.mark.parametrize("call", ["open", "write", "fchmod", "fsync", "link", "mkdir"])
    @pytest.mark.parametrize(
        ("number", "error"),
        [
            (errno.ENOSPC, DiskFull),
            (errno.EDQUOT, DiskFull),
            (errno.EROFS, HomeUnusable),
            (errno.EACCES, HomeUnusable),
            (errno.EIO, OSError),
        ],
    )
    def test_a_refused_call_leaves_nothing_behind(
        self,
        store: LocalStore,
        monkeypatch: pytest.MonkeyPatch,
        call: str,
        number: int,
        error: type[Exception],
    ) -> None:
        """Whichever call is refused, the error says why, no temp file stays, and the next put succeeds."""
        with monkeypatch.context() as patch:
            patch.setattr(os, call, _failing(number))
            with pytest.raises(error) as caught:
                put_bytes(store, TEXT)

        if isinstance(caught.value, HomeUnusable):
            assert str(store.root) in caught.value.hint
        assert files_below(store.root) == []
        assert store.verify(put_bytes(store, TEXT).digest).size == len(TEXT)

    def test_a_disk_that_fills_up_half_way_leaves_nothing(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A write that is refused after others succeeded discards them; the object takes no more bytes."""
        noise = os.urandom(MIB)
        with store.stage() as staging:
            staging.write(noise)
            monkeypatch.setattr(os, "write", _failing(errno.ENOSPC))
            with pytest.raises(DiskFull):
                staging.write(noise)

            assert files_below(store.root) == []
            with pytest.raises(ValueError, match="discarded"):
                staging.write(noise)

    def test_a_refused_publish_discards_at_once(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A publish that fails leaves nothing behind, also before the ``with`` block is left."""
        with store.stage() as staging:
            staging.write(TEXT)
            monkeypatch.setattr(os, "link", _failing(errno.EDQUOT))
            with pytest.raises(DiskFull):
                staging.publish()

            assert files_below(store.root) == []

    def test_a_write_in_parts_is_completed(self, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """A system that takes seven bytes at a time gets all of them."""
        write = os.write
        monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))

        info = put_bytes(store, TEXT)

        assert store.verify(info.digest) == info

    def test_a_file_in_the_place_of_the_home_is_named(self, store: LocalStore) -> None:
        """A file where the store's folder should be makes the home unusable, with a hint."""
        store.root.parent.mkdir()
        store.root.write_text("not a folder")

        with pytest.raises(HomeUnusable, match="a file stands where a folder should be"):
            store.stage()

    def test_an_object_that_may_not_be_read_is_not_damaged(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A permission problem is the home's, and moves nothing to quarantine."""
        info = put_bytes(store, TEXT)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", _failing(errno.EACCES))
            with pytest.raises(HomeUnusable):
                store.verify(info.digest)

        assert store.verify(info.digest) == info


class TestSweep:
    """Temp files of writers that are gone."""

    def test_only_what_nobody_locks_is_swept(self, store: LocalStore) -> None:
        """A living writer keeps its temp file; one that nobody holds goes; a strange file stays."""
        folder = store.root / "objects" / "sha256" / "tmp"
        with store.stage() as staging:
            staging.write(TEXT)
            (folder / "1-orphan.tmp").write_bytes(b"half an object")
            (folder / "somebody's note").write_text("not ours")

            assert store.sweep_temp() == 1
            assert staging.publish().size == len(TEXT)

        assert store.sweep_temp() == 0
        assert files_below(folder) == ["somebody's note"]

    def test_a_writer_that_is_swept_before_it_locks_begins_anew(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A sweep between creating and locking a temp file costs the writer nothing."""
        flock = fcntl.flock
        swept: list[int] = []

        def sweep_first(file: int, operation: int) -> None:
            if not swept:
                swept.append(0)
                swept[0] = store.sweep_temp()
            flock(file, operation)

        monkeypatch.setattr(fcntl, "flock", sweep_first)
        info = put_bytes(store, TEXT)

        assert swept == [1]
        assert store.verify(info.digest) == info

    def test_a_link_that_lost_its_temp_name_is_no_harm(self, store: LocalStore) -> None:
        """What a writer that died between link and unlink leaves is swept; the object stays."""
        info = put_bytes(store, TEXT)
        temp = store.root / "objects" / "sha256" / "tmp" / "1-left.tmp"
        temp.hardlink_to(store.path_of(info.digest))

        assert store.sweep_temp() == 1
        assert store.verify(info.digest) == info


@pytest.mark.usefixtures("_disarmed")
class TestCrashPoint:
    """Where ``step.mid-write`` is passed."""

    @pytest.mark.parametrize(
        ("size", "cut", "passages"),
        [
            (0, 1000, 0),
            (1, 1000, 1),
            (MIB - 1, 1000, 1),
            (MIB, 1000, 2),
            (MIB, MIB, 2),
            (3 * MIB + 1, 1000, 4),
            (3 * MIB + 1, MIB - 1, 4),
            (3 * MIB + 1, 1 << 30, 4),
        ],
    )
    def test_it_is_passed_at_the_first_bytes_and_at_every_mib(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch, size: int, cut: int, passages: int
    ) -> None:
        """However the content is cut, it is passed once more than there are full MiB, and never if empty."""
        passed: list[str] = []
        monkeypatch.setattr(crash, "at", passed.append)

        put_chunks(store, (bytes(min(cut, size - start)) for start in range(0, size, cut)))

        assert passed == ["step.mid-write"] * passages

    def test_bytes_have_reached_the_file_by_then(self, store: LocalStore) -> None:
        """At the first passage the temp file isn't empty; the raised crash leaves nothing."""
        crash.arm("step.mid-write=raise", tokens=None)
        folder = store.root / "objects" / "sha256" / "tmp"

        with store.stage() as staging:
            with pytest.raises(crash.CrashRaised):
                staging.write(b"x")
            sizes = [path.stat().st_size for path in folder.iterdir()]

        assert len(sizes) == 1
        assert sizes[0] > 0
        assert files_below(store.root) == []


def test_an_object_that_goes_during_a_scan_is_missing_not_damaged(store: LocalStore) -> None:
    """A scan counts what was deleted between listing and reading apart from damage, and stays sound."""
    gone = put_bytes(store, TEXT).digest
    kept = put_bytes(store, b"kept").digest

    class Deleting(LocalStore):
        def verify(self, digest: str) -> ObjectInfo:
            if digest == gone:
                self.delete(gone)
            return super().verify(digest)

    report = verify_store(Deleting(store.root))

    assert report.missing == [gone]
    assert report.as_dict() == {
        "checked": 2,
        "bytes": 4,
        "damaged": [],
        "missing": [gone],
        "cursor": max(gone, kept),
        "ok": True,
    }
    with pytest.raises(ObjectMissing):
        store.verify(gone)


def _failing(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def _bind(path: Path) -> None:
    # by its short name: a socket's address has a length limit that a test folder's path may exceed
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
