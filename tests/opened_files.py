"""Which files are opened or read, as the kernel tells: inotify(7), which is Linux's."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ACCESS: Final = 0x1
_OPEN: Final = 0x20
_ISDIR: Final = 0x40000000
_OVERFLOW: Final = 0x4000
_HEAD: Final = struct.Struct("iIII")


@contextmanager
def opened_in(folder: Path) -> Iterator[set[str]]:
    """Give a set that holds, after the block, the names of the files in *folder* that anybody opened."""
    libc = ctypes.CDLL(None, use_errno=True)
    events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if events < 0 or libc.inotify_add_watch(events, os.fsencode(folder), _ACCESS | _OPEN) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    names: set[str] = set()
    try:
        yield names
        names.update(_names(events))
    finally:
        os.close(events)


def _names(events: int) -> Iterator[str]:
    while True:
        try:
            data = os.read(events, 1 << 20)
        except BlockingIOError:
            return
        while data:
            _, mask, _, length = _HEAD.unpack_from(data)
            name, data = data[_HEAD.size : _HEAD.size + length], data[_HEAD.size + length :]
            assert not mask & _OVERFLOW
            if not mask & _ISDIR and name:
                yield os.fsdecode(name.rstrip(b"\0"))
