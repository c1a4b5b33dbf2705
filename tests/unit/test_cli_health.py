"""How the parts of the service are told to people and to programs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autocode.jobs.cli.health_screen import HealthScreen, describe
from autocode.jobs.cli.screen import Screen
from autocode.jobs.service.health import Health, State

SINCE = datetime(2026, 1, 5, 10, 15, tzinfo=UTC)
READY = Health("api", State.READY, SINCE, pid=7, ready_seconds=2.34, url="http://127.0.0.1:4280")
FAILING = replace(
    READY,
    state=State.FAILING,
    restarts=4,
    log=Path("api.log"),
    detail=("ended with status 1", "no such table\x1b[2J"),
)


def screen(*, json_mode: bool) -> HealthScreen:
    """Make a screen whose clock moves by a second with every look."""
    ticks = iter(range(100))
    return HealthScreen(
        Screen(json_mode=json_mode),
        Path("home"),
        Path("logs"),
        counts=lambda: None,
        clock=lambda: float(next(ticks)),
    )


def test_a_part_that_is_ready_says_since_when_and_where() -> None:
    """The line has the time that its start took and its address."""
    assert describe(READY) == "ready in 2.3 s, at http://127.0.0.1:4280"


def test_a_part_that_fails_says_why_and_where_to_look() -> None:
    """The line has the last words, the log and how often it was tried; an address it doesn't have."""
    told = describe(FAILING)

    assert told.startswith("failing since ")
    assert "restarts: 4, ended with status 1 / no such table" in told
    assert told.endswith("log: api.log")
    assert "http" not in told


def test_a_part_that_stays_for_another_command_is_not_called_stopped() -> None:
    """The line says that the process stays, which one it is, and why."""
    told = describe(replace(READY, name="postgres", state=State.STOPPED))

    assert told == "stays (process 7): another command needs it, and it ends after that one"
    assert describe(replace(READY, state=State.STOPPED, pid=None)).startswith("stopped")


def test_what_to_do_is_told_at_the_end() -> None:
    """A part with a hint has it as the last words of its line."""
    told = describe(replace(FAILING, hint="Start that server."))

    assert told.endswith("log: api.log, next: Start that server.")


def test_without_a_terminal_each_change_is_a_line_without_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    """What a part said can't move the cursor of who reads it; readiness is told once."""
    shown = screen(json_mode=False)
    shown.start()

    shown.told(FAILING)
    shown.told(READY)
    shown.looked([READY])
    shown.looked([READY])
    shown.stop()

    out = capsys.readouterr().out
    assert not shown.is_live
    assert "\x1b" not in out
    assert "no such table\\x1b[2J" in out
    assert out.splitlines()[-2:] == [
        "api ready in 2.3 s, at http://127.0.0.1:4280",
        "Ready after 1.0 s. Stop it with Ctrl-C or SIGTERM.",
    ]


def test_json_has_a_line_for_each_change_and_one_for_readiness(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line is JSON by itself, and names its event."""
    shown = screen(json_mode=True)
    shown.start()

    shown.told(FAILING)
    shown.looked([FAILING])
    shown.told(READY)
    shown.looked([READY])
    shown.stop()

    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(event["event"], event.get("state")) for event in events] == [
        ("health", "failing"),
        ("health", "ready"),
        ("ready", None),
    ]
    assert events[1] == {
        "event": "health",
        "part": "api",
        "state": "ready",
        "since": "2026-01-05T10:15:00.000Z",
        "pid": 7,
        "ready_seconds": 2.34,
        "restarts": 0,
        "url": "http://127.0.0.1:4280",
        "log": None,
        "detail": [],
        "hint": None,
    }
    assert events[2]["urls"] == {"api": "http://127.0.0.1:4280"}
