"""The machine around a command: a terminal, a small disk, a user whom permissions bind, a stopped process."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acceptance.command import until

__all__ = [
    "SmallDisk",
    "Terminal",
    "bound_by_permissions",
    "is_stopped",
    "small_disk",
    "terminal",
    "text_of",
    "wait_until_stopped",
]

_DROP: Final = """
import ctypes, os, sys
if os.geteuid() == 0:
    # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, by which root reads and writes everything
    for capability in (1, 2):
        if ctypes.CDLL(None, use_errno=True).prctl(24, capability, 0, 0, 0) != 0:
            sys.exit("capabilities can't be dropped here")
os.execv(sys.argv[1], sys.argv[1:])
"""
_TAKE_TERMINAL: Final = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def bound_by_permissions(*command: str | Path) -> list[str]:
    """Return *command* so that file permissions bind it, also where root runs the tests."""
    return [sys.executable, "-c", _DROP, *map(str, command)]


def is_stopped(pid: int) -> bool:
    """Say whether the process was stopped by SIGSTOP."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@dataclass(frozen=True)
class SmallDisk:
    """A file system of its own, which only processes started through it see at *folder*."""

    folder: Path
    pid: int

    def inside(self, *command: str | Path) -> list[str]:
        """Return *command* so that it sees the small disk."""
        own = ["--user", "--preserve-credentials"] if os.geteuid() != 0 else []
        return ["nsenter", *own, "--mount", f"--target={self.pid}", "--", *map(str, command)]

    @property
    def view(self) -> Path:
        """Where the test itself finds the small disk's files."""
        return Path(f"/proc/{self.pid}/root{self.folder}")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a disk of *size* (as tmpfs takes it) on *folder*, in a mount namespace of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    script = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'
    own = ["--user", "--map-root-user"] if os.geteuid() != 0 else []
    keeper = subprocess.Popen(
        ["unshare", *own, "--mount", "--propagation=private", "sh", "-c", script, "sh", size, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        assert keeper.stdout.readline() == "mounted\n"
        yield SmallDisk(folder, keeper.pid)
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], controller: int) -> None:
        self.process = process
        self._controller = controller
        self.seen = ""

    def read_until(self, text: str, *, within: float = 120) -> None:
        """Read what the terminal shows until *text* was in it."""
        end = time.monotonic() + within
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} didn't come: {self.seen!r}"
            if not self._read():
                raise AssertionError(f"{text!r} didn't come before the end: {self.seen!r}")

    def press(self, keys: str) -> None:
        """Type *keys*; the character 3 is Ctrl-C."""
        os.write(self._controller, keys.encode())

    def end(self, *, within: float = 150) -> int:
        """Read to the end, and return the exit status."""
        end = time.monotonic() + within
        while self._read():
            assert time.monotonic() < end, self.seen
        return self.process.wait(timeout=within)

    def _read(self) -> bool:
        if not select.select([self._controller], [], [], 1.0)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self._controller, 1 << 16)
        except OSError:
            # Linux says EIO when the last process has closed the terminal
            return False
        self.seen += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def terminal(
    command: Sequence[str | Path], environment: Mapping[str, str], *, columns: int = 80
) -> Iterator[Terminal]:
    """Start *command* as the leader of a session on a terminal of *columns* by 40."""
    controller, device = pty.openpty()
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environ = {name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES"}}
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE_TERMINAL, *map(str, command)],
        env={"TERM": "xterm-256color", **environ},
        stdin=device,
        stdout=device,
        stderr=device,
        start_new_session=True,
    )
    os.close(device)
    try:
        yield Terminal(process, controller)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        os.close(controller)


def text_of(seen: str) -> str:
    """Return what was shown without colours and cursor moves."""
    return _ESCAPE.sub("", seen)


def wait_until_stopped(pid: int, *, within: float = 120) -> None:
    """Wait until the process stopped itself at a crash point."""
    until(lambda: is_stopped(pid), within=within, told=lambda: f"process {pid} runs on")
