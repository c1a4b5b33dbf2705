"""What reaches the terminal: streams, escapes, sizes, colours."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from autocode.jobs.cli.screen import Screen, bytes_text, local_time, plural, visible, zone


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (20_100_000, "20.1 MB"),
        (5 * 10**12, "5.0 TB"),
        (5 * 10**15, "5000.0 TB"),
    ],
)
def test_sizes_are_given_in_the_largest_unit_that_leaves_one_whole(size: int, expected: str) -> None:
    """Sizes are decimal, with one digit behind the point, and never show 1000.0 of a unit."""
    assert bytes_text(size) == expected


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 spans"), (1, "1 span"), (2, "2 spans"), (1234, "1,234 spans")]
)
def test_counts_agree_with_their_noun(count: int, expected: str) -> None:
    """One is singular, everything else plural, thousands are grouped."""
    assert plural(count, "span") == expected


def test_an_irregular_plural_is_given() -> None:
    """A noun whose plural isn't made with an s brings it along."""
    assert plural(2, "artifact begins", "artifacts begin") == "2 artifacts begin"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain · ünïcode", "plain · ünïcode"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("bell\x07", "bell\\x07"),
        ("byte \udcff", "byte \\udcff"),
        ("\u202eright to left", "\\u202eright to left"),
    ],
)
def test_nothing_that_a_terminal_obeys_gets_through(text: str, expected: str) -> None:
    """Control characters, escapes, lone surrogates and direction marks are spelt out."""
    assert visible(text) == expected


@pytest.mark.parametrize("json_mode", [False, True])
def test_a_screen_that_lasts_goes_on_when_its_reader_has_gone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, json_mode: bool
) -> None:
    """What can't be shown any more is lost, once that is logged for each stream; nothing is raised."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stdout, os.fdopen(os.dup(writer), "w") as stderr:
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        screen = Screen(json_mode=json_mode, lasting=True)
        os.close(reader)

        for _ in range(3):
            screen.emit({"event": "health"})
            screen.say("api ready")
            screen.err.print("login")

    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


def test_a_time_that_never_was_is_a_hyphen() -> None:
    """A missing time shows as a hyphen."""
    assert local_time(None) == "-"


@pytest.mark.parametrize(
    ("here", "expected"),
    [("UTC0", "2026-01-05 10:15:00 UTC"), ("IST-5:30", "2026-01-05 15:45:00 +05:30")],
)
def test_a_time_says_its_zone(here: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time is shown by the user's own clock, with its zone; in a table the title has the zone once."""
    monkeypatch.setenv("TZ", here)
    time.tzset()
    try:
        whole = local_time("2026-01-05T10:15:00.000Z")
        brief = local_time("2026-01-05T10:15:00.000Z", seconds=False)
        named = zone()
    finally:
        monkeypatch.undo()
        time.tzset()

    assert (whole, f"{brief}:00 {named}") == (expected, expected)


def test_results_go_to_stdout_and_notes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json the result is on stdout; notes and errors never are."""
    screen = Screen()

    screen.say("the result")
    screen.note("a note")
    screen.fail("It broke.", "Mend it.")

    shown = capsys.readouterr()
    assert shown.out == "the result\n"
    assert shown.err == "a note\nerror: It broke.\n  next: Mend it.\n"


def test_with_json_stdout_has_nothing_but_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json everything for people goes to stderr, and the value is one line of ASCII on stdout."""
    screen = Screen(json_mode=True)

    screen.say("for people")
    screen.row("label", "value")
    screen.emit({"name": "ü\n\u2028"})

    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"name": "ü\n\u2028"}
    assert shown.out.count("\n") == 1
    assert shown.out.isascii()
    assert shown.err == "for people\nlabel    value\n"


def test_markup_in_a_value_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A file called [red] or [/] is printed as it is called."""
    screen = Screen()

    screen.say("[red]a[/]")
    screen.row("bundle", "/home/[bold]")
    screen.note("[/x]")

    shown = capsys.readouterr()
    assert shown.out == "[red]a[/]\nbundle   /home/[bold]\n"
    assert shown.err == "[/x]\n"


def test_a_long_value_is_whole_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Into a file or a pipe a value is never wrapped or cut."""
    screen = Screen()
    value = "a-word, " * 100

    screen.row("redacted", value, wrap=True)

    assert capsys.readouterr().out == f"redacted {value}\n"


def test_a_digest_fits_beside_its_label_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A label and a digest take 80 columns at most, so that no terminal breaks the digest."""
    screen = Screen()

    screen.row("redacted", "sha256:" + "0" * 64)

    assert len(capsys.readouterr().out.rstrip("\n")) <= 80


def test_no_color_means_no_escape_at_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NO_COLOR leaves not even bold, also where colours are forced."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    Screen().say("in colour", style="bold red")
    monkeypatch.setenv("NO_COLOR", "1")

    Screen().say("plain", style="bold red")

    coloured, plain = capsys.readouterr().out.splitlines()
    assert "\x1b[" in coloured
    assert plain == "plain"
