"""The witness's own process: an HTTP server on the loopback interface that counts effects.

``python -m autocode.jobs.testing.crashes.witness_process`` writes its port on stdout and serves until its
stdin ends. It needs the standard library alone, and keeps what it counted in memory.

``POST /CASE/PATH`` or ``/CASE`` applies an effect, with an ``Idempotency-Key`` once for each path and key.
``GET`` and ``DELETE /_/effects/CASE`` tell and forget what was counted.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import socketserver
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Final, NoReturn
from urllib.parse import unquote

__all__ = ["MAX_BODY", "Book", "main"]

MAX_BODY: Final = 1 << 20
"""The longest body in bytes that is taken."""

_DRAINED: Final = 16 << 20
"""So much of a longer one is read all the same: who still sends when the line is cut gets no answer."""

_MAX_KEY: Final = 1024
_PATIENCE_SECONDS: Final = 10.0
"""How long a client may be silent; a frozen one holds a thread for so long."""

_CONTROL: Final = "_"


@dataclass(slots=True)
class _Counted:
    path: str
    body: str
    key: str | None
    applied: int = 0
    deliveries: int = 0


class Book:
    """What was delivered and what was applied, by case; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cases: dict[str, dict[tuple[str, str | None, str | None], _Counted]] = {}

    def deliver(self, case: str, path: str, body: str, key: str | None) -> str:
        """Count a delivery, apply it unless its key is known for this path, and return the receipt. Atomic.

        The receipt depends on path and key alone, or on path and body where there is no key: a witness that
        is started anew gives the same ones.
        """
        which = (path, key, body if key is None else None)
        with self._lock:
            counted = self._cases.setdefault(case, {}).setdefault(which, _Counted(path, body, key))
            counted.deliveries += 1
            if key is None or not counted.applied:
                counted.applied += 1
        return hashlib.sha256(json.dumps(which).encode()).hexdigest()[:16]

    def effects(self, case: str) -> list[dict[str, object]]:
        """Return what was counted for *case*, in the order of the first deliveries."""
        with self._lock:
            return [asdict(counted) for counted in self._cases.get(case, {}).values()]

    def forget(self, case: str) -> None:
        """Count for *case* from nothing again. Idempotent."""
        with self._lock:
            self._cases.pop(case, None)


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self) -> None:
        self.book = Book()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        # HTTPServer asks the name service for this host's name, which nobody needs and may take seconds
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        # clients that are killed in the middle are what this is for
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE_SECONDS

    def do_POST(self) -> None:
        self._serve(self._deliver)

    def do_GET(self) -> None:
        self._serve(self._tell)

    def do_DELETE(self) -> None:
        self._serve(self._forget)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what isn't even HTTP; a method that nobody knows is the client's fault, too."""
        unknown = code == HTTPStatus.NOT_IMPLEMENTED
        super().send_error(HTTPStatus.METHOD_NOT_ALLOWED if unknown else code, message, explain)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing: what happened is in the book."""

    def _serve(self, perform: Callable[[], dict[str, object]]) -> None:
        try:
            status, said = HTTPStatus.OK, perform()
        except _RefusedError as refused:
            status, said = refused.status, {"refused": str(refused)}
        content = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _deliver(self) -> dict[str, object]:
        case, path = self._place()
        if case == _CONTROL:
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED)
        key = self._key()
        # bytes that are no text stay distinguishable
        body = self._body().decode("utf-8", "backslashreplace")
        return {"receipt": self.server.book.deliver(case, path, body, key)}

    def _tell(self) -> dict[str, object]:
        return {"effects": self.server.book.effects(self._controlled())}

    def _forget(self) -> dict[str, object]:
        self.server.book.forget(self._controlled())
        return {"effects": []}

    def _place(self) -> tuple[str, str]:
        """Return case and path, decoded; a query belongs to the path."""
        path, mark, query = self.path.partition("?")
        segments = [unquote(segment) for segment in path.removeprefix("/").split("/")]
        # the bare address of a case is a place, too
        if segments[1:] == [""]:
            segments.pop()
        if "" in segments:
            raise _RefusedError(HTTPStatus.NOT_FOUND)
        return segments[0], "/".join(segments[1:]) + mark + query

    def _controlled(self) -> str:
        case, path = self._place()
        if case != _CONTROL:
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED)
        what, _, about = path.partition("/")
        if what != "effects" or not about:
            raise _RefusedError(HTTPStatus.NOT_FOUND)
        return about

    def _key(self) -> str | None:
        keys = self.headers.get_all("Idempotency-Key", [])
        if len(keys) > 1 or any(not 0 < len(key.strip()) <= _MAX_KEY for key in keys):
            raise _RefusedError(HTTPStatus.BAD_REQUEST)
        return keys[0].strip() if keys else None

    def _body(self) -> bytes:
        lengths = self.headers.get_all("Content-Length", [])
        if not lengths or "Transfer-Encoding" in self.headers:
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED)
        if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()) or len(lengths[0]) > 15:
            raise _RefusedError(HTTPStatus.BAD_REQUEST)
        length = int(lengths[0])
        if length > MAX_BODY:
            left = min(length, _DRAINED)
            while left > 0 and (some := self.rfile.read(min(left, 1 << 16))):
                left -= len(some)
            raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = self.rfile.read(length)
        if len(body) < length:
            raise _RefusedError(HTTPStatus.BAD_REQUEST)
        return body


def main() -> None:
    """Serve until stdin ends, which is when the parent lets go of it or is gone."""
    with _Server() as server:
        threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


def _end_with_stdin() -> NoReturn:
    while os.read(0, 1 << 10):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
