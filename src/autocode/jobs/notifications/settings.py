"""What the sender of notifications is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from autocode.jobs.configuration import Configuration
from autocode.jobs.errors import UsageError
from autocode.jobs.notifications.address import Allowed

__all__ = ["MailServer", "NotificationSettings"]


@dataclass(frozen=True, slots=True)
class MailServer:
    """The server that sends e-mail.

    Args:
        host: where it is.
        port: its port.
        security: how the connection is kept secret.
        sender: whom e-mail comes from.
        user: who logs in; ``None``: nobody does.
        password: of that user.
    """

    host: str
    port: int
    security: Literal["starttls", "tls", "none"]
    sender: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """The settings of a sender.

    Args:
        allowed: receivers of webhooks that may be reached although they aren't public.
        mail: the server that sends e-mail; ``None`` where there is none.
        public_url: what links begin with; ``None``: there are no links.
    """

    allowed: Allowed = field(default_factory=Allowed)
    mail: MailServer | None = None
    public_url: str | None = None

    @classmethod
    def of(cls, values: Configuration) -> NotificationSettings:
        """Return what the settings of this program say.

        Raises:
            UsageError: the file with the password can't be read, or is empty.
        """
        mail = None
        if values.smtp_host is not None and values.smtp_from is not None:
            mail = MailServer(
                host=values.smtp_host,
                port=values.smtp_port,
                security=values.smtp_security,
                sender=values.smtp_from,
                user=values.smtp_user,
                password=values.smtp_password or _read(values.smtp_password_file),
            )
        return cls(Allowed.of(values.notify_allow), mail, values.public_url)


def _read(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        password = Path(file).expanduser().read_text("utf-8").strip("\r\n")
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it isn't plain text"
        raise UsageError(f"smtp_password_file can't be read: {reason}.") from None
    if not password:
        raise UsageError("smtp_password_file is empty.", hint="Put the password into it, alone in one line.")
    return password
