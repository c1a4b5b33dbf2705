"""The log file of a part: opened for it, set aside when it is large, read from its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["Follower", "PartLog"]

_LOG_BYTES: Final = 10_000_000
_KEPT: Final = 3
_TAIL_BYTES: Final = 8192
_LINE_LENGTH: Final = 300


class PartLog:
    """One part's log, ``<part>.log``, and the older ones, ``<part>.1.log`` and so on.

    A file that has grown too large is renamed and a new one is begun. A process that goes on writing writes
    to the renamed one until it looks at the name again, as our parts do at every line; so no line is lost.

    Args:
        folder: where the files are.
        name: of the part.
        limit: bytes from which a file is set aside.
        kept: how many older ones are kept.
    """

    def __init__(self, folder: Path, name: str, *, limit: int = _LOG_BYTES, kept: int = _KEPT) -> None:
        self.path = folder / f"{name}.log"
        self._limit = limit
        self._kept = kept

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Give a descriptor that appends to the log, for a process to inherit."""
        self.rotate()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def size(self) -> int:
        """Return the bytes of the newest file."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def rotate(self) -> bool:
        """Set the file aside if it is too large; say whether it was."""
        if self.size() <= self._limit:
            return False
        for number in range(self._kept, 0, -1):
            older = self.path if number == 1 else self._older(number - 1)
            if older.exists():
                older.replace(self._older(number))
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        return True

    def tail(self, count: int, *, since: int = 0) -> tuple[str, ...]:
        """Return the beginnings of the last *count* lines that aren't blank, of what follows byte *since*."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(since if since <= end else 0, end - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ()
        return tuple(line[:_LINE_LENGTH] for line in text.splitlines() if line.strip())[-count:]

    def _older(self, number: int) -> Path:
        return self.path.with_suffix(f".{number}.log")


class Follower:
    """Reads what is added to a log, from now on, also when it is set aside meanwhile.

    Args:
        path: the log's newest file; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb") if path.exists() else None
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)
        self._rest = b""

    def lines(self) -> list[str]:
        """Return the whole lines that were added since the last call."""
        found = self._read()
        if self._moved():
            self.close()
            self._file = self._path.open("rb")
            found += self._read()
        *whole, self._rest = (self._rest + found).split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> bytes:
        return self._file.read() if self._file is not None else b""

    def _moved(self) -> bool:
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return self._file is None or not os.path.samestat(os.fstat(self._file.fileno()), named)
