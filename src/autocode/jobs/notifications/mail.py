"""E-mail: one plain message a delivery, whose Message-ID is the same in every try."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any, Final

import httpx

from autocode.jobs.clock import rfc3339
from autocode.jobs.ledger.deliveries import Message, Verdict
from autocode.jobs.notifications.pauses import pause_after
from autocode.jobs.notifications.pinned import CONNECT_SECONDS
from autocode.jobs.notifications.settings import MailServer, NotificationSettings

__all__ = ["Mail", "letter"]

_TOTAL_SECONDS: Final = 30.0
"""What one conversation with the mail server may take; it may look a message over before it takes it."""

_PERMANENT: Final = 500
_WIDTH: Final = 10


class Mail:
    """Sends e-mail.

    Args:
        settings: the server, and what links begin with.
        total: seconds that one try may take in all.
    """

    def __init__(self, settings: NotificationSettings, *, total: float = _TOTAL_SECONDS) -> None:
        self._settings = settings
        self._total = total

    def send(self, message: Message) -> Verdict:
        """Send *message* once, and say what came of it. Raises nothing that a mail server can cause.

        A recipient or a message that the server refuses for good is given up; all else is tried again, also
        a login that is refused: that is about this service's settings, and a person can mend those.
        """
        server = self._settings.mail
        later = pause_after(message.tries)
        if server is None:
            return Verdict(done=False, error="no mail server is set (smtp_host)", retry_in=later)
        told = letter(message, server, self._settings.public_url)
        try:
            with _conversation(server, self._total) as connection:
                connection.send_message(told, from_addr=server.sender, to_addrs=[message.target])
        except smtplib.SMTPRecipientsRefused as error:
            code = next((code for code, _ in error.recipients.values()), _PERMANENT)
            return _refused("the recipient was refused", code, later)
        except smtplib.SMTPDataError as error:
            return _refused("the message was refused", error.smtp_code, later)
        except smtplib.SMTPAuthenticationError as error:
            why = f"the login was refused ({error.smtp_code})"
        except smtplib.SMTPResponseException as error:
            why = f"the mail server said {error.smtp_code}"
        except TimeoutError:
            why = "the mail server didn't answer in time"
        except ssl.SSLError:
            why = "no agreement on TLS with the mail server"
        except (smtplib.SMTPException, OSError, ValueError):
            # ValueError: what a connection that was cut from outside may meet
            why = "there was no connection to the mail server, or it broke"
        else:
            return Verdict(done=True)
        return Verdict(done=False, error=why, retry_in=later)


def letter(message: Message, server: MailServer, public_url: str | None) -> EmailMessage:
    """Return *message* as e-mail: the same headers and text in every try.

    What a job or an error says stands in the text alone; the subject holds a job's id and words of ours.
    """
    mail = EmailMessage(policy=SMTP)
    mail["From"] = server.sender
    mail["To"] = message.target
    mail["Subject"] = _subject(message)
    mail["Date"] = format_datetime(message.at)
    mail["Message-ID"] = f"<{message.delivery_id}@{server.sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(_text(message, public_url))
    return mail


def _subject(message: Message) -> str:
    if message.data is None:
        return "Test of autocode-jobs"
    return f"Job {message.job_id} is {_state(message.data)}"


def _state(job: dict[str, Any]) -> str:
    return str(job["status"]) if job["reason"] is None else f"{job['status']} ({job['reason']})"


def _text(message: Message, public_url: str | None) -> str:
    if message.data is None:
        return "This is a test: e-mail about jobs that end arrives at this address.\n"
    job, error = message.data, message.data["error"]
    rows = {
        "job": job["job_id"],
        "kind": job["kind"],
        "session": job["session_id"],
        "status": job["status"],
        "reason": job["reason"],
        "attempts": f"{job['attempts']} of {job['max_attempts']}",
        "at": rfc3339(message.at),
        "error": None if error is None else error["detail"],
        "next": None if error is None else error["hint"],
        "see it": f"autocode-jobs jobs explain {job['job_id']}",
        "link": None if public_url is None else f"{public_url}{job['links']['self']}",
    }
    lines = [f"{label:{_WIDTH}}{_line(value)}" for label, value in rows.items() if value is not None]
    return "\n".join([f"Job {job['job_id']} is {_state(job)}.", "", *lines, ""])


def _line(value: object) -> str:
    # half a surrogate pair can't be sent, and a line break would look like another row
    return " ".join(str(value).encode("utf-8", "replace").decode("utf-8").split())


def _refused(told: str, code: int, later: float) -> Verdict:
    return Verdict(done=False, error=f"{told} ({code})", retry_in=None if code >= _PERMANENT else later)


@contextmanager
def _conversation(server: MailServer, total: float) -> Iterator[smtplib.SMTP]:
    """Give a connection on which mail can be sent; it is cut when its time is over."""
    context = httpx.create_ssl_context() if server.security != "none" else None
    name = socket.gethostname()
    if server.security == "tls":
        connection: smtplib.SMTP = smtplib.SMTP_SSL(
            server.host, server.port, local_hostname=name, timeout=CONNECT_SECONDS, context=context
        )
    else:
        connection = smtplib.SMTP(server.host, server.port, local_hostname=name, timeout=CONNECT_SECONDS)
    assert connection.sock is not None
    connection.sock.settimeout(total)
    over = threading.Timer(total, _cut, (connection,))
    over.daemon = True
    over.start()
    try:
        if server.security == "starttls":
            connection.starttls(context=context)
        if server.user is not None and server.password is not None:
            connection.login(server.user, server.password)
        yield connection
        # once the message is taken, a bad farewell doesn't make it another
        with suppress(smtplib.SMTPException, OSError, ValueError):
            connection.quit()
    finally:
        over.cancel()
        connection.close()


def _cut(connection: smtplib.SMTP) -> None:
    sock = connection.sock
    if sock is not None:
        try:
            # not the method of a TLS socket: that one belongs to the thread that uses it
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            return
