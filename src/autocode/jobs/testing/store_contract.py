"""What every object store must do, as a test class to inherit from.

A backend's own test is a subclass named ``Test…`` with a ``store`` fixture and a ``tamper`` method::

    class TestLocalStore(StoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return LocalStore(tmp_path / "store")

        def tamper(self, store, digest, change):
            path = store.path_of(digest)
            stored = change(path.read_bytes())
            path.unlink()
            path.write_bytes(stored)
"""

from __future__ import annotations

import functools
import hashlib
import io
import threading
from collections.abc import Callable
from typing import Any

import pytest

from autocode.jobs.canonical import digest_of
from autocode.jobs.errors import ObjectCorrupt, ObjectMissing, UsageError
from autocode.jobs.store import ObjectInfo, ObjectStore, put_bytes, put_chunks, verify_objects, verify_store

__all__ = ["StoreContract"]

_MIB = 1 << 20
_TEXT = b'{"role": "user", "text": "hello"}\n' * 500
_NOISE = b"".join(hashlib.sha256(n.to_bytes(4)).digest() for n in range(_MIB * 5 // 64))
_CONTENTS = [
    pytest.param(b"", id="empty"),
    pytest.param(b"x", id="one-byte"),
    pytest.param(_TEXT, id="text"),
    pytest.param(bytes(3 * _MIB), id="zeros"),
    pytest.param(_NOISE, id="incompressible"),
]

_DAMAGES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "emptied": lambda _stored, _other: b"",
    "first-byte-gone": lambda stored, _other: stored[1:],
    "last-byte-gone": lambda stored, _other: stored[:-1],
    "cut-in-the-middle": lambda stored, _other: stored[: len(stored) // 2],
    "hole-of-zeros": lambda stored, _other: stored[:20] + bytes(20) + stored[40:],
    "one-bit-flipped": lambda stored, _other: _flip(30, 1, stored),
    "other-content-well-formed": lambda _stored, other: other,
    "garbage-appended": lambda stored, _other: stored + b"\n",
    "other-object-appended": lambda stored, other: stored + other,
    "itself-appended": lambda stored, _other: stored + stored,
    "no-zstd-at-all": lambda _stored, _other: b"plain text, long enough to hold a trailer",
}


def _flip(index: int, mask: int, stored: bytes) -> bytes:
    return stored[:index] + bytes([stored[index] ^ mask]) + stored[index + 1 :]


class StoreContract:
    """The contract of :class:`~autocode.jobs.store.ObjectStore`; see the module's docstring for its use."""

    @pytest.fixture
    def store(self) -> Any:
        """Return an empty store. To be overridden."""
        raise NotImplementedError

    def tamper(self, store: Any, digest: str, change: Callable[[bytes], bytes]) -> None:
        """Replace the stored bytes of *digest* by ``change(stored bytes)``. To be overridden."""
        raise NotImplementedError

    @pytest.mark.parametrize("content", _CONTENTS)
    def test_what_was_put_is_read_back(self, store: ObjectStore, content: bytes) -> None:
        """An object reads back byte for byte, under the digest of its uncompressed bytes."""
        info = put_bytes(store, content)

        with store.open(info.digest) as reader:
            actual = reader.read_all(limit=len(content))

        assert actual == content
        assert (info.digest, info.size) == (digest_of(content), len(content))
        assert reader.verified is True

    def test_how_the_content_was_cut_does_not_matter(self, store: ObjectStore) -> None:
        """Chunks of any size, empty ones included, give the same object as one write."""
        whole = put_bytes(store, _TEXT)

        cut = put_chunks(store, [b"", _TEXT[:1], b"", _TEXT[1:5000], bytearray(_TEXT[5000:])])

        assert cut == whole
        assert list(store.list()) == [whole.digest]

    def test_putting_twice_is_putting_once(self, store: ObjectStore) -> None:
        """A second put of the same bytes succeeds, reports the same info and adds nothing."""
        first = put_bytes(store, _TEXT)

        second = put_bytes(store, _TEXT)

        assert second == first
        assert list(store.list()) == [first.digest]

    def test_nothing_is_visible_before_publish(self, store: ObjectStore) -> None:
        """Between finish and publish the digest is known and the object is not there yet."""
        with store.stage() as staging:
            staging.write(_TEXT)
            info = staging.finish()

            assert store.stat(info.digest) is None
            assert list(store.list()) == []
            assert staging.publish() == info
            assert store.stat(info.digest) == info

    def test_leaving_without_publish_discards(self, store: ObjectStore) -> None:
        """A staged object that is not published leaves nothing, finished or not, error or not."""
        with store.stage() as staging:
            staging.write(_TEXT)
            info = staging.finish()
        with pytest.raises(ZeroDivisionError):
            put_chunks(store, (1 // n * _TEXT for n in (1, 0)))

        assert store.stat(info.digest) is None
        assert list(store.list()) == []

    def test_staging_in_the_wrong_order_is_refused(self, store: ObjectStore) -> None:
        """Writing after finish, and publishing what was discarded, are errors; repeating a step is none."""
        with store.stage() as staging:
            staging.write(b"x")
            assert staging.finish() == staging.finish()
            with pytest.raises(ValueError, match="no more bytes"):
                staging.write(b"y")
            assert staging.publish() == staging.publish()
            staging.discard()
            assert store.stat(digest_of(b"x")) is not None
        with store.stage() as staging:
            staging.discard()
            staging.discard()
            with pytest.raises(ValueError, match="discarded"):
                staging.publish()

    def test_a_missing_object_is_missing(self, store: ObjectStore) -> None:
        """Opening or verifying an unknown digest raises, stat says None, delete says False."""
        digest = digest_of(b"never put")

        with pytest.raises(ObjectMissing):
            store.open(digest)
        with pytest.raises(ObjectMissing):
            store.verify(digest)
        assert store.stat(digest) is None
        assert store.delete(digest) is False

    @pytest.mark.parametrize(
        "digest", ["", "sha256:", "sha256:../../x", "md5:" + "0" * 32, "sha256:" + "A" * 64]
    )
    def test_what_is_no_digest_is_refused(self, store: ObjectStore, digest: str) -> None:
        """A text that isn't a digest in its written form names nothing in the store."""
        for call in (store.open, store.stat, store.verify, store.delete, lambda text: next(store.list(text))):
            with pytest.raises(UsageError):
                call(digest)

    def test_list_is_sorted_and_resumable(self, store: ObjectStore) -> None:
        """Listing ascends, and goes on strictly after any digest, present in the store or not."""
        digests = sorted(put_bytes(store, str(n).encode()).digest for n in range(40))
        gone = digests[20]
        store.delete(gone)

        assert list(store.list()) == [digest for digest in digests if digest != gone]
        assert list(store.list(digests[10])) == digests[11:20] + digests[21:]
        assert list(store.list(gone)) == digests[21:]
        assert list(store.list(digests[-1])) == []

    def test_delete_removes_and_is_idempotent(self, store: ObjectStore) -> None:
        """A deleted object is gone at once, the second delete finds nothing, and it can be put again."""
        info = put_bytes(store, _TEXT)

        assert store.delete(info.digest) is True
        assert store.delete(info.digest) is False
        assert store.stat(info.digest) is None
        assert put_bytes(store, _TEXT) == info

    @pytest.mark.parametrize("damage", _DAMAGES)
    def test_damage_is_found_and_moved_away(self, store: ObjectStore, damage: str) -> None:
        """Verify finds any change of the stored bytes; the object is then missing and can be put again."""
        info = self._damaged(store, damage)

        with pytest.raises(ObjectCorrupt) as caught:
            store.verify(info.digest)

        assert caught.value.data["digest"] == info.digest
        assert caught.value.data["quarantined"]
        with pytest.raises(ObjectMissing):
            store.verify(info.digest)
        assert put_bytes(store, _TEXT) == info
        assert store.verify(info.digest) == info

    @pytest.mark.parametrize("damage", _DAMAGES)
    def test_a_reader_never_hands_out_a_whole_damaged_object(self, store: ObjectStore, damage: str) -> None:
        """Damage is raised before the reader has given as many bytes as the object is said to have."""
        info = self._damaged(store, damage)
        seen = bytearray()

        def read() -> None:
            with store.open(info.digest) as reader:
                while len(seen) < info.size and (piece := reader.read(1000)):
                    seen.extend(piece)

        with pytest.raises(ObjectCorrupt):
            read()

        assert len(seen) < info.size

    @pytest.mark.parametrize("damage", _DAMAGES)
    def test_a_put_over_a_damaged_object_repairs_it(self, store: ObjectStore, damage: str) -> None:
        """Publishing never trusts what is there: a damaged object is replaced by the sound one."""
        info = self._damaged(store, damage)

        assert put_bytes(store, _TEXT) == info
        assert store.verify(info.digest) == info

    def test_a_flipped_bit_is_found_in_every_byte(self, store: ObjectStore) -> None:
        """No byte of a stored object can change unnoticed, not even where it decodes to the same content."""
        info = put_bytes(store, b"abc")
        missed = []

        for index in range(info.stored_size):
            self.tamper(store, info.digest, functools.partial(_flip, index, 1 << index % 8))
            try:
                store.verify(info.digest)
                missed.append(index)
            except ObjectCorrupt:
                put_bytes(store, b"abc")

        assert missed == []

    def test_a_check_finds_a_flipped_bit_without_decompressing(self, store: ObjectStore) -> None:
        """No byte of a stored object but the eight of its size can change unseen by a check."""
        info = put_bytes(store, b"abc")
        missed = []

        for index in range(info.stored_size):
            self.tamper(store, info.digest, functools.partial(_flip, index, 1 << index % 8))
            try:
                store.check(info.digest)
                missed.append(index)
                store.delete(info.digest)
            except ObjectCorrupt:
                pass
            put_bytes(store, b"abc")

        assert missed == list(range(info.stored_size - 12, info.stored_size - 4))
        assert store.check(info.digest) == info

    def test_a_reader_stopped_half_way_proves_nothing(self, store: ObjectStore) -> None:
        """Closing early raises nothing and claims nothing, also where the unread part is damaged."""
        info = put_bytes(store, _NOISE)
        self.tamper(store, info.digest, lambda stored: stored[:-40] + bytes(4) + stored[-36:])

        with store.open(info.digest) as reader:
            piece = reader.read(10)

        assert piece == _NOISE[:10]
        assert reader.verified is False
        with pytest.raises(ObjectCorrupt):
            store.verify(info.digest)

    def test_a_reader_is_a_binary_file(self, store: ObjectStore) -> None:
        """It reads, fills buffers, iterates in chunks, and gives lines when buffered."""
        info = put_bytes(store, _TEXT)
        buffer = bytearray(7)

        with store.open(info.digest) as reader:
            assert (reader.readinto(buffer), bytes(buffer), reader.tell()) == (7, _TEXT[:7], 7)
            assert b"".join(reader) == _TEXT[7:]
            assert (reader.read(1), reader.readable(), reader.seekable()) == (b"", True, False)
        with io.BufferedReader(store.open(info.digest)) as lines:
            assert lines.readlines() == _TEXT.splitlines(keepends=True)
        with pytest.raises(ValueError, match="closed"):
            reader.read(1)

    def test_read_all_keeps_its_limit(self, store: ObjectStore) -> None:
        """An object larger than the limit is refused before it is read."""
        info = put_bytes(store, bytes(_MIB))

        with pytest.raises(UsageError, match=str(_MIB)):
            store.open(info.digest).read_all(limit=_MIB - 1)

    def test_many_writers_of_one_object_all_succeed(self, store: ObjectStore) -> None:
        """Writers of the same bytes at the same moment get the same info, and one object is there."""
        start = threading.Barrier(8)
        infos: list[ObjectInfo] = []

        def write() -> None:
            with store.stage() as staging:
                staging.write(_TEXT)
                start.wait(30)
                infos.append(staging.publish())

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert infos == [store.verify(digest_of(_TEXT))] * 8
        assert list(store.list()) == [digest_of(_TEXT)]

    def test_a_scan_goes_on_past_damage(self, store: ObjectStore) -> None:
        """Verifying a store counts every object, names the damaged one, and finds it gone the next time."""
        digests = sorted(put_bytes(store, bytes([n]) * 100).digest for n in range(10))
        self.tamper(store, digests[4], lambda stored: stored[:-1])
        cursors: list[str | None] = []

        report = verify_store(store, progress=lambda running: cursors.append(running.cursor))

        assert (report.checked, report.bytes, report.ok) == (10, 900, False)
        assert [verdict.digest for verdict in report.damaged] == [digests[4]]
        assert cursors == digests
        assert (verify_store(store).checked, verify_store(store).ok) == (9, True)

    def test_a_scan_goes_on_where_it_stopped(self, store: ObjectStore) -> None:
        """The last digest looked at is all that a later scan needs."""
        digests = sorted(put_bytes(store, bytes([n])).digest for n in range(6))
        scan = verify_objects(store)
        seen = [next(scan).digest for _ in range(3)]

        rest = verify_store(store, after=seen[-1])

        assert seen == digests[:3]
        assert (rest.checked, rest.cursor) == (3, digests[-1])

    def _damaged(self, store: ObjectStore, damage: str) -> ObjectInfo:
        other = put_bytes(store, b"something else")
        stored_other = b""

        def keep(stored: bytes) -> bytes:
            nonlocal stored_other
            stored_other = stored
            return stored

        self.tamper(store, other.digest, keep)
        info = put_bytes(store, _TEXT)
        self.tamper(store, info.digest, lambda stored: _DAMAGES[damage](stored, stored_other))
        return info
