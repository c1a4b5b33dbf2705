"""Tool calls on one line, edits as diffs, and words for numbers and times."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocode.jobs.operations.views.blocks import Call, Stamp
from autocode.jobs.operations.views.diffs import diff_of, patch_of
from autocode.jobs.operations.views.tools import Shown, show_call
from autocode.jobs.operations.views.wording import (
    count_text,
    first_line,
    gap_text,
    readable,
    shortened,
    tokens_text,
)

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@ def f\n-old\n+new\n same\n*** End Patch"


def shown(name: str, value: Any) -> Shown:
    """Return how a call is shown whose session works in /home/dev/project."""
    return show_call(Call(Stamp("c"), name, value, "call-1"), "/home/dev/project")


@pytest.mark.parametrize(
    ("name", "value", "gist"),
    [
        ("Bash", {"command": "make test\nmake lint", "description": "Test"}, "make test"),
        ("shell", {"command": ["bash", "-lc", "ls"]}, "bash -lc ls"),
        ("Read", {"file_path": "/home/dev/project/a.py", "offset": 3}, "a.py"),
        ("Read", {"file_path": "/etc/hosts"}, "/etc/hosts"),
        ("Grep", {"pattern": "x+", "path": "/home/dev/project/src"}, "x+ in src"),
        (
            "Edit",
            {"file_path": "/home/dev/project/a.py", "old_string": "a", "new_string": "b\nc"},
            "a.py +2 -1",
        ),
        ("Write", {"file_path": "/home/dev/project/a.py", "content": "a\nb\n"}, "a.py +2 -0"),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "a", "new_string": ""}]}, "a +0 -1"),
        ("apply_patch", PATCH, "a.py"),
        ("apply_patch", {"input": PATCH}, "a.py"),
        ("str_replace_editor", {"command": "create", "path": "/x/a", "file_text": "a"}, "/x/a +1 -0"),
        ("TodoWrite", {"todos": [{"status": "completed"}, {"status": "pending"}]}, "1 of 2 done"),
        ("odd", {"a": 1}, '{"a":1}'),
        ("odd", "just text", "just text"),
        ("odd", None, ""),
        ("odd", [1, 2], ""),
    ],
)
def test_a_call_says_what_it_is_about(name: str, value: Any, gist: str) -> None:
    """One line, with paths as seen from the session's folder."""
    assert " ".join(shown(name, value).gist.split()) == gist


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "command",
                        "file_path",
                        "old_string",
                        "new_string",
                        "edits",
                        "content",
                        "todos",
                        "path",
                        "pattern",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_input_can_be_shown(value: Any) -> None:
    """Arguments of any shape and type are shown, and none raises."""
    assert len(shown("Edit", value).gist) < 400


def test_an_edit_is_a_diff() -> None:
    """What stays, what goes, what comes."""
    assert diff_of("a\nb\nc\n", "a\nx\nc\n") == [
        ("same", ["a"]),
        ("removed", ["b"]),
        ("added", ["x"]),
        ("same", ["c"]),
    ]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_a_diff_has_all_of_both_sides(before: list[str], after: list[str]) -> None:
    """Without what was added it is the one text, and without what was removed the other."""
    hunks = diff_of("".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after))

    assert [line for kind, lines in hunks if kind != "added" for line in lines] == before
    assert [line for kind, lines in hunks if kind != "removed" for line in lines] == after


def test_a_long_edit_is_not_compared() -> None:
    """Comparing takes quadratic time; a rewrite is shown as one text after the other."""
    before, after = ("\n".join(f"{word} {number}" for number in range(2000)) for word in ("a", "b"))

    assert [(kind, len(lines)) for kind, lines in diff_of(before, after)] == [
        ("removed", 2000),
        ("added", 2000),
    ]


def test_a_patch_is_told_apart_line_by_line() -> None:
    """Lines that say where are neither added nor removed."""
    assert [kind for kind, _ in patch_of(PATCH)] == ["place", "removed", "added", "same", "place"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ünïcode 漢字", "plain ünïcode 漢字"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("a\x00b\x07c", "a␀b␇c"),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
        ("if \u202euser", "if ⟦U+202E⟧user"),
        ("\x7f\x9b", "␡⟦U+009B⟧"),
    ],
)
def test_text_is_shown_and_not_obeyed(text: str, expected: str) -> None:
    """Nothing that a screen would obey is left."""
    assert readable(text) == expected


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    """Only tabs and line ends stay, and what was readable isn't changed again."""
    once = readable(text)

    assert all(each in "\n\t" or (ord(each) >= 32 and not 127 <= ord(each) < 160) for each in once)
    assert readable(once) == once


def test_a_first_line_says_something() -> None:
    """Empty lines, and the marks of Markdown at both ends, are passed over."""
    assert first_line("\n\n  ## **Fix** the parser**\nmore") == "Fix** the parser"
    assert first_line("") == ""


def test_a_cut_is_between_words() -> None:
    """An ellipsis stands for what is cut."""
    assert shortened("one two three four five", 15) == "one two three…"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (0.25, "250 ms"),
        (59.4, "59 s"),
        (61, "1 min 1 s"),
        (1200, "20 min"),
        (7500, "2 h 5 min"),
        (400_000, "4 days"),
        (-5, "-5 s"),
    ],
)
def test_spans_of_time(seconds: float, expected: str) -> None:
    """Two units at most."""
    assert gap_text(seconds) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0"), (999, "999"), (1234, "1.2k"), (99_949, "99.9k"), (999_600, "1.0M"), (75_512_000, "75.5M")],
)
def test_counts(count: int, expected: str) -> None:
    """Three digits at most."""
    assert count_text(count) == expected


def test_tokens_tell_what_is_known_alone() -> None:
    """A count that is missing isn't told as zero."""
    assert tokens_text({"input": 1200, "output": None, "cache_read": 3}) == "1.2k in, 3 cache read"
