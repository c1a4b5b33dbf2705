"""Receivers of notifications on this machine: HTTP and SMTP servers that note what they get."""

from __future__ import annotations

import base64
import hmac
import http.server
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.policy import default
from typing import Any, cast

from autocode.jobs.ledger.deliveries import ATTEMPTS
from autocode.jobs.ledger.deliveries import Message as Notice
from autocode.jobs.notification_resource import Channel

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
WITHIN = 60.0
"""A deadline for a machine that does much else."""


def until(condition: Callable[[], object], *, told: Callable[[], object] = str) -> None:
    """Wait until *condition* holds."""
    gate = threading.Event()
    give_up = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < give_up, told()
        gate.wait(0.01)


def job(**changes: Any) -> dict[str, Any]:
    """Return what a message says of a job that died."""
    error = {"detail": "The folder is gone.", "hint": "Mount it.", "title": "Gone"}
    return {
        "job_id": "nightly-7",
        "kind": "export",
        "session_id": "s-1",
        "status": "dead",
        "reason": "permanent",
        "attempts": 2,
        "max_attempts": 3,
        "error": error,
        "links": {"self": "/v1/jobs/nightly-7"},
        **changes,
    }


def notice(target: str, channel: Channel = Channel.WEBHOOK, **changes: Any) -> Notice:
    """Return a message about that job."""
    fields: dict[str, Any] = {
        "delivery_id": "msg_" + "0" * 32,
        "subscription_id": "sub_" + "0" * 32,
        "attempt": 1,
        "max_attempts": ATTEMPTS,
        "channel": channel,
        "target": target,
        "secret": SECRET if channel is Channel.WEBHOOK else None,
        "type": "job.dead",
        "cursor": 7,
        "epoch": "0123456789ab",
        "job_id": "nightly-7",
        "at": datetime(2026, 1, 5, 3, 30, tzinfo=UTC),
        "data": job(),
    }
    return Notice(**{**fields, **changes})


def verified(
    secret: str, headers: dict[str, str], body: bytes, *, now: float, tolerance: float = 300.0
) -> bool:
    """Verify a webhook as https://github.com/standard-webhooks/standard-webhooks/blob/main/spec tells to."""
    key = base64.b64decode(secret.split("_", 1)[1])
    timestamp = headers["webhook-timestamp"]
    if abs(now - int(timestamp)) > tolerance:
        return False
    content = b".".join((headers["webhook-id"].encode(), timestamp.encode(), body))
    expected = hmac.digest(key, content, "sha256")
    for part in headers["webhook-signature"].split(" "):
        version, _, value = part.partition(",")
        if version == "v1" and hmac.compare_digest(base64.b64decode(value), expected):
            return True
    return False


@dataclass(frozen=True)
class Got:
    """One request that a receiver got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        """The id that is the same in every try."""
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """An HTTP server that answers as its script says, with the last answer from then on.

    An answer is a status, a status with headers, or a function that gets the handler and does as it likes.
    """

    script: list[Any] = field(default_factory=lambda: [204])
    got: list[Got] = field(default_factory=list)
    url: str = ""
    port: int = 0

    def answer(self) -> Any:
        """Return the next answer."""
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


@contextmanager
def receiving(*script: Any) -> Iterator[Receiver]:
    """Give a receiver on a free port."""
    receiver = Receiver(list(script) or [204])

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.got.append(Got(self.path, headers, body))
            answer = receiver.answer()
            if callable(answer):
                answer(self)
                return
            status, extra = answer if isinstance(answer, tuple) else (answer, {})
            self.send_response(status)
            for name, value in extra.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        receiver.port = server.server_address[1]
        receiver.url = f"http://127.0.0.1:{receiver.port}/hook"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Mailbox:
    """A mail server's answers, and what it took."""

    answers: dict[str, str] = field(default_factory=dict)
    letters: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    silent: threading.Event | None = None
    port: int = 0


class _Talk(socketserver.StreamRequestHandler):
    """One conversation, as the mailbox of the server has it."""

    @property
    def box(self) -> Mailbox:
        """The mailbox."""
        return cast("_MailServer", self.server).box

    def handle(self) -> None:
        """Answer each command until the client leaves."""
        self._say(self.box.answers.get("CONNECT", "220 test"))
        sender = recipient = ""
        while line := self.rfile.readline():
            text = line.decode().strip()
            verb = text.partition(" ")[0].upper()
            self.box.said.append(text)
            address = text.partition("<")[2].partition(">")[0]
            sender = address if verb == "MAIL" else sender
            recipient = address if verb == "RCPT" else recipient
            if verb == "DATA" and "DATA" not in self.box.answers:
                self.box.envelopes.append((sender, recipient))
                self._take()
            else:
                self._say(self.box.answers.get(verb, "221 bye" if verb == "QUIT" else "250 ok"))

    def _take(self) -> None:
        self._say("354 go on")
        if self.box.silent is not None:
            self.box.silent.wait(WITHIN)
        lines: list[bytes] = []
        while (line := self.rfile.readline()) not in {b".\r\n", b""}:
            lines.append(line.removeprefix(b"."))
        parsed: Message = message_from_bytes(b"".join(lines), policy=default)
        self.box.letters.append(cast("EmailMessage", parsed))
        self._say(self.box.answers.get("TAKEN", "250 taken"))

    def _say(self, answer: str) -> None:
        self.wfile.write(f"{answer}\r\n".encode())


class _MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    box: Mailbox

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is what some tests are about."""


@contextmanager
def mailing(**answers: str) -> Iterator[Mailbox]:
    """Give a mail server on a free port; *answers* by command stand in for 250, as in ``RCPT="550 no"``."""
    box = Mailbox(answers)

    with _MailServer(("127.0.0.1", 0), _Talk) as server:
        server.box = box
        box.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield box
        finally:
            if box.silent is not None:
                box.silent.set()
            server.shutdown()
            thread.join()
