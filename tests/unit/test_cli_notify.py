"""``autocode-jobs notify``, on a real ledger, and what ``jobs explain`` tells of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from api_world import complete
from autocode.jobs.cli import main as command
from autocode.jobs.engine.system import System, open_system
from autocode.jobs.ledger import deliveries, delivery_desk
from autocode.jobs.ledger.deliveries import Verdict
from autocode.jobs.ledger.subscriptions import Watcher
from autocode.jobs.settings import Home
from ledger_world import started

URL = "https://hooks.example.com/T0/very-secret"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    """Give the data folder that the commands of the test work on."""
    monkeypatch.setenv("AUTOCODE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    with open_system(Home(tmp_path / "home")) as opened:
        yield opened


def added(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str | None]:
    """Subscribe with ``--json``, and return what was printed."""
    assert command.run(["notify", "add", *(words or ("--webhook", URL)), "--json"]) == 0
    found: dict[str, str | None] = json.loads(capsys.readouterr().out)
    return found


def settle(system: System, verdict: Verdict) -> str:
    """Let the delivery that is due come to this, and return its id."""
    [due] = deliveries.due(system.db, ())
    message = deliveries.begin(system.db, due)
    assert message is not None
    deliveries.settle(system.db, message, verdict)
    return message.delivery_id


def states(system: System) -> list[str]:
    """Return the states of the deliveries, newest first."""
    return [each.state.value for each in delivery_desk.page(system.db, Watcher("ada")).deliveries]


def test_what_signs_is_shown_once(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """The command that adds prints the secret; the list has neither it nor the URL's path."""
    status = command.run(["notify", "add", "--webhook", URL, "--kind", "export", "--on", "dead"])
    first = capsys.readouterr()
    command.run(["notify", "list"])
    listed = capsys.readouterr().out
    command.run(["notify", "list", "--json"])
    shown = json.loads(capsys.readouterr().out)

    assert status == 0
    assert "whsec_" in first.out
    assert "No service runs" in first.err
    assert "https://hooks.example.com" in listed
    assert "dead (kind export)" in listed
    assert "very-secret" not in listed
    assert "secret" not in shown
    assert shown["target"] == URL


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--webhook", URL, "--email", "ada@example.org"],
        ["--webhook", "ftp://hooks.example.com"],
        ["--webhook", URL, "--on", "ended"],
        ["--webhook", URL, "--on", ","],
        ["--email", "ada@example.org"],
    ],
)
def test_a_senseless_wish_is_refused(
    system: System, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """No address or two, one that can't be, an unknown end, e-mail that isn't set up: status 2."""
    status = command.run(["notify", "add", *words])

    assert status == 2
    command.run(["notify", "list"])
    assert "Nobody is told" in capsys.readouterr().err


def test_e_mail_takes_an_address(
    system: System, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a mail server is set an address is taken, and something else isn't."""
    monkeypatch.setenv("AUTOCODE_SMTP_HOST", "mail.example.org")
    monkeypatch.setenv("AUTOCODE_SMTP_FROM", "jobs@example.org")

    made = added(capsys, "--email", "ada@example.org")

    assert (made["channel"], made["secret"]) == ("email", None)
    assert command.run(["notify", "add", "--email", "ada"]) == 2


def test_what_was_given_up_is_shown_and_sent_again(
    system: System, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dead deliveries are listed with their error, and planned anew by id or all together."""
    added(capsys)
    complete(system.db, started(system.db, "one"))
    first = settle(system, Verdict(done=False, error="answered 500"))
    complete(system.db, started(system.db, "two"))
    second = settle(system, Verdict(done=False, error="answered 404"))

    command.run(["notify", "deliveries", "--dead"])
    told = capsys.readouterr().out
    command.run(["notify", "deliveries", "--job", "two", "--json"])
    [line] = capsys.readouterr().out.splitlines()
    one = command.run(["notify", "replay", first, "--reason", "mended"])
    twice = command.run(["notify", "replay", first])
    rest = command.run(["notify", "replay", "--all-dead"])
    none = command.run(["notify", "replay"])

    assert "answered 500" in told
    assert "answered 404" in told
    assert json.loads(line)["delivery_id"] == second
    assert (one, twice, rest, none) == (0, 1, 0, 2)
    assert states(system) == ["planned", "planned"]


def test_a_subscription_is_enabled_and_removed(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """A receiver that was gone is shown as disabled, and can be told again until it is removed."""
    subscription = added(capsys)["subscription_id"] or ""
    complete(system.db, started(system.db))
    settle(system, Verdict(done=False, error="answered 410", gone=True))
    command.run(["notify", "list"])
    disabled = capsys.readouterr().out

    assert command.run(["notify", "test", subscription]) == 1
    assert command.run(["notify", "enable", subscription]) == 0
    assert command.run(["notify", "test", subscription]) == 1
    assert "No service runs" in capsys.readouterr().err
    assert command.run(["notify", "remove", subscription]) == 0
    assert command.run(["notify", "remove", subscription]) == 1

    assert "DISABLED: answered 410" in disabled


def test_explain_tells_who_was_told(system: System, capsys: pytest.CaptureFixture[str]) -> None:
    """The timeline of a job ends with the notifications that were delivered or given up."""
    added(capsys)
    complete(system.db, started(system.db, "one"))
    settle(system, Verdict(done=True))
    complete(system.db, started(system.db, "two"))
    settle(system, Verdict(done=False, error="answered 404"))

    command.run(["jobs", "explain", "one"])
    one = capsys.readouterr().out
    command.run(["jobs", "explain", "two", "--json"])
    two = json.loads(capsys.readouterr().out)

    assert "webhook to https://hooks.example.com: delivered" in one
    assert two["timeline"][-1]["what"] == "Notified"
    assert two["timeline"][-1]["words"] == ("webhook to https://hooks.example.com: given up: answered 404")
