"""Fetching a result into a file: resumed where a connection broke, proven, and there whole or not at all."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

import httpx

from autocode.jobs.client.transport import Transport
from autocode.jobs.errors import LedgerUnavailable, UsageError
from autocode.jobs.request_errors import ResultDamaged, ServiceBusy, ServiceUnavailable, ViewNotReady

__all__ = ["VIEWS", "Progress", "fetch"]

VIEWS: Final = {"zip": "result.zip", "html": "result.html", "markdown": "result.md"}
"""The views that are one file, with their place below the job's address."""

Progress = Callable[[int, int], None]
"""Told the bytes done and in all; may raise to stop."""

_PAUSE: Final = 1.0
_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})")
_PROVEN: Final = re.compile(r"sha-256=:([A-Za-z0-9+/=]{44}):")
_HEADERS: Final = {"Accept": "*/*", "Accept-Encoding": "identity"}


def fetch(
    transport: Transport,
    address: str,
    path: Path,
    *,
    digest: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Fetch *address* into the file *path*, and return the path. Atomic; replaces what is there.

    A connection that breaks is taken up where it broke, with the same bytes or from the start; without any
    progress it is given up after the transport's patience. A view that is still being made is waited for.

    Args:
        transport: to the service.
        address: what to fetch.
        path: the file; its folder must exist.
        digest: what the bytes must be, where the caller knows; else what the service says they are.
        progress: told how far it is.

    Raises:
        ResultDamaged: the bytes that came have another digest; nothing is left behind.
        ServiceUnavailable: the service stays away.
        UsageError: the file can't be written. What else the service answers is raised as it is.
    """
    part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.partial")
    try:
        with part.open("xb") as file:
            _Fetching(transport, address, file, progress).run(digest)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path} can't be written: {error.strerror or error}.", hint="Name a file in a folder with room."
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return path


class _Fetching:
    """One file on its way, over as many connections as it takes."""

    def __init__(self, transport: Transport, address: str, file: BinaryIO, progress: Progress | None) -> None:
        self._transport = transport
        self._address = address
        self._file = file
        self._progress = progress
        self._done = 0
        self._total: int | None = None
        self._tag: str | None = None
        self._promised: str | None = None
        self._sum = hashlib.sha256()

    def run(self, digest: str | None) -> None:
        transport = self._transport
        give_up = transport.monotonic() + transport.patience
        while True:
            before = self._done
            try:
                self._once()
            except (httpx.HTTPError, LedgerUnavailable, ServiceBusy, ServiceUnavailable) as error:
                if self._done > before:
                    give_up = transport.monotonic() + transport.patience
                if transport.monotonic() > give_up:
                    if isinstance(error, httpx.HTTPError):
                        raise ServiceUnavailable(f"{transport.url} broke off: {error}.") from error
                    raise
                transport.sleep(_PAUSE)
            except ViewNotReady:
                transport.sleep(_PAUSE)
            else:
                break
        found = f"sha256:{self._sum.hexdigest()}"
        expected = digest if digest is not None else self._promised
        if expected is not None and found != expected:
            raise ResultDamaged(f"What came is {found}, and should be {expected}.", hint="Fetch it again.")

    def _once(self) -> None:
        headers = dict(_HEADERS)
        if self._done and self._tag is not None:
            headers |= {"Range": f"bytes={self._done}-", "If-Range": self._tag}
        with self._transport.open(self._address, headers=headers) as answer:
            self._begin(answer)
            for chunk in answer.iter_raw():
                self._file.write(chunk)
                self._sum.update(chunk)
                self._done += len(chunk)
                if self._progress is not None:
                    self._progress(self._done, self._total or self._done)
        if self._total is not None and self._done != self._total:
            raise ServiceUnavailable(f"{self._done:,} of {self._total:,} bytes came.")

    def _begin(self, answer: httpx.Response) -> None:
        place = _RANGE.fullmatch(answer.headers.get("content-range", ""))
        if answer.status_code != httpx.codes.PARTIAL_CONTENT or place is None or int(place[1]) != self._done:
            # it is another version, or whoever answers knows no ranges
            self._file.seek(0)
            self._file.truncate()
            self._sum = hashlib.sha256()
            self._done = 0
            if answer.status_code == httpx.codes.PARTIAL_CONTENT:
                self._tag = None
                raise ServiceUnavailable("Another range came than was asked for.")
        length = answer.headers.get("content-length", "")
        self._total = int(place[2]) if place else int(length) if length.isdecimal() else None
        self._tag = answer.headers.get("etag")
        self._promised = _promised(answer)


def _promised(answer: httpx.Response) -> str | None:
    found = _PROVEN.search(answer.headers.get("repr-digest", ""))
    if found is None:
        return None
    try:
        return f"sha256:{base64.b64decode(found[1], validate=True).hex()}"
    except binascii.Error:
        return None
