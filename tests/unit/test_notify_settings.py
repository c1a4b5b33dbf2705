"""The settings of notifications: what goes together, and where the password comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from autocode.jobs.configuration import load
from autocode.jobs.errors import UsageError
from autocode.jobs.notifications.settings import MailServer, NotificationSettings
from autocode.jobs.settings import Home

MAIL = {"AUTOCODE_SMTP_HOST": "mail.example.org", "AUTOCODE_SMTP_FROM": "jobs@example.org"}
LOGIN = {"AUTOCODE_SMTP_USER": "jobs", "AUTOCODE_SMTP_PASSWORD": "secret"}


def read(tmp_path: Path, environ: dict[str, str]) -> NotificationSettings:
    """Return the settings that these variables make."""
    return NotificationSettings.of(load(Home(tmp_path), environ=environ).values)


def test_without_settings_webhooks_go_to_public_places(tmp_path: Path) -> None:
    """Nothing is allowed beyond that, and no e-mail is sent."""
    assert read(tmp_path, {}) == NotificationSettings()


def test_settings_are_read(tmp_path: Path) -> None:
    """Server, sender, login, what may be reached, and what links begin with."""
    found = read(
        tmp_path,
        {
            **MAIL,
            **LOGIN,
            "AUTOCODE_SMTP_SECURITY": "tls",
            "AUTOCODE_SMTP_PORT": "465",
            "AUTOCODE_NOTIFY_ALLOW": "10.0.0.0/8, hooks.internal",
            "AUTOCODE_PUBLIC_URL": "https://jobs.example.org/",
        },
    )

    assert found.mail == MailServer("mail.example.org", 465, "tls", "jobs@example.org", "jobs", "secret")
    assert found.allowed.hosts == {"hooks.internal"}
    assert [str(network) for network in found.allowed.networks] == ["10.0.0.0/8"]
    assert found.public_url == "https://jobs.example.org"
    assert "secret" not in repr(found)


def test_the_password_may_lie_in_a_file(tmp_path: Path) -> None:
    """A line of a file that others needn't see; one that isn't there or is empty is told."""
    file = tmp_path / "password"
    environ = {**MAIL, "AUTOCODE_SMTP_USER": "jobs", "AUTOCODE_SMTP_PASSWORD_FILE": str(file)}
    for text in (None, "\n"):
        if text is not None:
            file.write_text(text)
        with pytest.raises(UsageError, match="smtp_password_file"):
            read(tmp_path, environ)
    file.write_text("from the file\n")

    mail = read(tmp_path, environ).mail

    assert mail is not None
    assert mail.password == "from the file"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"AUTOCODE_SMTP_HOST": "mail.example.org"}, "smtp_from"),
        ({**MAIL, "AUTOCODE_SMTP_USER": "jobs"}, "smtp_password"),
        ({**MAIL, "AUTOCODE_SMTP_PASSWORD": "secret"}, "smtp_user"),
        ({**MAIL, **LOGIN, "AUTOCODE_SMTP_SECURITY": "none"}, "for everybody to read"),
        ({"AUTOCODE_SMTP_FROM": "Jobs <jobs@example.org>"}, "smtp_from"),
        ({"AUTOCODE_SMTP_PORT": "0"}, "smtp_port"),
        ({"AUTOCODE_SMTP_SECURITY": "ssl"}, "smtp_security"),
        ({"AUTOCODE_NOTIFY_ALLOW": "10.0.0.0/33"}, "notify_allow"),
        ({"AUTOCODE_NOTIFY_ALLOW": "10.0.0.1/8"}, "notify_allow"),
        ({"AUTOCODE_NOTIFY_ALLOW": "*"}, "notify_allow"),
        ({"AUTOCODE_PUBLIC_URL": "jobs.example.org"}, "public_url"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    """A value that can't be, and values that don't go together, are told by name, without the password."""
    with pytest.raises(UsageError, match=said) as caught:
        read(tmp_path, environ)

    assert "secret" not in str(caught.value)


def test_a_login_to_this_machine_needs_no_secrecy(tmp_path: Path) -> None:
    """A mail server on the machine itself may be spoken to in the open."""
    environ = {**MAIL, **LOGIN, "AUTOCODE_SMTP_HOST": "127.0.0.1", "AUTOCODE_SMTP_SECURITY": "none"}

    assert read(tmp_path, environ).mail is not None
