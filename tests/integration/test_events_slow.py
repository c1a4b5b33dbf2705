"""Those who don't read, in the midst of those who do: they are closed, and cost nobody else anything."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from websockets.asyncio.client import ClientConnection, connect

from api_served import Serving, served, until
from autocode.jobs.engine.system import open_system
from autocode.jobs.ledger import jobs, results
from autocode.jobs.ledger.attempts import Attempt
from autocode.jobs.ledger.database import Database
from events_world import Port, number, on_port, tell
from ledger_world import begin, look, new_job

pytest_plugins = ["fixtures_api"]

FOLLOWERS = 500
SLOW = 50
LONG = "s" * 8_000
"""What makes an event large."""

EVENTS = 60
"""More than the kernel, the process and its ring hold for one that doesn't read."""

MOST_BYTES = 48 << 20


class Deaf:
    """A connection that asks for events, and reads nothing.

    Args:
        host: of the service.
        port: of the service.
        token: what lets it in.
    """

    def __init__(self, host: str, port: int, token: str) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(30)
        self.socket.connect((host, port))
        lines = [
            "GET /v1/events HTTP/1.1",
            f"Host: {host}:{port}",
            f"Authorization: Bearer {token}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
            "\r\n",
        ]
        self.socket.sendall("\r\n".join(lines).encode())
        assert self.socket.recv(12) == b"HTTP/1.1 101"

    def is_told_why(self) -> bool:
        """Read what was sent; say whether it ends with a close of code 1013 and the reason."""
        found = b""
        try:
            while chunk := self.socket.recv(1 << 16):
                found = found[-100:] + chunk
                if (1013).to_bytes(2, "big") + b"too slow" in found:
                    return True
        except ConnectionResetError:
            pass
        return False


@contextmanager
def deaf(host: str, port: int, token: str, count: int) -> Iterator[list[Deaf]]:
    """Give connections that read nothing."""
    found: list[Deaf] = []
    try:
        found.extend(Deaf(host, port, token) for _ in range(count))
        yield found
    finally:
        for each in found:
            each.socket.close()


def moves(database: Database, attempt: Attempt, count: int) -> None:
    """Let a job report its progress *count* times; each report is told."""
    for done in range(count):
        results.set_progress(database, attempt, done=done, total=count, unit="step")
        look(database, attempt.job_id)


@pytest.fixture
def port(sqlite_ledger: Database, tmp_path: Path) -> Iterator[Port]:
    """Give an application that keeps few events."""
    with on_port(sqlite_ledger, tmp_path, kept=20, ping_seconds=5.0) as running:
        yield running


def test_who_does_not_read_is_closed(port: Port) -> None:
    """One that takes nothing is closed with 1013, while another, who does, gets everything."""
    with deaf("127.0.0.1", port.number, port.token, 1) as (silent,), port.socket() as reader:
        assert reader.next()["type"] == "resumed"
        until(lambda: port.service.hub.following == 2)
        sent = 0
        while port.service.hub.following == 2:
            assert sent < 500, "it is followed still"
            tell(port.db, f"job-{sent}", session_id=LONG)
            sent += 1
        told = [each["subject"] for each in reader.upto(port.cursor())]
        reason = silent.is_told_why()

    assert told == [f"job-{n}" for n in range(sent)]
    assert reason


def test_who_takes_nothing_for_long_is_closed(sqlite_ledger: Database, tmp_path: Path) -> None:
    """A socket that is full stays so for its time alone, though little happens."""
    with (
        on_port(sqlite_ledger, tmp_path, stuck_seconds=0.5, kept=100_000) as port,
        deaf("127.0.0.1", port.number, port.token, 1) as (silent,),
    ):
        until(lambda: port.service.hub.following == 1)
        (subscriber,) = port.service.hub._subscribers
        sent = 0
        while subscriber.sending_since is None and not subscriber.ended.done():
            assert sent < 500, "it takes all"
            tell(port.db, f"job-{sent}", session_id=LONG)
            sent += 1
        until(lambda: port.service.hub.following == 0)

        assert silent.is_told_why()


def test_an_end_does_not_wait_for_who_does_not_read(tmp_path: Path) -> None:
    """A service ends within seconds though a socket takes nothing, not even that it is closed."""
    with served(tmp_path) as serving, open_system(serving.home) as system, deaf(*place(serving), 1):
        for n in range(40):
            tell(system.db, f"job-{n}", session_id=LONG)
        began = time.monotonic()
        status = serving.end()
        seconds = time.monotonic() - began

    assert status == 0
    assert seconds < 8


def test_late_readers_are_spared_reports_and_nothing_else(sqlite_ledger: Database, tmp_path: Path) -> None:
    """Of a job's progress the last report is enough for who comes late; begin, end and the rest all come."""
    with on_port(sqlite_ledger, tmp_path) as port:
        jobs.enqueue(port.db, new_job())
        attempt = begin(port.db)
        look(port.db)
        moves(port.db, attempt, 40)
        begun = port.cursor()
        with port.socket(f"?after={port.service.epoch}:0") as late:
            told = late.upto(begun)

    kinds = [each["type"] for each in told]
    assert kinds[:2] == ["job.queued", "job.running"]
    assert set(kinds[2:]) == {"job.progress"}
    assert len(kinds) < 10
    assert told[-1]["data"]["progress"]["done"] == 39


@pytest.mark.slow
def test_hundreds_follow_and_some_are_slow(tmp_path: Path) -> None:
    """Of 500 who follow 50 read nothing and are closed; the others get everything, and memory is bounded."""
    with served(tmp_path, events={"kept": 20}) as serving, open_system(serving.home) as system:
        process = psutil.Process(serving.process.pid) if serving.facts() else None
        assert process is not None
        with deaf(*place(serving), SLOW) as silent:
            told, reasons, grown = asyncio.run(_follow(serving, system.db, process, silent))

    expected = list(range(1, EVENTS + 1))
    assert len(told) == FOLLOWERS - SLOW
    assert all(each == expected for each in told)
    assert reasons == [True] * SLOW
    assert grown < MOST_BYTES


async def _follow(
    serving: Serving, database: Database, process: psutil.Process, silent: list[Deaf]
) -> tuple[list[list[int]], list[bool], int]:
    """Let everybody connect, and tell of jobs.

    Returns:
        What each was told; of each that didn't read whether it was told why; by how many bytes memory grew.
    """
    host, port, token = place(serving)
    headers = {"Authorization": f"Bearer {token}"}
    address = f"ws://{host}:{port}/v1/events"
    places = asyncio.Semaphore(50)

    async def come() -> ClientConnection:
        async with places:
            opened = await connect(
                address, additional_headers=headers, proxy=None, compression=None, ping_interval=None
            )
            assert json.loads(await opened.recv())["type"] == "resumed"
            return opened

    async def listen(opened: ClientConnection) -> list[int]:
        found: list[int] = []
        while len(found) < EVENTS:
            message = json.loads(await opened.recv())
            if "specversion" in message:
                found.append(number(message["id"]))
        await opened.close()
        return found

    followers = await asyncio.gather(*(come() for _ in range(FOLLOWERS - SLOW)))
    before = process.memory_info().rss
    listening = [asyncio.create_task(listen(each)) for each in followers]
    most = before
    for n in range(EVENTS):
        await asyncio.to_thread(tell, database, f"job-{n}", session_id=LONG)
        most = max(most, process.memory_info().rss)
    reasons = [await asyncio.to_thread(each.is_told_why) for each in silent]
    told = await asyncio.gather(*listening)
    return told, reasons, max(most, process.memory_info().rss) - before


def place(serving: Serving) -> tuple[str, int, str]:
    """Return where a home is served, and its token."""
    parts = urlsplit(serving.facts()["url"])
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port, (serving.home.run / "token").read_text("ascii").strip()
