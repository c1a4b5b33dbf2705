"""Stored bytes: what any chunking gives, and what a stream may not do to its reader."""

from __future__ import annotations

import errno
import io
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autocode.jobs.canonical import digest_of
from autocode.jobs.store import LocalStore, ObjectInfo, VerifiedReader, put_bytes, put_chunks
from autocode.jobs.store.encoding import TRAILER_SIZE, Encoder, Trailer
from autocode.jobs.store.reader import Damage, read_trailer

RUNS = st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 20_000)), max_size=6)
"""Chunks as (piece, times), so that a large content has a short name."""

# a deadline would test the machine
relaxed = settings(deadline=None, max_examples=50)


class DamageTold(Exception):
    """What the reader said, raised in the place of ObjectCorrupt."""


def tell(reason: str) -> NoReturn:
    """Raise what the reader found."""
    raise DamageTold(reason)


def encoded(content: bytes) -> bytes:
    """Return the stored bytes of *content*."""
    encoder = Encoder()
    return encoder.feed(memoryview(content)) + encoder.finish()


def sealed(frames: bytes, size: int) -> bytes:
    """Return *frames* with a trailer whose checksum is right and that claims *size*."""
    return frames + Trailer(size, zlib.crc32(frames)).pack()


def reader_of(
    stored: bytes, digest: str, on_damage: Callable[[str], NoReturn] = tell, file: io.BytesIO | None = None
) -> VerifiedReader:
    """Return a reader over *stored*, or over *file* where one is given."""
    source = file or io.BytesIO(stored)
    try:
        trailer = read_trailer(source, len(stored))
    except Damage as damage:
        on_damage(str(damage))
    info = ObjectInfo(digest, trailer.size, len(stored))
    return VerifiedReader(source, info=info, trailer=trailer, on_damage=on_damage)


class TestRoundTrip:
    """Properties over arbitrary contents and cuts."""

    @relaxed
    @given(runs=RUNS, size=st.integers(1, 100_000))
    def test_any_content_cut_in_any_way_comes_back(self, runs: list[tuple[bytes, int]], size: int) -> None:
        """The pieces it was written and is read in change neither content nor stored bytes."""
        chunks = [piece * times for piece, times in runs]
        content = b"".join(chunks)
        with tempfile.TemporaryDirectory() as folder:
            store = LocalStore(Path(folder) / "store")
            info = put_chunks(store, chunks)
            pieces = []

            with store.open(info.digest) as reader:
                while piece := reader.read(size):
                    pieces.append(piece)

            assert b"".join(pieces) == content
            assert reader.verified is True
            assert info == ObjectInfo(digest_of(content), len(content), info.stored_size)
            assert store.stat(info.digest) == store.verify(info.digest) == info
            whole = LocalStore(Path(folder) / "whole")
            put_bytes(whole, content)
            assert store.path_of(info.digest).read_bytes() == whole.path_of(info.digest).read_bytes()

    @relaxed
    @given(content=st.binary(max_size=2000), noise=st.binary(min_size=1, max_size=40), data=st.data())
    def test_any_change_of_the_stored_bytes_is_told(
        self, content: bytes, noise: bytes, data: st.DataObject
    ) -> None:
        """Overwriting, inserting or cutting anywhere never reads as the object."""
        stored = encoded(content)
        start = data.draw(st.integers(0, len(stored)))
        end = data.draw(st.integers(start, len(stored)))
        changed = stored[:start] + noise + stored[end:]
        assume(changed != stored)

        with pytest.raises(DamageTold):
            reader_of(changed, digest_of(content)).readall()

    def test_every_changed_bit_is_told(self) -> None:
        """Not one bit can change, not even those of the frame's header that decode to the same content."""
        stored = encoded(b"the quick brown fox\n" * 50)
        digest = digest_of(b"the quick brown fox\n" * 50)
        missed = []

        for bit in range(len(stored) * 8):
            changed = bytearray(stored)
            changed[bit // 8] ^= 1 << bit % 8
            try:
                reader_of(bytes(changed), digest).readall()
                missed.append(bit)
            except DamageTold:
                continue

        assert missed == []

    @given(size=st.integers(0, 2**64 - 1), crc=st.integers(0, 2**32 - 1))
    def test_a_trailer_reads_as_it_was_written(self, size: int, crc: int) -> None:
        """A trailer is a skippable frame of fixed length that parses to itself."""
        packed = Trailer(size, crc).pack()

        assert len(packed) == TRAILER_SIZE == 28
        assert Trailer.parse(packed) == Trailer(size, crc)
        assert Trailer.parse(packed[1:]) is None


class TestHostileStreams:
    """Streams that are well-formed and yet not the object."""

    @pytest.mark.parametrize(
        ("claimed", "message"), [(9, "more than the 9 bytes"), (11, "ends after 10 of the 11 bytes")]
    )
    def test_a_size_that_is_not_the_content_is_told(self, claimed: int, message: str) -> None:
        """A trailer with a sound checksum that claims another size is damage."""
        content = b"0123456789"
        stored = sealed(encoded(content)[:-TRAILER_SIZE], claimed)

        with pytest.raises(DamageTold, match=message):
            reader_of(stored, digest_of(content)).readall()

    def test_a_bomb_is_told_before_it_unfolds(self) -> None:
        """A few kilobytes that would unfold to a gigabyte are told after one buffer."""
        compressor = zstandard.ZstdCompressor().compressobj()
        frames = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(1024)) + compressor.flush()
        reader = reader_of(sealed(frames, 10), digest_of(b"0123456789"))
        buffer = bytearray(1000)

        with pytest.raises(DamageTold, match="more than the 10 bytes"):
            reader.readinto(buffer)

    def test_a_window_beyond_the_format_is_told(self) -> None:
        """A frame that asks its reader for 128 MiB of memory is refused."""
        parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
        compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        frames = compressor.compress(b"0123456789") + compressor.flush()

        with pytest.raises(DamageTold, match="too much memory"):
            reader_of(sealed(frames, 10), digest_of(b"0123456789")).readall()

    def test_bytes_behind_the_frame_are_told(self) -> None:
        """Something between frame and trailer is damage even where the checksum was made to fit."""
        content = b"0123456789"
        frames = encoded(content)[:-TRAILER_SIZE]

        with pytest.raises(DamageTold, match="Unknown frame"):
            reader_of(sealed(frames + b"junk", 10), digest_of(content)).readall()

    def test_a_disk_that_cannot_read_is_damage(self) -> None:
        """An input error in the middle of an object is told like any other damage."""

        class BadSector(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                if self.tell() == 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return super().read(size)

        stored = encoded(b"0123456789")
        reader = reader_of(stored, digest_of(b"0123456789"), file=BadSector(stored))

        with pytest.raises(DamageTold, match="can't be read"):
            reader.readall()
        assert reader.closed is True

    def test_the_last_bytes_of_a_wrong_content_are_kept_back(self) -> None:
        """Well-formed content of the right size and the wrong digest never reaches the caller whole."""
        reader = reader_of(encoded(b"0123456789"), digest_of(b"9876543210"))
        first = reader.read(9)

        with pytest.raises(DamageTold, match=digest_of(b"0123456789")):
            reader.read(1)

        assert first == b"012345678"
