"""The way to PostgreSQL that is cut for some processes, and works for all others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from autocode.jobs.testing.crashes.proxy import Proxy

ASKS = """
import socket, sys
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for word in sys.stdin:
    line.sendall(word.encode())
    print(line.recv(100).decode(), end="", flush=True)
"""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Give a proxy before a server that says again what it is told."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(line: socket.socket) -> None:
        # what is cut when it ends is reset
        with line, suppress(ConnectionError):
            while data := line.recv(100):
                line.sendall(data)

    def serve() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(line,), daemon=True).start()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with Proxy(listener.getsockname()[1]) as proxy:
            yield proxy
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.fixture
def other(proxy: Proxy) -> Iterator[subprocess.Popen[str]]:
    """Give another process with a line of its own; it sends what it reads, and says what it is told."""
    process = subprocess.Popen(
        [sys.executable, "-c", ASKS, str(proxy.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def ask(process: subprocess.Popen[str], word: str) -> None:
    """Let the process send a word."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def told(process: subprocess.Popen[str]) -> str:
    """Return the next word that the process was told."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_bytes_go_both_ways(proxy: Proxy, other: subprocess.Popen[str]) -> None:
    """What is sent arrives, and so does the answer."""
    ask(other, "hello")

    assert told(other) == "hello"


def test_a_line_that_nobody_reads_holds_up_no_other(proxy: Proxy, other: subprocess.Popen[str]) -> None:
    """Both ways of a line may be full to the brim; words on another line arrive all the same."""
    with socket.create_connection(("127.0.0.1", proxy.port)) as full:
        full.settimeout(0.2)
        with suppress(TimeoutError):
            while True:
                full.sendall(bytes(1 << 20))
        ask(other, "hello")

        assert told(other) == "hello"


def test_a_line_that_is_cut_is_silent_and_others_are_not(proxy: Proxy, other: subprocess.Popen[str]) -> None:
    """Nothing arrives, on a new line neither; what was on its way arrives once it is mended."""
    ask(other, "before")
    before = told(other)
    mine = socket.create_connection(("127.0.0.1", proxy.port))
    proxy.cut(lambda: [os.getpid()])
    mine.settimeout(0.5)
    mine.sendall(b"lost?")
    with pytest.raises(TimeoutError):
        mine.recv(100)
    with socket.create_connection(("127.0.0.1", proxy.port)) as anew:
        anew.settimeout(0.5)
        anew.sendall(b"lost?")
        with pytest.raises(TimeoutError):
            anew.recv(100)
    ask(other, "meanwhile")
    meanwhile = told(other)
    proxy.mend()
    mine.settimeout(20)

    with mine:
        assert mine.recv(100) == b"lost?"
    assert (before, meanwhile) == ("before", "meanwhile")
