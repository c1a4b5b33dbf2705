"""Uploads and results over a real socket: what a connection that breaks leaves, on either side."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from api_served import served, until
from autocode.jobs.canonical import digest_of
from autocode.jobs.client import Client
from autocode.jobs.engine.system import open_system
from autocode.jobs.request_errors import ResultDamaged
from autocode.jobs.store import LocalStore
from results_world import with_bytes


def test_an_upload_that_breaks_off(tmp_path: Path) -> None:
    """A sender that goes in the middle leaves neither an object nor a temporary file."""
    data = b"x" * 3_000_000
    with served(tmp_path) as serving, serving.client() as client:
        address = urlsplit(client.url)
        token = (serving.home.run / "token").read_text("ascii").strip()
        temporary = serving.home.store / "objects" / "sha256" / "tmp"
        assert address.hostname is not None
        with socket.create_connection((address.hostname, address.port or 0)) as connection:
            head = (
                f"PUT /v1/objects/{digest_of(data)} HTTP/1.1\r\nHost: {address.netloc}\r\n"
                f"Authorization: Bearer {token}\r\nContent-Length: {len(data)}\r\n\r\n"
            )
            connection.sendall(head.encode("ascii") + data[:2_000_000])
            until(lambda: temporary.is_dir() and any(temporary.iterdir()))
        until(lambda: not any(temporary.iterdir()))

        assert list(LocalStore(serving.home.store).list()) == []
        assert client.health()["status"] in {"ready", "degraded"}


def test_a_result_that_turns_out_to_be_another(tmp_path: Path) -> None:
    """A large object that somebody exchanged is broken off, and the client keeps nothing of it."""
    blocks = [hashlib.sha512(number.to_bytes(4)).digest() for number in range(200_000)]
    data = b"".join(blocks)
    with served(tmp_path) as serving:
        serving.facts()
        with open_system(serving.home) as system:
            digest = with_bytes(system, data)
            other = with_bytes(system, data[:-1] + b"!", job_id="other")
            store = LocalStore(serving.home.store)
            store.path_of(digest).unlink()
            store.path_of(digest).hardlink_to(store.path_of(other))
        target = tmp_path / "result"
        token = (serving.home.run / "token").read_text("ascii").strip()
        # the second try finds it in quarantine
        with Client(serving.facts()["url"], token) as client, pytest.raises(ResultDamaged):
            client.download("job", target)

    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []
