"""E-mail through a real mail server: one message a delivery, and what each refusal of a server means."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from autocode.jobs.notification_resource import Channel
from autocode.jobs.notifications.mail import Mail, letter
from autocode.jobs.notifications.settings import MailServer, NotificationSettings
from autocode.jobs.urls import mail_address
from notify_world import job, mailing, notice

ADA = "ada@example.org"


def mail(port: int, **options: Any) -> Mail:
    """Return a sender over the server at *port*."""
    server = MailServer("127.0.0.1", port, options.pop("security", "none"), "jobs@example.com", **options)
    return Mail(NotificationSettings(mail=server, public_url="https://jobs.example.com"), total=5.0)


def test_a_message_says_how_the_job_ended() -> None:
    """It has the job, the reason, what to do next and a link, and the delivery's id as its own."""
    told = notice(ADA, Channel.EMAIL)
    with mailing() as box:
        verdict = mail(box.port).send(told)

    [sent] = box.letters
    text = sent.get_content()
    assert verdict.done
    assert box.envelopes == [("jobs@example.com", ADA)]
    assert sent["Subject"] == "Job nightly-7 is dead (permanent)"
    assert sent["Message-ID"] == f"<{told.delivery_id}@example.com>"
    assert (sent["To"], sent["Auto-Submitted"]) == (ADA, "auto-generated")
    for part in ("permanent", "The folder is gone.", "Mount it.", "2 of 3", "nightly-7"):
        assert part in text
    assert "link      https://jobs.example.com/v1/jobs/nightly-7" in text


def test_every_try_sends_the_same_message() -> None:
    """A mail system that knows a Message-ID already can tell."""
    server = MailServer("127.0.0.1", 25, "none", "jobs@example.com")

    first, second = (letter(notice(ADA, Channel.EMAIL, attempt=n), server, None) for n in (1, 2))

    assert first.as_bytes() == second.as_bytes()


def test_nothing_that_a_job_says_gets_into_the_headers() -> None:
    """Line breaks in an error make neither a header nor a row of the text, and odd characters go through."""
    evil = "x\r\nBcc: eve@example.org\r\n\r\nhello\ud800"
    data = job(error={"detail": evil, "hint": "ünï", "title": "t"}, session_id="s\nstatus    complete")
    with mailing() as box:
        verdict = mail(box.port).send(notice(ADA, Channel.EMAIL, data=data))

    [sent] = box.letters
    assert verdict.done
    assert sent["Bcc"] is None
    assert box.envelopes == [("jobs@example.com", ADA)]
    assert "\nstatus    complete" not in sent.get_content()
    assert "error     x Bcc: eve@example.org hello?" in sent.get_content()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ada",
        "@example.org",
        "ada@",
        "ada@example.org\r\nBcc: eve@example.org",
        "ada@example.org, eve@example.org",
        "Ada <ada@example.org>",
        "ada @example.org",
        "ada@-example.org",
        "adä@example.org",
        ".ada@example.org",
        "a" * 250 + "@example.org",
    ],
)
def test_an_address_is_one_alone(address: str) -> None:
    """Whatever isn't one plain address is refused."""
    with pytest.raises(ValueError, match="mail address"):
        mail_address(address)


def test_a_test_says_that_it_is_one() -> None:
    """It is about no job."""
    with mailing() as box:
        told = notice(ADA, Channel.EMAIL, type="job.test", job_id=None, cursor=None, data=None)
        assert mail(box.port).send(told).done

    assert box.letters[0]["Subject"] == "Test of autocode-jobs"


@pytest.mark.parametrize(
    ("answers", "error", "again"),
    [
        ({"RCPT": "550 5.1.1 who?"}, "the recipient was refused (550)", False),
        ({"RCPT": "450 later"}, "the recipient was refused (450)", True),
        ({"TAKEN": "554 spam"}, "the message was refused (554)", False),
        ({"TAKEN": "451 later"}, "the message was refused (451)", True),
        ({"MAIL": "553 not you"}, "the mail server said 553", True),
        ({"CONNECT": "421 busy"}, "the mail server said 421", True),
        ({"EHLO": "500 what", "HELO": "500 what"}, "the mail server said 500", True),
    ],
)
def test_what_a_refusal_means(answers: dict[str, str], error: str, again: bool) -> None:
    """A recipient or a message that is refused for good is given up; all else is tried again."""
    with mailing(**answers) as box:
        verdict = mail(box.port).send(notice(ADA, Channel.EMAIL))

    assert (verdict.done, verdict.error, verdict.retry_in is not None) == (False, error, again)


def test_a_bad_farewell_is_no_failure() -> None:
    """Once the server took the message, sending it again would make it two."""
    with mailing(QUIT="500 no") as box:
        assert mail(box.port).send(notice(ADA, Channel.EMAIL)).done


def test_a_login_without_its_offer_is_told() -> None:
    """A server that takes no login is a matter of the settings, so it is tried again."""
    with mailing() as box:
        verdict = mail(box.port, user="jobs", password="secret").send(notice(ADA, Channel.EMAIL))

    assert (verdict.done, verdict.retry_in is not None) == (False, True)
    assert not any("secret" in line for line in box.said)


def test_a_server_without_tls_gets_nothing() -> None:
    """With STARTTLS asked for, a server that doesn't offer it learns neither password nor message."""
    with mailing() as box:
        server = mail(box.port, security="starttls", user="jobs", password="secret")
        verdict = server.send(notice(ADA, Channel.EMAIL))

    assert (verdict.done, box.letters, box.envelopes) == (False, [], [])
    assert not any("AUTH" in line for line in box.said)


def test_a_silent_server_has_its_time_and_no_more() -> None:
    """A server that takes a message and then says nothing is left."""
    with mailing() as box:
        box.silent = threading.Event()
        server = MailServer("127.0.0.1", box.port, "none", "jobs@example.com")
        verdict = Mail(NotificationSettings(mail=server), total=0.5).send(notice(ADA, Channel.EMAIL))

    assert (verdict.done, verdict.retry_in is not None) == (False, True)


def test_nobody_is_there() -> None:
    """A mail server that is away, or none in the settings, is waited for."""
    with mailing() as box:
        port = box.port
    away = mail(port).send(notice(ADA, Channel.EMAIL))
    none = Mail(NotificationSettings()).send(notice(ADA, Channel.EMAIL))

    assert (away.done, away.retry_in is not None) == (False, True)
    assert (none.error, none.retry_in is not None) == ("no mail server is set (smtp_host)", True)
